"""Golden blocks of the named formats against a model in integers of any size and in binary64 without rounding errors.

Tables of ml_dtypes have the elements and scales, so that the model shares only the names of formats with the library.
"""

import itertools
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
import torch

from halfulp import golden
from halfulp.hdl.formats import BLOCKS
from halfulp.hdl.specs.formula import VALUES, Role
from halfulp.sim.corner_cases import corner_cases
from halfulp.sim.ports import Ports
from halfulp.sim.vectors import sampled
from halfulp.units import BlockDequantize, BlockDot, BlockQuantize
from tests.settings import EXHAUSTIVE

COUNT = 10**6 if EXHAUSTIVE else 1 << 14
"""Blocks of each format."""

CHUNK = 1 << 16

ELEMENTS = {
    "mxfp8_e5m2": ml_dtypes.float8_e5m2,
    "mxfp8_e4m3": ml_dtypes.float8_e4m3fn,
    "mxfp6_e3m2": ml_dtypes.float6_e3m2fn,
    "mxfp6_e2m3": ml_dtypes.float6_e2m3fn,
    "mxfp4": ml_dtypes.float4_e2m1fn,
    "mxint8": None,
    "nvfp4": ml_dtypes.float4_e2m1fn,
}
"""Elements of the formats; those of mxint8 are integers."""

BITS = {"mxfp8_e5m2": 8, "mxfp8_e4m3": 8, "mxfp6_e3m2": 6, "mxfp6_e2m3": 6, "mxfp4": 4, "mxint8": 8, "nvfp4": 4}
QUANTUM = -149
"""Exponent of the last place of the smallest binary32 numbers."""


def table(kind, bits):
    """Return the numbers of all codes in binary64."""
    return np.arange(1 << bits, dtype=np.uint8).view(kind).astype(np.float64)


def elements_of(name):
    """Return the elements of all codes in binary64."""
    if name == "mxint8":
        return np.arange(256, dtype=np.uint8).view(np.int8) / 64.0
    return table(ELEMENTS[name], BITS[name])


def scales_of(name):
    """Return the scales of all codes in binary64."""
    return table(ml_dtypes.float8_e4m3fn if name == "nvfp4" else ml_dtypes.float8_e8m0fnu, 8)


def nearest(magnitudes, numbers, scale):
    """Return the index of the number nearest to magnitude / scale, of the even one at a tie.

    Numbers are ascending from 0 and have at most 4 bits, as the scale has, so binary64 holds their products.
    """
    if (np.frexp(scale)[0] == 0.5).all():
        # A quotient by a power of two is exact.
        middles, quotients = (numbers[:-1] + numbers[1:]) / 2, magnitudes / scale
        found = np.searchsorted(middles, quotients)
        ties = quotients == middles[np.minimum(found, len(middles) - 1)]
        return found + (ties & (found % 2 == 1))
    found = np.zeros(np.broadcast_shapes(magnitudes.shape, scale.shape), dtype=np.int64)
    for index, (low, high) in enumerate(itertools.pairwise(numbers)):
        middle = (low + high) / 2 * scale
        found += (magnitudes > middle) | ((magnitudes == middle) & (index % 2 == 1))
    return found


def quantized(name, x):
    """Return the codes of elements and scales of blocks of binary64 numbers that are binary32 numbers."""
    finite = np.isfinite(x).all(-1)
    values = np.where(finite[:, None], x, 0)
    magnitude = np.abs(values)
    largest = magnitude.max(-1)
    elements = elements_of(name)
    positive = np.sort(np.unique(elements[elements >= 0]))
    positive = positive[np.isfinite(positive)]
    if name == "nvfp4":
        scales = scales_of(name)[1:127]
        code = np.maximum(nearest(largest, np.concatenate([[0], scales]), np.array(positive[-1])), 1)
        code = np.where(largest == 0, 0x38, code)
        scale = scales[code - 1]
    else:
        top = np.frexp(positive[-1])[1]
        exponent = np.clip(np.frexp(largest)[1] - top, -127, 127)
        code = np.where(largest == 0, 0, exponent + 127)
        scale = np.ldexp(1.0, code - 127)
    if name == "mxint8":
        found = np.clip(np.rint(values / scale[:, None] * 64), -128, 127).astype(np.int64) & 255
    else:
        found = nearest(magnitude, positive, scale[:, None])
        found |= np.signbit(values).astype(np.int64) << (BITS[name] - 1)
    return np.where(finite[:, None], found, 0), np.where(finite, code, 0x7F if name == "nvfp4" else 255)


def binary32(number, exponent):
    """Return the code of an integer times a power of two, rounded to nearest even, for a positive integer."""
    drop = max(number.bit_length() - 24, QUANTUM - exponent)
    if drop > 0:
        number, rest = number >> drop, number & ((1 << drop) - 1)
        number += rest > (1 << drop - 1) or (rest == 1 << drop - 1 and number & 1)
        exponent += drop
    else:
        number, exponent = number << -drop, exponent + drop
    # The leading one of a normal number is in its exponent field.
    return min(((exponent - QUANTUM) << 23) + number, 0xFF << 23)


def start_of(code):
    """Return a finite binary32 number as an integer of last places of the smallest one."""
    field = code >> 23 & 0xFF
    number = (code & 0x7FFFFF) + ((1 << 23) if field else 0)
    return (-1 if code >> 31 else 1) * (number << max(field - 1, 0))


