"""Matrix products with multipliers and adders of users."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from halfulp.golden.codec import round_and_pack, unpack
from halfulp.golden.kernels import MatrixProduct, Words, gathered
from halfulp.golden.mac import term_of
from halfulp.golden.operators import Operator
from halfulp.golden.philox import philox_words
from halfulp.hdl.formats import OFF, RN, Fixed, Format
from halfulp.hdl.specs import MacSpec

ELEMENTS = 1 << 24
"""Largest number of products that are in memory at once."""

ONE = Fixed(1, 0, signed=False)
"""Format of a factor 1 for formats without it."""


def check(spec: object, multiplier: Operator | None, adder: Operator | None) -> None:
    """Raise TypeError or ValueError if a multiply-accumulate cannot have a multiplier or an adder."""
    if multiplier is None and adder is None:
        return
    if not isinstance(spec, MacSpec):
        raise TypeError(f"multiplier and adder are parts of products of numbers, not of {spec}")
    spec.check_one_step()
    if multiplier is not None:
        multiplier.check_formats((spec.a, spec.b), "multiplier")
        if spec.product is not None:
            raise ValueError(f"multiplier {multiplier} has results in {multiplier.o}; omit ={spec.product} in {spec}")
    if adder is None:
        return
    term = spec.product if multiplier is None else multiplier.o
    if term is None:
        raise ValueError(
            f"adder {adder} needs rounded products: give their format, as in {spec.a}*{spec.b}=fp16.rn+fp16"
        )
    adder.check_formats((spec.o, term), "adder")
    if adder.o != spec.o or spec.acc == "exact":
        raise ValueError(f"adder {adder} has sums in {adder.o}, and {spec} has another accumulator")
    if spec.random is not None:
        raise ValueError(f"adder {adder} needs a description without source; omit @{spec.random} in {spec}")
    if spec.rounding != RN or spec.saturate:
        raise ValueError(f"adder {adder} decides rounding and overflow of sums; omit them in {spec}")


def approximate(job: MatrixProduct, add: Callable[[MatrixProduct], Tensor]) -> Tensor:
    """Return the codes of a product of codes, whose parts `check` accepts; ``add`` computes other products."""
    multiplier, adder = job.multiplier, job.adder
    shape, k = job.shape, job.steps
    batch, (n, m) = shape[:-2], shape[-2:]
    left, right, start = gathered(job.a), gathered(job.b).mT, None if job.start is None else gathered(job.start)
    if 0 in shape or not k:
        return left.new_zeros(shape) if start is None else start.expand(shape).clone()
    a = left.expand(*batch, n, k).reshape(-1, k)
    b = right.expand(*batch, m, k).reshape(-1, m, k)
    start = None if start is None else start.expand(shape).reshape(-1, m)
    rows, results = max(1, ELEMENTS // (m * k)), []
    for first in range(0, len(a), rows):
        part = slice(first, first + rows)
        x = a[part].unsqueeze(-2)
        y = b[torch.arange(first, first + len(x), device=a.device) // n]
        words = _words(job, part, k, a.device)
        begin = None if start is None else start[part].reshape(-1, 1)
        if adder is not None:
            sums = _added(job.spec, x, y, multiplier, adder, begin, words)
        else:
            assert multiplier is not None
            sums = add(_with_ones(job.spec, multiplier(x, y).reshape(-1, k), multiplier.o, begin, words))
        results.append(sums.reshape(-1, m))
    return torch.cat(results).reshape(shape)


def _with_ones(spec: MacSpec, terms: Tensor, fmt: Format, start: Tensor | None, words: Words) -> MatrixProduct:
    """Return the sums of products in rows as sums of products with 1."""
    one = fmt if fmt.decode(fmt.encode(1)) == 1 else ONE
    ones = torch.full((terms.shape[1], 1), one.encode(1), device=terms.device)
    step = replace(spec, a=fmt, b=one)
    return MatrixProduct(step, terms, ones, start, (len(terms), 1), words)


def _added(
    spec: MacSpec,
    x: Tensor,
    y: Tensor,
    multiplier: Operator | None,
    adder: Operator,
    start: Tensor | None,
    words: Words,
) -> Tensor:
    """Add products one after the other by an adder."""
    sums = x.new_zeros(x.shape[0], y.shape[-2]) if start is None else start.reshape(x.shape[0], -1)
    for step in range(x.shape[-1]):
        p, q = x[..., step], y[..., step]
        if multiplier is not None:
            term = multiplier(p, q)
        else:
            assert spec.product is not None
            word = None if words.given[1] is None else words.given[1][..., 0, step].reshape(sums.shape)
            product = term_of(replace(spec, flags=False), unpack(p, spec.a), unpack(q, spec.b), word)
            term = round_and_pack(product, spec.product, RN, OFF, None)
        sums = adder(sums, term)
    return sums


def _words(job: MatrixProduct, part: slice, k: int, device: torch.device) -> Words:
    """Return the random words of some rows of a result, as sums of shape (rows * m, 1)."""
    words, m = job.words, job.shape[-1]

    def of_rows(x: Tensor | None, *more: int) -> Tensor | None:
        return None if x is None else x.reshape(-1, m, *more)[part].reshape(-1, 1, *more)

    if words.key is None:
        (first, second), (state, other) = words.given, words.states
        return Words(given=(of_rows(first, k), of_rows(second, k)), states=(of_rows(state), of_rows(other)))
    rows = torch.arange(torch.Size(job.shape[:-1]).numel(), device=device)[part]
    elements = (rows.unsqueeze(-1) * m + torch.arange(m, device=device)).reshape(-1, 1)
    drawn = [
        philox_words(words.key, elements, k, bits, first=words.first_step, stream=stream) if bits else None
        for stream, bits in enumerate(job.spec.words.get(name, 0) for name in ("random", "random_product"))
    ]
    return Words(given=(drawn[0], drawn[1]))
