"""Error of dot products in the arithmetic of a multiply-accumulate, against exact sums."""

import math
import pickle
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from halfulp.hdl.formats import FP64, Format
from halfulp.hdl.specs import MacSpec, ValueRange
from halfulp.tools.cache import Entry
from halfulp.tools.digests import code, version
from halfulp.tools.jobs import LOCAL, Job, JobPool
from halfulp.tools.progress import Progress, silent
from halfulp.tools.report import versions
from halfulp.tools.threads import threads

from .study import TRAINED, Dots

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True)
class Error:
    """Error of dot products against the exact sums of their operands.

    Attributes
    ----------
    distribution : str
        Distribution of the operands.
    length : int
        Products per dot product.
    relative : float, optional
        Root mean square of the errors, relative to that of the exact sums; None if a result is not finite.
    ulp : float, optional
        The same in units of the last place of the result format, at the root mean square of the exact sums.
    not_finite : int
        Number of results that are infinite or NaN.
    """

    distribution: str
    length: int
    relative: float | None
    ulp: float | None
    not_finite: int

    def cells(self) -> dict[str, Any]:
        """Return the error as cells of a table, infinite if a result is not finite."""
        return {
            "operands": self.distribution,
            "length": self.length,
            "error": math.inf if self.relative is None else self.relative,
            "ulp": math.inf if self.ulp is None else self.ulp,
            "not finite": self.not_finite,
        }


def errors(
    macs: Sequence[MacSpec], dots: Dots, progress: Progress = silent, pool: JobPool = LOCAL
) -> list[list[Error]]:
    """Measure the errors of each multiply-accumulate, one per distribution and length; results are cached.

    All multiply-accumulates get the same fp32 operands, rounded to nearest to their operand formats with saturation.
    The exact sum is a fraction: of products of the rounded operands, or of the drawn ones. Dot product i takes its
    random words from a source with the i-th of ``source.seeds(count)``, or from torch's generator if they come from
    ports. ValueError if the golden model refuses a multiply-accumulate, or if all exact sums are zero.
    """
    cases = [(distribution, length) for distribution in dots.distributions for length in dots.lengths]
    progress.total("dot products", len(macs) * len(cases))
    entries = {(mac, *case): _entry(mac, dots, *case) for mac in macs for case in cases}
    results: dict[Entry, Any] = {}
    # The file of a trained layer is on this machine only.
    for where, trained in ((pool, False), (LOCAL, True)):
        jobs = (
            (entry, Job(f"dot products of {case[0]}", measure_errors, (dots, *case)))
            for case, entry in entries.items()
            if (case[1] == TRAINED) == trained
        )
        results |= where.results(jobs, progress, versions=partial(versions, "torch"), here="call")
    return [[Error(**results[entries[mac, *case]]) for case in cases] for mac in macs]


def _entry(mac: MacSpec, dots: Dots, distribution: str, length: int) -> Entry:
    source = [dots.trained] if distribution == TRAINED else []
    own = code("halfulp.golden"), code(__name__, imports=False), version("torch")
    parts = (mac, distribution, length, dots.count, dots.seed, dots.scale, dots.against, *source, *own)
    return Entry.of("dots", parts)


@threads(1)
def measure_errors(dots: Dots, mac: MacSpec, distribution: str, length: int) -> dict[str, Any]:
    """Measure the error of dot products of one distribution and length, as the fields of `Error`."""
    from halfulp import golden

    drawn = [_drawn(dots, distribution, length, side) for side in (0, 1)]
    a, b = (golden.encode(values, fmt, saturate=True) for values, fmt in zip(drawn, (mac.a, mac.b), strict=True))
    results = golden.gemm(a.unsqueeze(-2), b.unsqueeze(-1), mac, **_words(mac, dots, length)).flatten()
    values = [mac.o.decode(code % (1 << mac.o.width)) for code in results.tolist()]
    exact = _exact(a, b, mac) if dots.against == "rounded" else _sums(drawn[0] * drawn[1])
    size = _rms(exact)
    if size == 0:
        products = f"all products of {mac.expression}"
        raise ValueError(f"dots.scale is {dots.scale:g}, for which {products} are zero; use a larger scale")
    off = [value - sum_ for value, sum_ in zip(values, exact, strict=True) if isinstance(value, Fraction)]
    if len(off) < len(values):
        return asdict(Error(distribution, length, None, None, len(values) - len(off)))
    error = _rms(off)
    return asdict(Error(distribution, length, error / size, error / float(last_place(mac.o, Fraction(size))), 0))


def _drawn(dots: Dots, distribution: str, length: int, side: int) -> "Tensor":
    """Draw the operands of one side, of shape (count, length), independent of the other side."""
    import torch

    generator = torch.Generator().manual_seed(dots.seed)
    shape = (2, dots.count, length)
    if distribution == TRAINED:
        return dots.scale * _of_layer(dots, length, generator)[side]
    if distribution == "normal":
        values = torch.randn(shape, generator=generator, dtype=torch.float64)
    else:
        values = torch.rand(shape, generator=generator, dtype=torch.float64)
        values = 2 * values - 1 if distribution == "uniform" else values
    # float64 holds the product of two fp32 numbers exactly.
    return (dots.scale * values[side]).to(torch.float32).to(torch.float64)


