"""Speed of models and simulators, relative to a baseline of the same run."""

import datetime
import platform
import re
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from halfulp.implementation import short
from halfulp.sim.bench import result_formats
from halfulp.sim.build import design, models
from halfulp.sim.model import CompiledModel
from halfulp.sim.ports import Ports
from halfulp.sim.reference import CHUNK, reference, row_of
from halfulp.sim.simulate import UnitSimulation
from halfulp.sim.vectors import Vectors, make
from halfulp.tools.digests import version
from halfulp.tools.threads import threads
from halfulp.tools.timing import in_turns

if TYPE_CHECKING:
    from halfulp.units import Unit

ROWS = (("mac", "e5m2"), ("mul", "e4m3fn"), ("fma", "fp32"))
"""Measured units and formats."""

CYCLES = 20_000
"""Number of vectors for the measurement of cocotb."""


@dataclass(frozen=True)
class Speed:
    """Time of an emulated computation and of the same one in FP32 by torch, in seconds, measured in alternation."""

    kind: str
    """``product``, ``layers`` for training steps of converted layers, ``program`` for those of emulated programs."""
    subject: str
    """Size of the product, or network."""
    policy: str
    seconds: float
    baseline: float

    @property
    def ratio(self) -> float:
        """Time relative to FP32."""
        return self.seconds / self.baseline


def write(speeds: Sequence[Speed], path: Path) -> None:
    """Write measured speeds as CSV with their ratios, the date, the processor, and the version of torch."""
    cpuinfo = Path("/proc/cpuinfo")
    model = re.search(r"model name\s*: (.*)", cpuinfo.read_text()) if cpuinfo.exists() else None
    processor = model[1] if model else platform.machine()
    measured = f"{datetime.date.today()}, {processor}, {THREADS} threads, torch {version('torch')}"
    rows = [
        asdict(speed)
        | {"seconds": f"{speed.seconds:.3g}", "baseline": f"{speed.baseline:.3g}", "ratio": f"{speed.ratio:.1f}"}
        for speed in speeds
    ]
    pd.DataFrame(rows).assign(measured=measured).to_csv(path, index=False)


def table(times: list[dict[str, Any]]) -> list[str]:
    """Return the lines of the table of units, and append their times and rates."""
    lines = [
        f"{'unit':34}{'exact':>10}{'golden':>10}{'ratio':>8}   {'cocotb':>12}{'loop':>14}{'ratio':>8}",
        f"{'':34}{'ns/vector':>10}{'ns/vector':>10}{'':8}   {'vectors/s':>12}{'vectors/s':>14}",
    ]
    for name, fmt in ROWS:
        unit = short(name, fmt).component()
        vectors = make(Ports.inputs_of(unit), result_formats(unit), seed=0, limit=CHUNK)
        exact, golden = _models(unit, vectors)
        slow, fast = _simulators(unit, vectors)
        rates = {"cocotb_vectors_per_second": slow, "loop_vectors_per_second": fast}
        times.append({"kind": "unit", "subject": unit.name, "exact_seconds": exact, "golden_seconds": golden, **rates})
        lines.append(
            f"{unit.name:34}{exact * 1e9:10,.0f}{golden * 1e9:10,.1f}{exact / golden:7,.0f}x"
            f"   {slow:12,.0f}{fast:14,.0f}{fast / slow:7,.0f}x"
        )
    return lines


PRODUCTS = (
    "e5m2*e5m2+e6m5.rn",
    "e5m2*e5m2+e6m5.rz",
    "e5m2*e5m2+e6m5.ro",
    "e5m2*e5m2+e6m5.sr10@lfsr16",
    "e5m2*e5m2+e6m5.sr10@philox",
    "e4m3fn*e4m3fn+fp16.rn",
    "bf16*bf16+fp32.rn",
    "bf16*bf16+bf16.rn",
    "fp16*fp16=fp16.rn+fp16.rn",
    "fxp4.4*fxp4.4+fxp8.8.rn",
    "posit8*posit8+posit16.rn",
    "posit8*posit8+exact=posit8.rn",
    "mxfp8_e4m3*mxfp8_e4m3+fp32.rn",
    "mxfp8_e5m2*mxfp8_e5m2+fp32.rn",
    "mxint8*mxint8+fp32.rn",
    "nvfp4*nvfp4+fp32.rn",
)
"""Measured descriptions of matrix products; ``philox`` is a random source of the golden model only."""

SIDE, THREADS = 512, 2
"""Size of the square matrices, and number of threads."""


QUANTIZATIONS = ("mxfp8_e4m3", "mxfp6_e2m3", "mxfp4", "mxint8", "nvfp4")
"""Measured formats of blocks."""

NUMBERS, ROW = 10_000_000, 8000
"""Numbers that are converted to blocks, and those of a row, along which the blocks lie."""


def products(speeds: list[Speed]) -> list[str]:
    """Return the lines of the table of matrix products of codes and blocks, and append their speeds."""
    from halfulp import golden
    from halfulp.hdl.specs import BlockMacSpec, UnitSpec

    def call(text: str, x: Any, y: Any) -> Callable[[], Any]:
        spec: Any = UnitSpec.parse(text.removesuffix("@philox"))
        if isinstance(spec, BlockMacSpec):
            a: Any = golden.quantize_blocks(x, spec.a)
            b: Any = golden.quantize_blocks(y, spec.b, dim=0)
        else:
            a, b = golden.encode(x, spec.a), golden.encode(y, spec.b)
        return partial(golden.gemm, a, b, spec, source="philox" if text.endswith("@philox") else None)

    return _beside_matmul("products", "product", PRODUCTS, call, speeds)


