"""Total errors of composed units: results of the golden model against the real function of the same operands."""

from typing import Any

import pandas as pd
import torch
from torch import Tensor

from halfulp import golden
from halfulp.golden.composed import OPERATIONS
from halfulp.hdl.formats import Float
from halfulp.hdl.specs import UnitSpec
from halfulp.tools.progress import Progress, silent
from halfulp.tools.tables import Table

_FP32 = "elementwise=fp32 reductions=fp32"

UNITS = (
    "softmax fp16",
    "softmax bf16",
    "softmax bf16 reductions=fp32",
    f"softmax bf16 {_FP32} functions=fp16",
    "softmax e4m3fn>bf16 reductions=fp32",
    "softmax bf16 argument=fxp6.8 pieces=16 reductions=fp32",
    "rmsnorm fp16*fp16",
    "rmsnorm bf16*bf16",
    "rmsnorm bf16*bf16 reductions=fp32",
    f"rmsnorm bf16*bf16 {_FP32}",
    "rmsnorm e4m3fn*bf16>bf16 reductions=fp32",
    "layernorm fp16*fp16+fp16",
    "layernorm bf16*bf16+bf16",
    "layernorm bf16*bf16+bf16 reductions=fp32",
    f"layernorm bf16*bf16+bf16 {_FP32}",
    "layernorm e4m3fn*bf16+bf16>bf16 reductions=fp32",
)
"""Texts of the measured units."""

LENGTHS = (64, 512)
"""Numbers of elements of a vector."""

VECTORS = 256
"""Vectors of each unit and length."""

SPREAD = {"softmax": 3.0, "rmsnorm": 1.0, "layernorm": 1.0}
"""Standard deviation of the elements, which have the mean 0."""


def measure(text: str, length: int, vectors: int = VECTORS) -> dict[str, Any]:
    """Return the errors of a unit on normally distributed vectors.

    The unit of an error is the last place of the result format at the real value, or at the largest one of its vector.
    """
    spec: Any = UnitSpec.parse(text)
    noise = torch.Generator().manual_seed(length)
    draws = {name: torch.randn(vectors, length, generator=noise, dtype=torch.float64) for name in spec.operands}
    draws["a"] = draws["a"] * SPREAD[spec.form.unit]
    codes = [golden.encode(draws[name], fmt) for name, fmt in spec.operands.items()]
    operands = [golden.decode(code, fmt) for code, fmt in zip(codes, spec.operands.values(), strict=True)]
    real = _real(spec, *operands)
    given = golden.decode(OPERATIONS[spec.form.unit](*codes, **spec.parameters), spec.o)
    apart = (given - real).abs()
    errors, of_largest = apart / _ulp(real, spec.o), apart / _ulp(real.abs().amax(-1, keepdim=True), spec.o)
    columns = {"max ulp": errors.max(), "mean ulp": errors.mean(), "max ulp of the largest": of_largest.max()}
    return {"unit": text, "length": length, "vectors": vectors} | {
        name: round(float(value), 4) for name, value in columns.items()
    }


def _real(spec: Any, x: Tensor, gain: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
    """Return the function in binary64, whose error is far below the last place of the formats."""
    if spec.form.unit == "softmax":
        return torch.softmax(x, -1)
    apart = x - x.mean(-1, keepdim=True) if spec.form.unit == "layernorm" else x
    y = apart / (apart.square().mean(-1, keepdim=True) + spec.eps).sqrt()
    y = y if gain is None else y * gain
    return y if bias is None else y + bias


def _ulp(real: Tensor, fmt: Float) -> Tensor:
    """Return the last place of a format at numbers."""
    exponent = torch.where(real == 0, fmt.emin, torch.frexp(real)[1] - 1)
    return torch.exp2(exponent.clamp(min=fmt.emin).to(torch.float64) - fmt.man)


def study(progress: Progress = silent) -> pd.DataFrame:
    """Measure all units."""
    cases = [(text, length) for text in UNITS for length in LENGTHS]
    progress.total("measuring", len(cases))
    rows = []
    for case in cases:
        rows.append(measure(*case))
        progress.advance(1)
    return pd.DataFrame(rows)


def table(frame: pd.DataFrame) -> Table:
    """Return the table of errors."""
    notes = [
        f"Errors of {VECTORS} random vectors of each length against the real function of the same operands. Elements "
        "are normally distributed, with standard deviation 3 for softmax and 1 for the others; gain and bias with 1.",
        "ulp: last place of the result format at the real value; of the largest: at the largest value of its vector.",
    ]
    return Table("Errors of composed units", frame, dict.fromkeys(frame.columns[3:], ".2f"), notes)
