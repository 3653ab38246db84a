"""Blocks with the scales of tiles, against a quantizer in fractions."""

import bisect
import itertools
import math
from fractions import Fraction

import pytest
import torch

from halfulp import golden

FP4 = [Fraction(value) for value in (0, 0.5, 1, 1.5, 2, 3, 4, 6)]
FP8 = [
    Fraction(code & 7, 512) if code < 8 else Fraction(8 + code % 8, 8) * Fraction(2) ** (code // 8 - 7)
    for code in range(127)
]
"""Magnitudes of e2m1fn and e4m3fn by their codes."""

E4M3 = "block(e4m3fn,128,fp32,nearest)"


def nearest(value, magnitudes):
    """Return the code of the nearest magnitude, ties to the even code; the largest one for values beyond it."""
    above = bisect.bisect_left(magnitudes, value)
    near = range(max(above - 1, 0), min(above + 1, len(magnitudes)))
    return min(near, key=lambda code: (abs(magnitudes[code] - value), code & 1))


def in_binary32(value):
    """Round a positive fraction to 24 bits."""
    unit = Fraction(2) ** (math.frexp(float(value))[1] - 24)
    return round(value / unit) * unit


def tile_codes(tile, magnitudes, scale):
    """Return codes of the elements of a tile, and the sum of squared errors."""
    half = len(magnitudes) if len(magnitudes) == 8 else 128
    codes = [[nearest(abs(value) / scale, magnitudes) for value in row] for row in tile]
    pairs = zip(itertools.chain(*tile), itertools.chain(*codes), strict=True)
    error = sum((abs(value) - magnitudes[code] * scale) ** 2 for value, code in pairs)
    signs = [[half * (value < 0) for value in row] for row in tile]
    return [[c + s for c, s in zip(*rows, strict=True)] for rows in zip(codes, signs, strict=True)], error


def expected(x, rows, length, magnitudes, factor=Fraction(1), tops=(6,)):
    """Return codes of elements, and codes or numbers of scales, of tiles; the scale of least error."""
    values = [[Fraction(value) for value in row] for row in x.tolist()]
    elements = [[0] * len(values[0]) for _ in values]
    scales = [[0] * -(-len(values[0]) // length) for _ in values]
    for top, left in itertools.product(range(0, len(values), rows), range(0, len(values[0]), length)):
        tile = [row[left : left + length] for row in values[top : top + rows]]
        largest = max(abs(value) for row in tile for value in row)
        made = []
        for target in tops:
            if magnitudes is FP4:
                code = max(1, nearest(largest / target / factor, FP8))
                made.append((*tile_codes(tile, FP4, FP8[code] * factor), code))
            else:
                scale = in_binary32(largest / magnitudes[-1])
                made.append((*tile_codes(tile, magnitudes, scale), scale))
        codes, _, scale = min(made, key=lambda candidate: candidate[1])
        for place, row in enumerate(codes):
            elements[top + place][left : left + length] = row
            scales[top + place][left // length] = scale
    return elements, scales


def numbers(*shape, seed=1):
    """Return random numbers whose tiles have different ranges."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator) * torch.randn(*shape, generator=generator).exp()


@pytest.mark.parametrize("four_over_six", [False, True])
@pytest.mark.parametrize(("rows", "tensor"), [(1, None), (16, 0.75), (5, None)])
def test_tiles_of_nvfp4_match_fractions(rows, tensor, four_over_six):
    x = numbers(37, 40)
    made = golden.quantize_tiles(x, "nvfp4", rows=rows, tensor=tensor, four_over_six=four_over_six)
    factor = Fraction(1) if tensor is None else Fraction(tensor)
    elements, scales = expected(x, rows, 16, FP4, factor, (6, 4) if four_over_six else (6,))
    assert made.elements.tolist() == elements
    assert made.scale.tolist() == scales
    if not four_over_six and rows == 1:
        alone = golden.quantize_blocks(x, "nvfp4", tensor=tensor)
        assert [made.elements.tolist(), made.scale.tolist()] == [alone.elements.tolist(), alone.scale.tolist()]


def test_four_over_six_takes_the_smaller_error():
    x = torch.zeros(3, 16)
    # 4 is exact with the scale of 4 only, 5 has no error with either, and 6 and 3 are exact with that of 6.
    x[0, :3] = torch.tensor([4.0, 3.0, 2.0])
    x[1, :2] = torch.tensor([6.0, 3.0])
    x[2, :2] = torch.tensor([6.0, 4.5])
    made = golden.quantize_tiles(x, "nvfp4", four_over_six=True)
    # 1.0 is 0x38 in e4m3fn, 1.5 is 0x3C.
    assert made.scale.flatten().tolist() == [0x38, 0x38, 0x3C]
    assert golden.dequantize_blocks(made, "nvfp4").equal(x)
    plain = golden.quantize_tiles(x, "nvfp4")
    assert golden.dequantize_blocks(plain, "nvfp4")[2, 1] == 4


def test_tiles_of_fp8_match_fractions():
    x = numbers(130, 140)
    made = golden.quantize_tiles(x, E4M3, rows=128)
    elements, scales = expected(x, 128, 128, FP8)
    assert made.elements.tolist() == elements
    assert golden.decode(made.scale, "fp32").tolist() == [[float(scale) for scale in row] for row in scales]


@pytest.mark.parametrize("four_over_six", [False, True])
def test_square_tiles_have_the_codes_of_the_transpose(four_over_six):
    x = numbers(48, 64, seed=2)
    made = golden.quantize_tiles(x, "nvfp4", rows=16, four_over_six=four_over_six, tensor="max")
    turned = golden.quantize_tiles(x, "nvfp4", rows=16, four_over_six=four_over_six, tensor="max", dim=0)
    assert made.elements.equal(turned.elements)
    assert golden.dequantize_blocks(made, "nvfp4").equal(golden.dequantize_blocks(turned, "nvfp4", dim=0))


def test_tiles_are_operands_of_products():
    x, y = torch.randint(-6, 7, (4, 32)).float(), torch.randint(-6, 7, (32, 32)).float()
    a, b = golden.quantize_blocks(x, "nvfp4"), golden.quantize_tiles(y, "nvfp4", rows=16, dim=0)
    product = golden.decode(golden.gemm(a, b, "nvfp4*nvfp4+fp32.rn"), "fp32")
    # Sums of few bits, which no order of the sum rounds.
    wanted = golden.dequantize_blocks(a, "nvfp4").double() @ golden.dequantize_blocks(b, "nvfp4", dim=0).double()
    assert product.equal(wanted)


def test_tiles_take_random_words_and_special_numbers():
    x, words = numbers(4, 32, seed=3), torch.randint(0, 16, (4, 32))
    made = golden.quantize_tiles(x, "nvfp4", "sr4", random=words, dim=0)
    alone = golden.quantize_blocks(x, "nvfp4", "sr4", random=words, dim=0)
    assert [made.elements.tolist(), made.scale.tolist()] == [alone.elements.tolist(), alone.scale.tolist()]
    for special in (math.inf, math.nan):
        x[1, 3] = special
        made = golden.quantize_tiles(x, "nvfp4", rows=2, four_over_six=True)
        assert made.scale[:, 0].tolist()[:2] == [0x7F, 0x7F]
        assert 0x7F not in made.scale[2:].tolist()[0] + made.scale[:, 1].tolist()


def test_quantize_tiles_rejects_other_blocks():
    x = torch.ones(4, 32)
    for more, keyword in (
        ({"block": "mxfp4", "four_over_six": True}, "the rule nearest"),
        ({"block": "nvfp4", "rows": 0}, "rows must be 1 or more"),
        ({"block": "nvfp4", "dim": 2}, "dim is 2"),
        ({"block": "block(e2m1fn,1024,e4m3fn,nearest)"}, "up to 1023 elements"),
        ({"block": "nvfp4", "rounding": "sr4"}, "random"),
    ):
        with pytest.raises(ValueError, match=keyword):
            golden.quantize_tiles(x, **more)
    with pytest.raises(ValueError, match="not float64"):
        golden.quantize_tiles(x.double(), "nvfp4", four_over_six=True)
    with pytest.raises(ValueError, match="last two dimensions"):
        golden.quantize_tiles(x.unsqueeze(0), "nvfp4", dim=0)
    with pytest.raises(TypeError, match="real numbers"):
        golden.quantize_tiles(x.long(), "nvfp4")
