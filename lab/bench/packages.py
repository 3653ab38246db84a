"""Speed of matrix products of other packages, beside ours with the same bits and torch in FP32."""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from halfulp import golden
from halfulp.hdl.specs import UnitSpec
from halfulp.tools.digests import version
from halfulp.tools.threads import threads
from halfulp.tools.timing import in_turns

from .speed import THREADS, Speed

SIDE = 128
"""Size of the square matrices."""

Call = Callable[[], Tensor]
"""Product, which returns real numbers."""


@dataclass(frozen=True)
class Package:
    """Package that computes products of ours.

    Attributes
    ----------
    name : str
        Name on PyPI.
    texts : tuple of str
        Descriptions of the products.
    call : function
        Makes the product of two matrices from the text of a description and their numbers, which are in its formats.
    """

    name: str
    texts: tuple[str, ...]
    call: Callable[[str, Tensor, Tensor], Call]


_INSTRUCTIONS = {
    "a100.mma.bf16": ("nv_ptx", "MMA", "Ampere", "m16n8k16.f32.bf16.bf16.f32"),
    "h100.wgmma.e4m3": ("nv_ptx", "WGMMA", "Hopper", "m64n128k32.f32.e4m3.e4m3"),
    "b200.tcgen05.e4m3": ("nv_ptx", "TCGen05MMA", "Blackwell", "m128n128k32.kind::f8f6f4.f32.e4m3.e4m3"),
    "mi300.mfma.e4m3": ("amd", "MFMA", "CDNA3", "f32_16x16x32_fp8_fp8"),
}
"""Packages, classes, architectures and names of instructions of mmasim."""


def _mmasim(text: str, x: Tensor, y: Tensor) -> Call:
    name, kind, architecture, instruction = _INSTRUCTIONS[text]
    operation = getattr(importlib.import_module(f"mmasim.{name}"), kind)(architecture, instruction)
    start = torch.zeros(len(x), y.shape[1])
    return partial(operation, x.to(operation.a_type), y.to(operation.b_type), start)


def _apytypes(text: str, x: Tensor, y: Tensor) -> Call:
    package: Any = importlib.import_module("apytypes")
    spec: Any = UnitSpec.parse(text)
    pairs = zip((x, y), (spec.a, spec.b), strict=True)
    a, b = (package.APyFloatArray.from_float(values.numpy(), fmt.exp, fmt.man) for values, fmt in pairs)

    def product() -> Tensor:
        nearest = package.QuantizationMode.TIES_EVEN
        with package.APyFloatAccumulatorContext(exp_bits=spec.o.exp, man_bits=spec.o.man, quantization=nearest):
            return torch.from_numpy((a @ b).to_numpy())

    return product


PACKAGES = (
    Package("mmasim", tuple(_INSTRUCTIONS), _mmasim),
    Package("apytypes", ("e5m2*e5m2=e6m5.rn+e6m5.rn", "bf16*bf16=bf16.rn+bf16.rn"), _apytypes),
)
"""Measured packages. APyTypes rounds products to the format of the accumulator."""


def products(text: str, package: Package, side: int = SIDE) -> tuple[Call, Call, Call]:
    """Return a product of ours, of a package and of torch in FP32, on the same random numbers."""
    generator = torch.Generator().manual_seed(0)
    spec: Any = UnitSpec.parse(text)
    codes = [golden.encode(torch.randn(side, side, generator=generator), fmt) for fmt in (spec.a, spec.b)]
    x, y = (golden.decode(part, fmt).float() for part, fmt in zip(codes, (spec.a, spec.b), strict=True))
    return partial(golden.gemm, codes[0], codes[1], spec), package.call(text, x, y), partial(torch.matmul, x, y)


def table(speeds: list[Speed], packages: Sequence[Package] = PACKAGES) -> list[str]:
    """Return the lines of the table, and append the speeds; a sentence stands for a package that is not installed."""
    lines = [
        f"{f'{SIDE}^3 products, {THREADS} threads':40}{'golden':>10}{'package':>12}{'ratio':>8}{'FP32':>12}",
        f"{'':40}{'MMAC/s':>10}{'MMAC/s':>12}{'':8}{'MMAC/s':>12}",
    ]
    for package in packages:
        try:
            importlib.import_module(package.name)
        except ImportError:
            lines.append(f"{package.name} is not installed and not measured; pip install {package.name} adds its rows")
            continue
        with threads(THREADS):
            for text in package.texts:
                ours, theirs, plain = in_turns(*products(text, package), repeats=3)
                rates = [SIDE**3 / seconds / 1e6 for seconds in (ours, theirs, plain)]
                name = f"{text}, {package.name}"
                lines.append(f"{name:40}{rates[0]:10,.0f}{rates[1]:12,.1f}{theirs / ours:7,.1f}x{rates[2]:12,.0f}")
                subject = f"{SIDE}^3"
                speeds.append(Speed("golden", subject, text, ours, plain))
                speeds.append(Speed(f"{package.name} {version(package.name)}", subject, text, theirs, plain))
    return lines