UNITS = (
    *("v100.mma.fp16", "a100.mma.bf16", "h100.mma.fp16", "h100.wgmma.e4m3", "b200.tcgen05.e4m3"),
    *("b200.tcgen05.mxfp8_e4m3", "b200.tcgen05.nvfp4", "mi100.mfma.fp16", "mi250.mfma.fp16", "mi300.mfma.e4m3"),
)
"""Measured matrix units."""


def matrix_units(speeds: list[Speed]) -> list[str]:
    """Return the lines of the table of products of real numbers on matrix units, and append their speeds."""
    from halfulp import golden

    return _beside_matmul(
        "products, matrix units", "matrix unit", UNITS, lambda name, x, y: partial(golden.gemm, x, y, name), speeds
    )


def _beside_matmul(
    title: str, kind: str, texts: Sequence[str], call: Callable[[str, Any, Any], Callable[[], Any]], speeds: list[Speed]
) -> list[str]:
    """Return the lines of a table of products, each measured in alternation with `torch.matmul` in FP32."""
    import torch

    lines = [
        f"{f'{SIDE}^3 {title}, {THREADS} threads':40}{'golden':>10}{'FP32':>12}{'ratio':>8}",
        f"{'':40}{'MMAC/s':>10}{'MMAC/s':>12}",
    ]
    with threads(THREADS):
        generator = torch.Generator().manual_seed(0)
        x, y = (torch.randn(SIDE, SIDE, generator=generator) for _ in range(2))
        for text in texts:
            ours, plain = in_turns(call(text, x, y), partial(torch.matmul, x, y))
            rates = [SIDE**3 / seconds / 1e6 for seconds in (ours, plain)]
            lines.append(f"{text:40}{rates[0]:10,.0f}{rates[1]:12,.0f}{ours / plain:7,.1f}x")
            speeds.append(Speed(kind, f"{SIDE}^3", text, ours, plain))
    return lines


FIRST_CALLS = ("e4m3fn*e4m3fn+fp32.rn", "mxint8*mxint8+fp32.rn", "nvfp4*nvfp4+fp32.rn", "posit16*posit16+posit16.rn")
"""Descriptions whose first calls are measured."""


def first_calls(times: list[dict[str, Any]]) -> list[str]:
    """Return the lines of the first calls of products whose kernels are not compiled yet, and append their times."""
    import torch

    from halfulp import golden
    from halfulp.golden.kernels import build

    lines = [
        f"{f'{SIDE}^3 products, empty cache':34}{'first':>10}{'second':>12}{'tenth':>8}",
        f"{'':34}{'times of FP32':>22}",
    ]
    x, y = (torch.randn(SIDE, SIDE, generator=torch.Generator().manual_seed(seed)) for seed in range(2))
    with threads(THREADS), tempfile.TemporaryDirectory() as folder, build.in_folder(folder):
        (plain,) = in_turns(partial(torch.matmul, x, y))
        for text in FIRST_CALLS:
            calls = []
            for _ in range(10):
                began = time.perf_counter()
                golden.gemm(x, y, text)
                calls.append((time.perf_counter() - began) / plain)
            times.append({"kind": "calls", "subject": text, "ratios": calls})
            lines.append(f"{text:34}{calls[0]:9,.0f}x{calls[1]:11,.1f}x{calls[9]:7,.1f}x")
    return lines


def quantizations(times: list[dict[str, Any]]) -> list[str]:
    """Return the lines of conversions to blocks, each in alternation with an FP32 addition, and append their times."""
    import torch

    from halfulp import golden

    x = torch.randn(NUMBERS, generator=torch.Generator().manual_seed(0)).reshape(-1, ROW)
    lines = [
        f"{f'blocks of {NUMBERS:,} numbers':34}{'golden':>10}{'x + 1':>12}{'ratio':>8}",
        f"{'':34}{'ms':>10}{'ms':>12}",
    ]
    with threads(THREADS):
        for block in QUANTIZATIONS:
            ours, plain = in_turns(partial(golden.quantize_blocks, x, block), partial(torch.add, x, 1))
            times.append({"kind": "blocks", "subject": block, "seconds": ours, "baseline": plain})
            lines.append(f"{block:34}{ours * 1e3:10.1f}{plain * 1e3:12.1f}{ours / plain:7,.1f}x")
    return lines


def _models(unit: "Unit", vectors: Vectors) -> tuple[float, float]:
    """Return seconds per vector of the exact model and the golden model."""
    from halfulp.golden import exact

    operands = [vectors.codes[port][:500].tolist() for port in Ports.inputs_of(unit).stateless.names]
    function: Callable[..., Any] = getattr(exact, row_of(unit).name)
    began = time.perf_counter()
    for row in zip(*operands, strict=True):
        function(*row, **unit.parameters)
    slow = (time.perf_counter() - began) / len(operands[0])
    return slow, in_turns(lambda: reference(unit, vectors.codes))[0] / vectors.count


def _simulators(unit: "Unit", vectors: Vectors) -> tuple[float, float]:
    """Return vectors per second of cocotb and the compiled loop."""
    kinds = "loop", "cocotb"
    made = design(unit, kinds)
    built = models(made, kinds)
    with CompiledModel(made) as loop:
        fast = vectors.count / in_turns(lambda: loop.run(vectors.codes, vectors.count))[0]
    codes = vectors.take(np.arange(min(CYCLES, vectors.count)))
    reports: list[tuple[float, int]] = []
    with tempfile.TemporaryDirectory() as folder:
        tests = {"plain": (codes, reference(unit, codes))}
        with UnitSimulation(built["cocotb"], unit, tests, Path(folder), seed=0) as simulation:
            simulation.finish(lambda count: reports.append((time.perf_counter(), count)))
    # Exclude the start of the simulator.
    return sum(count for _, count in reports[1:]) / (reports[-1][0] - reports[0][0]), fast
