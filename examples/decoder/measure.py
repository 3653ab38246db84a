"""Cost of engines on an ECP5, and energy of their arithmetic; cached."""

import re
from collections import Counter
from dataclasses import replace
from statistics import fmean

from halfulp.boards.targets import target_of
from halfulp.fpga.synth.asic import measure_cells
from halfulp.fpga.synth.liberty import Library
from halfulp.fpga.synth.measure import Cost, measure_modules
from halfulp.fpga.synth.measure import Module as Netlist
from halfulp.fpga.synth.registered import Registered
from halfulp.fpga.synth.route import frequencies
from halfulp.implementation import Implementation
from halfulp.tools.jobs import JobPool
from halfulp.tools.progress import Progress

from .engine import Engine
from .program import BINARY, REDUCTIONS, UNARY, Op

TARGET = target_of("ecp5-85k")

ROUTABLE = 0.25
"""Largest share of the lookup tables of the device for an engine that is placed and routed.

Wires of larger engines are congested: nextpnr routed one of 20 %, but not one of 27 % in 24 minutes.
"""

OPERANDS = {
    Op.RSQRT: ("function_x",),
    Op.EXP: ("exp_x",),
    Op.GELU: ("gelu_x",),
    Op.MEAN: (),
    Op.SUM: ("element_x",),
    Op.MAX: ("element_x",),
}
"""Units that round the operands of an operation; others have ``element_x`` and ``element_y``."""

NAMES = {Op.SUB: "add", Op.MAX: "compare"}
"""Units whose names are not those of their operations."""

_ZEROS = re.compile(r"^ *for \((\w+) = 0; \1 < \d+; \1 = \1 \+ 1\) \S+ ?\[\1\] = \d+'[dh]0+;\n", re.MULTILINE)


# Cost ----------------------------------------------------------------------------------------------------------------


def netlist(engine: Engine) -> Netlist:
    """Return the Verilog of an engine, whose equal lanes are synthesised once.

    It is without the zeros of its memories, for which Yosys takes minutes; those of the device are zero anyway.
    """
    whole = Netlist.of_array(engine)
    return replace(whole, verilog=_ZEROS.sub("", whole.verilog))


def costs(engines: list[Engine], progress: Progress, pool: JobPool) -> list[tuple[Cost, float, bool]]:
    """Return cost, clock in MHz and True for a whole engine that is placed and routed.

    The clock of an engine that takes more than `ROUTABLE` of the device is that of its unit with the longest path.
    """
    modules = [netlist(engine) for engine in engines]
    progress.total("synthesis", len(modules))
    wholes = measure_modules(modules, TARGET, progress, pool)
    fits = [whole.shares(TARGET)["LUT"] <= ROUTABLE and max(whole.shares(TARGET).values()) <= 1 for whole in wholes]
    routed = [module if fit else _slowest(engine) for module, engine, fit in zip(modules, engines, fits, strict=True)]
    progress.total("place and route", len(routed))
    clocks = frequencies(routed, TARGET, progress, pool)
    return list(zip(wholes, clocks, fits, strict=True))


def _slowest(engine: Engine) -> Netlist:
    units = list(engine.units.values())
    paths = [cost.path for cost in measure_modules(map(Netlist.of, units), TARGET)]
    return Netlist.of(Registered(units[paths.index(max(paths))]))


# Energy --------------------------------------------------------------------------------------------------------------


def implementations(engine: Engine) -> dict[str, Implementation]:
    """Return the units of an engine by name; lanes with other seeds are one unit."""
    units = {}
    for name, unit in engine.units.items():
        own = Implementation.of(unit)
        if name.startswith("mac"):
            name, own = name.partition("_")[0], own.with_spec(seed=1)
        units[name] = own
    return units


def operations(engine: Engine) -> Counter[str]:
    """Return the number of operations of each unit for a token of a context, a mean over its positions."""
    uses: Counter[str] = Counter()
    context = engine.shape.context
    for each in engine.program.instructions:
        number = fmean(each.count.at(0, place) * each.rows.at(0, place) for place in range(context))
        if each.op is Op.PRODUCT:
            uses[f"mac{each.operands}"] += number * engine.lanes
            sums = fmean(each.rows.at(0, place) for place in range(context)) * engine.lanes
            uses[f"store_product{each.operands}"] += sums
        elif each.op in (Op.OPERAND, Op.STORE):
            block, side = engine.products[each.operands].block, 0 if each.op is Op.OPERAND else 1
            entries = fmean(-(-each.count.at(0, at) // block) * each.rows.at(0, at) for at in range(context))
            names = [f"operand{each.operands}_{place}" for place in (side, 0)]
            uses[next((name for name in names if name in engine.units), "")] += entries
        elif each.op in (*BINARY, *UNARY, *REDUCTIONS):
            name = NAMES.get(each.op, each.op.name.lower())
            results = 1 if each.op in REDUCTIONS else number
            for unit in (*OPERANDS.get(each.op, ("element_x", "element_y")), name):
                uses[unit] += number
            uses[f"store_{each.op.name.lower() if each.op in REDUCTIONS else name}"] += results
    # Formats that agree need no conversion.
    return Counter({name: count for name, count in uses.items() if name in implementations(engine)})


def energies(
    engines: list[Engine], library: Library, progress: Progress, pool: JobPool
) -> list[tuple[float, dict[str, float]]]:
    """Return the energy of arithmetic for a token in nanojoule, and that of each unit.

    It is the number of operations of each unit times its energy in a clock cycle (`halfulp.fpga.synth.power`).
    """
    units = dict.fromkeys(unit for engine in engines for unit in implementations(engine).values())
    progress.total("energy of units", len(units))
    costs = measure_cells(units, library, progress, pool, power=True)
    picojoule = {unit: cost.energy or 0.0 for unit, (cost,) in zip(units, costs, strict=True)}
    rows = []
    for engine in engines:
        own = implementations(engine)
        parts = {name: count * picojoule[own[name]] / 1e3 for name, count in operations(engine).items()}
        rows.append((sum(parts.values()), parts))
    return rows