def _of_layer(dots: Dots, length: int, generator: "torch.Generator") -> "tuple[Tensor, Tensor]":
    """Draw activations and weights of consecutive sums of a layer, starting at a random position of the first sum.

    Each sum has a random example and a random output.
    """
    import torch

    assert dots.trained is not None
    activations, weights = layer_of(dots.trained.path)
    k = activations.shape[1]
    places = torch.randint(k, (dots.count, 1), generator=generator) + torch.arange(length)
    sums = -(-(length + k) // k)
    parts = []
    for rows in (activations, weights):
        drawn = torch.randint(len(rows), (dots.count, sums), generator=generator)
        parts.append(rows[drawn.gather(1, places // k), places % k].to(torch.float32).to(torch.float64))
    return parts[0], parts[1]


_UNREADABLE = (
    *(OSError, EOFError, RuntimeError, pickle.UnpicklingError),
    *(LookupError, TypeError, AttributeError, ValueError),
)
"""Exceptions of `torch.load`, and of a file with other content."""


def layer_of(path: Path) -> "tuple[Tensor, Tensor]":
    """Read activations and weights from the file of a trained layer; ValueError if they are missing or invalid."""
    import torch

    try:
        layer = torch.load(path, weights_only=True)
        a, b = layer["activations"], layer["weights"]
        if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[1] or not (a.numel() and b.numel()):
            raise ValueError(f"they are of shapes {tuple(a.shape)} and {tuple(b.shape)}")
        if not (a.isfinite().all() and b.isfinite().all()):
            raise ValueError("not all of them are finite")
    except _UNREADABLE as error:
        raise ValueError(
            f"{path} has no tensors activations and weights, of shapes (examples, k) and (outputs, k): "
            f"{'torch does not read it' if isinstance(error, pickle.UnpicklingError) else str(error).splitlines()[0]}"
        ) from error
    return a, b


def _words(mac: MacSpec, dots: Dots, length: int) -> dict[str, Any]:
    """Draw random words for the ports, one per product; none if the multiply-accumulate has a source."""
    import torch

    if mac.random is not None:
        return {}
    # A different seed than that of the operands.
    generator = torch.Generator().manual_seed(dots.seed ^ 1 << 62)
    shape = (dots.count, 1, 1, length)
    return {name: torch.randint(1 << bits, shape, generator=generator) for name, bits in mac.words.items()}


def _exact(a: "Tensor", b: "Tensor", mac: MacSpec) -> list[Fraction]:
    """Return the exact sums of products of codes."""
    from halfulp import golden

    if _in_float64(mac):
        return _sums(golden.decode(a, mac.a) * golden.decode(b, mac.b))
    return [_sum(x, y, mac) for x, y in zip(a.tolist(), b.tolist(), strict=True)]


def _sums(products: "Tensor") -> list[Fraction]:
    return [exact_sum(row) for row in products.tolist()]


def exact_sum(values: list[float]) -> Fraction:
    """Sum floats exactly by repeating `math.fsum` on the remainder until it is zero."""
    parts: list[float] = []
    while rest := math.fsum([*values, *(-part for part in parts)]):
        parts.append(rest)
    return sum(map(Fraction, parts), Fraction(0))


def _sum(x: list[int], y: list[int], mac: MacSpec) -> Fraction:
    """Sum products of codes as fractions; all operands are finite."""
    wide_a, wide_b = 1 << mac.a.width, 1 << mac.b.width
    pairs = zip(x, y, strict=True)
    return sum((Fraction(mac.a.decode(i % wide_a)) * Fraction(mac.b.decode(j % wide_b)) for i, j in pairs), Fraction(0))


def _in_float64(mac: MacSpec) -> bool:
    """Return True if float64 holds every operand and every product."""
    a, b = ValueRange.of(mac.a), ValueRange.of(mac.b)
    try:
        for span in (a, b, a * b):
            span.check_fits(FP64, "number")
    except ValueError:
        return False
    return True


def last_place(fmt: Format, value: Fraction) -> Fraction:
    """Return the distance of the two numbers of a format around a magnitude, or of its two largest numbers."""
    code = fmt.encode(abs(value), "rz")
    number, above = fmt.decode(code), fmt.decode((code + 1) % (1 << fmt.width))
    if isinstance(above, Fraction) and above > number:
        return above - Fraction(number)
    return Fraction(number) - Fraction(fmt.decode(code - 1))


def _rms(values: Sequence[Fraction]) -> float:
    return math.sqrt(math.fsum(float(value) ** 2 for value in values) / len(values))