def dots(name, x, y, x_scale, y_scale, start):
    """Return the codes of start + scales * sums of products, rounded once to binary32."""
    elements, scales = elements_of(name), scales_of(name)
    unit = 64 if name == "mxint8" else 1 / float(np.min(elements[elements > 0]))
    finite = np.where(np.isfinite(elements), elements, 0)
    integers = np.array([int(value * unit) for value in finite], dtype=object)
    sums = (integers[x] * integers[y]).sum(-1)
    zero, special = elements == 0, ~np.isfinite(elements)
    nan = (np.isnan(elements)[x] | np.isnan(elements)[y] | (special[x] & zero[y]) | (zero[x] & special[y])).any(-1)
    sign = np.signbit(elements)
    infinite = (special[x] | special[y]) & ~nan[:, None]
    negative = sign[x] ^ sign[y]
    nan |= np.isnan(scales[x_scale]) | np.isnan(scales[y_scale])
    factors = [scales[code] if name == "nvfp4" else None for code in (x_scale, y_scale)]
    found = []
    for at in range(len(x)):
        code = int(start[at])
        signs = {bool(sign) for sign in negative[at][infinite[at]]}
        if code & 0x7FFFFFFF >= 0x7F800000:
            signs |= {code >> 31 == 1}
            nan[at] |= code & 0x7FFFFF != 0
        if factors[0] is not None and not nan[at]:
            # Scales of nvfp4 may be zero or negative.
            one, other = (Fraction(float(factor[at])) for factor in factors)
            factor, exponent = one * other, 0
            negative[at] ^= np.signbit(factors[0][at]) ^ np.signbit(factors[1][at])
        elif not nan[at]:
            factor, exponent = Fraction(1), int(x_scale[at]) + int(y_scale[at]) - 254
        if nan[at] or len(signs) == 2:
            found.append(0x7FC00000)
            continue
        if signs:
            found.append(0xFF800000 if signs.pop() else 0x7F800000)
            continue
        scaled = factor * sums[at] / Fraction(unit) ** 2
        places = min(exponent - scaled.denominator.bit_length() + 1, QUANTUM)
        total = (scaled.numerator << exponent - scaled.denominator.bit_length() + 1 - places) + (
            start_of(code) << QUANTUM - places
        )
        if total == 0:
            below = code >> 31 and negative[at].all() and not start_of(code)
            found.append(1 << 31 if below else 0)
            continue
        found.append(binary32(abs(total), places) | (total < 0) << 31)
    return np.array(found, dtype=np.int64)


def batches(unit, seed=0):
    """Yield directed and random operands of a unit."""
    inputs, rng, corners = Ports.inputs_of(unit), np.random.default_rng(seed), corner_cases(unit)
    formats = [next(iter(unit.outputs.values()))]
    for start in range(0, COUNT, CHUNK):
        size = min(CHUNK, COUNT - start)
        codes = sampled(inputs, formats, size, rng, corners=corners)
        yield {name: np.broadcast_to(column, size).astype(np.int64) for name, column in codes.items()}


def stacked(unit, codes):
    """Return the operands in the order of the golden function."""
    return [
        np.stack([codes[port] for port in name], -1) if isinstance(name, list) else codes[name]
        for name in unit.spec.arguments(*VALUES, Role.STATE, Role.MODE, Role.RANDOM).values()
    ]


def tensors(columns):
    return [torch.from_numpy(np.ascontiguousarray(column)) for column in columns]


@pytest.mark.slow
@pytest.mark.sampled(2, 2)
@pytest.mark.parametrize("name", ELEMENTS)
def test_quantized_blocks_match_integers(name):
    unit = BlockQuantize(a="fp32", o=name)
    for codes in batches(unit):
        (x,) = stacked(unit, codes)
        elements, scale = golden.blockquantize(*tensors([x]), a="fp32", o=name)
        with np.errstate(invalid="ignore"):
            numbers = x.astype(np.uint32).view(np.float32).astype(np.float64)
        want, want_scale = quantized(name, numbers)
        np.testing.assert_array_equal(scale.numpy(), want_scale)
        np.testing.assert_array_equal(elements.numpy(), want)


@pytest.mark.slow
@pytest.mark.parametrize("name", ELEMENTS)
def test_dequantized_blocks_match_binary64(name):
    unit = BlockDequantize(a=name, o="fp32")
    for codes in batches(unit):
        x, scale = stacked(unit, codes)
        got = golden.blockdequantize(*tensors([x, scale]), a=name, o="fp32").numpy()
        # Products have at most 12 bits, so binary64 holds them, and binary32 rounds once.
        with np.errstate(over="ignore", invalid="ignore"):
            products = elements_of(name)[x] * scales_of(name)[scale][:, None]
            want = products.astype(np.float32).view(np.uint32).astype(np.int64)
        want = np.where(np.isnan(products), 0x7FC00000, want)
        np.testing.assert_array_equal(got, want)


@pytest.mark.slow
@pytest.mark.sampled(2, 2)
@pytest.mark.parametrize("name", ELEMENTS)
def test_block_dots_match_integers(name):
    length = BLOCKS[name].length
    unit = BlockDot(k=length, a=name, b=name, c="fp32")
    for codes in batches(unit):
        given = stacked(unit, codes)
        want = dots(name, *given)
        got = golden.blockdot(*tensors(given), a=name, b=name, o="fp32", c="fp32").numpy()
        np.testing.assert_array_equal(got, want)
