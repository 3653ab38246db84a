"""Error of arithmetic in one, two and three parts in BF16 (Henry, Tang and Heinecke, ARITH 2019)."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from halfulp.hdl.formats import BF16, FP32, Compound, Format
from halfulp.tools.threads import threads

if TYPE_CHECKING:
    from torch import Tensor

PARTS = (1, 2, 3)
"""Numbers of parts."""

COUNT, SIZE, LENGTH = 1 << 14, 24, 256
"""Numbers in sums and products of two; rows and columns of products of matrices, and products in each sum."""

SPLIT, OPERATIONS = "split exact result", "operations in bf16"
"""Results: those of units, and those of error-free transformations in operations of the parts."""

ROWS = (
    *(f"{name}, {way}" for name in ("sum of two", "product of two") for way in (SPLIT, OPERATIONS)),
    f"sum of {LENGTH} products, accumulator of as many parts",
    f"sum of {LENGTH} products, accumulator fp32",
)


@threads(1)
def errors(seed: int = 0) -> dict[str, list[float | None]]:
    """Return relative errors (Frobenius norm) by row, for each number of parts, against binary64.

    Operands are normal numbers of binary32, rounded to the format of the operands. Operations in BF16 are those of
    numbers of two parts: AccurateDWPlusDW and DWTimesDW3 (Joldes, Muller and Popescu, ACM TOMS 44(2), 2017).
    """
    import torch

    from halfulp import golden

    generator = torch.Generator().manual_seed(seed)
    x, y = (torch.randn(COUNT, generator=generator) for _ in range(2))
    a, b = (torch.randn(shape, generator=generator) for shape in ((SIZE, LENGTH), (LENGTH, SIZE)))
    rows: dict[str, list[float | None]] = {name: [] for name in ROWS}

    def measure(row: str, codes: "Tensor | None", fmt: Format, exact: "Tensor") -> None:
        error = None if codes is None else float((golden.decode(codes, fmt) - exact).norm() / exact.norm())
        rows[row].append(error)

    for parts in PARTS:
        fmt = BF16 if parts == 1 else Compound(BF16, parts)
        given = [golden.encode(values, fmt) for values in (x, y)]
        own = {
            "sum of two": (_operation("add"), _sum, x.double() + y),
            "product of two": (_operation("mul"), _product, x.double() * y),
        }
        for name, (operation, in_bf16, exact) in own.items():
            measure(f"{name}, {SPLIT}", operation(*given, a=fmt, b=fmt), fmt, exact)
            measure(f"{name}, {OPERATIONS}", in_bf16(*given) if parts == 2 else None, fmt, exact)
        for row, acc in ((ROWS[-2], fmt), (ROWS[-1], FP32)):
            measure(row, golden.gemm(a, b, f"{fmt}*{fmt}+{acc}.rn"), acc, a.double() @ b.double())
    return rows


def _operation(name: str) -> "Callable[..., Tensor]":
    from halfulp import golden

    operation: Callable[..., Tensor] = getattr(golden, name)
    return operation


def _add(x: "Tensor", y: "Tensor", subtract: int = 0) -> "Tensor":
    return _operation("add")(x, y, subtract, a=BF16, b=BF16)


def _fma(x: "Tensor", y: "Tensor", z: "Tensor") -> "Tensor":
    return _operation("fma")(x, y, z, a=BF16, b=BF16, c=BF16)


def _two_sum(x: "Tensor", y: "Tensor") -> "tuple[Tensor, Tensor]":
    """Return the rounded sum of two numbers and its error (Knuth)."""
    total = _add(x, y)
    of_y = _add(total, x, 1)
    return total, _add(_add(x, _add(total, of_y, 1), 1), _add(y, of_y, 1))


def _fast_two_sum(x: "Tensor", y: "Tensor") -> "tuple[Tensor, Tensor]":
    """Return the rounded sum of a number and a smaller one, and its error (Dekker)."""
    total = _add(x, y)
    return total, _add(y, _add(total, x, 1), 1)


def _sum(x: "Tensor", y: "Tensor") -> "Tensor":
    """Add numbers of two parts in 20 operations of BF16."""
    (x_high, x_low), (y_high, y_low) = _halves(x), _halves(y)
    (high, low), (low_high, low_low) = _two_sum(x_high, y_high), _two_sum(x_low, y_low)
    high, low = _fast_two_sum(high, _add(low, low_high))
    return _joined(*_fast_two_sum(high, _add(low_low, low)))


def _product(x: "Tensor", y: "Tensor") -> "Tensor":
    """Multiply numbers of two parts in 9 operations of BF16."""
    (x_high, x_low), (y_high, y_low) = _halves(x), _halves(y)
    high, low = (_operation("mul")(*pair, a=BF16, b=BF16) for pair in ((x_high, y_high), (x_low, y_low)))
    error = _fma(x_high, y_high, high ^ BF16.sign_code)
    low = _fma(x_low, y_high, _fma(x_high, y_low, low))
    return _joined(*_fast_two_sum(high, _add(error, low)))


def _halves(codes: "Tensor") -> "tuple[Tensor, Tensor]":
    return codes >> BF16.width, codes & (1 << BF16.width) - 1


def _joined(high: "Tensor", low: "Tensor") -> "Tensor":
    return high << BF16.width | low
