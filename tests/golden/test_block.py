"""Units of blocks in the golden model against exact fractions."""

import itertools

import pytest
import torch

from halfulp import golden
from halfulp.golden import exact
from halfulp.hdl.formats import BLOCKS, Block, Rounding, parse
from tests.hdl.formats.test_block import TOYS

EVERY = [*TOYS, "block(nf4,4,bf16,nearest)", "block(posit6,3,e8m0fnu,ceil)", "block(e4m3,2,e5m6,floor)"]


def words_of(rounding, shape, seed=0):
    """Return random words, or None for a mode without."""
    if not rounding.bits:
        return None
    return torch.randint(0, 1 << rounding.bits, shape, generator=torch.Generator().manual_seed(seed))


def check_quantize(block, fmt, rounding, x):
    """Compare elements and scales of blocks with those in fractions."""
    words = words_of(rounding, x.shape)
    got = golden.blockquantize(x, a=fmt, o=block, rounding=rounding, random=words)
    for at, signed in enumerate(x.tolist()):
        codes = [code & (1 << fmt.width) - 1 for code in signed]
        random = None if words is None else words[at].tolist()
        want = exact.blockquantize(codes, a=fmt, o=block, rounding=rounding, random=random)
        assert (got.elements[at].tolist(), int(got.scale[at])) == want, (codes, random)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("text", TOYS)
@pytest.mark.parametrize("mode", ["rn", "ru", "ro", "sr3"])
def test_toy_blocks_of_every_pair_of_numbers(text, mode):
    block, fmt = Block.parse(text), parse("e3m2")
    codes = torch.tensor(list(itertools.product(range(64), repeat=2)))
    check_quantize(block, fmt, Rounding.parse(mode), codes[(codes[:, 0] + 7 * codes[:, 1]) % 5 == 0])


@pytest.mark.sampled(6)
@pytest.mark.parametrize("text", [*BLOCKS, *EVERY])
@pytest.mark.parametrize("source", ["fp32", "bf16", "fp64", "posit16", "fxp8.8"])
def test_quantized_blocks_match_exact(text, source):
    block, fmt = Block.parse(text), parse(source)
    generator = torch.Generator().manual_seed(len(text))
    reals = torch.randn(40, block.length, generator=generator, dtype=torch.float64)
    reals *= torch.exp2(torch.randint(-8, 8, reals.shape, generator=generator).double())
    reals *= torch.exp2(
        torch.randint(-140, 140, (40, 1), generator=generator).double() * (torch.arange(40) % 4 == 0)[:, None]
    )
    reals[0] = 0
    reals[1] = -0.0
    reals[2, -1], reals[3, 0] = float("nan"), float("inf")
    reals[4] = 7.5
    codes = golden.encode(reals, fmt)
    for mode in ("rn", "rd", "sr5"):
        check_quantize(block, fmt, Rounding.parse(mode), codes)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("text", [*BLOCKS, *EVERY])
def test_dequantized_blocks_match_exact(text):
    block = Block.parse(text)
    generator = torch.Generator().manual_seed(1)
    x = torch.randint(0, 1 << block.element.width, (30, block.length), generator=generator)
    scale = torch.randint(0, 1 << block.scale.width, (30,), generator=generator)
    for fmt, mode in (("bf16", "rn"), ("e4m3fn", "ru"), ("fp32", "sr3")):
        rounding = Rounding.parse(mode)
        words = words_of(rounding, x.shape)
        got = golden.blockdequantize(x, scale, a=block, o=fmt, rounding=rounding, random=words)
        for at in range(30):
            random = None if words is None else words[at].tolist()
            want = exact.blockdequantize(
                x[at].tolist(), int(scale[at]), a=block, o=parse(fmt), rounding=rounding, random=random
            )
            assert got[at].tolist() == want


def operands(a, b, k, count, seed=2):
    """Return random elements and scales, some of them near each other, so that sums cancel and round."""
    generator = torch.Generator().manual_seed(seed)
    for block in (a, b):
        yield torch.randint(0, 1 << block.element.width, (count, k), generator=generator)
        middle = block.scale.encode(1)
        scale = (middle + torch.randint(-3, 4, (count,), generator=generator)).clamp(0, (1 << block.scale.width) - 1)
        scale[::7] = torch.randint(0, 1 << block.scale.width, scale[::7].shape, generator=generator)
        yield scale


PAIRS = [
    *((name, name) for name in BLOCKS),
    ("mxfp8_e4m3", "mxfp8_e5m2"),
    (TOYS[0], TOYS[1]),
    (TOYS[4], TOYS[2]),
    (TOYS[5], TOYS[5]),
]


@pytest.mark.sampled(8)
@pytest.mark.parametrize(("a", "b"), PAIRS)
@pytest.mark.parametrize(("o", "mode"), [("fp32", "rn"), ("e4m3fn", "sr4"), ("posit16", "rd"), ("fxp8.8", "rz")])
def test_dots_and_macs_match_exact(a, b, o, mode):
    a, b, o, rounding = Block.parse(a), Block.parse(b), parse(o), Rounding.parse(mode)
    k, count = a.length // 2, 24
    x, x_scale, y, y_scale = operands(a, b, k, count)
    start = torch.randint(0, 1 << o.width, (count,), generator=torch.Generator().manual_seed(3))
    start[:8] = 0
    words = words_of(rounding, (count,))
    given = {"a": a, "b": b, "rounding": rounding}
    dot = golden.blockdot(x, y, x_scale, y_scale, start, o=o, c=o, random=words, **given)
    bare = golden.blockdot(x, y, x_scale, y_scale, o=o, random=words, **given)
    mac = golden.blockmac(x, y, x_scale, y_scale, start, acc=o, step=k, random=words, **given)
    for at in range(count):
        word = 0 if words is None else int(words[at])
        one = (x[at].tolist(), y[at].tolist(), int(x_scale[at]), int(y_scale[at]))
        assert int(dot[at]) == exact.blockdot(*one, int(start[at]), o=o, c=o, random=word, **given)
        assert int(bare[at]) == exact.blockdot(*one, o=o, random=word, **given)
        assert int(mac[at]) == exact.blockmac(*one, int(start[at]), acc=o, step=k, random=word, **given)


def test_exact_accumulator_and_sequence_match_single_steps():
    block = Block.parse(TOYS[0])
    x, x_scale, y, y_scale = operands(block, block, 2, 20)
    start = torch.randint(0, 0x4700, (20,), generator=torch.Generator().manual_seed(5))
    for acc, o in (("exact", "fp16"), ("fp16", "fp16")):
        given = (
            {"a": block, "b": block, "acc": acc, "o": parse(o)}
            if acc == "exact"
            else {"a": block, "b": block, "acc": parse(o)}
        )
        mac = golden.blockmac(x, y, x_scale, y_scale, start, **given)
        for at in range(20):
            one = (x[at].tolist(), y[at].tolist(), int(x_scale[at]), int(y_scale[at]), int(start[at]))
            assert int(mac[at]) == exact.blockmac(*one, **given)
        load = torch.ones(20, dtype=torch.bool)
        clear = torch.zeros_like(load)
        assert golden.blockmac_sequence(x, y, x_scale, y_scale, start, load, clear, **given).equal(mac)


def test_units_of_blocks_refuse_wrong_shapes():
    x, scale = torch.zeros(3, 32, dtype=torch.int64), torch.zeros(3, dtype=torch.int64)
    for call in (
        lambda: golden.blockquantize(x[:, :31], a="fp32", o="mxfp4"),
        lambda: golden.blockdequantize(x[:, :31], scale, a="mxfp4", o="fp32"),
        lambda: golden.blockdot(x, x[:, :16], scale, scale, a="mxfp4", b="mxfp4"),
        lambda: golden.blockdot(x, x, scale, scale, scale, a="mxfp4", b="mxfp4"),
        lambda: golden.blockmac(x[:, :16], x[:, :16], scale, scale, scale, a="mxfp4", b="mxfp4", acc="fp32"),
        lambda: golden.blockquantize(x, a="fp32", o="mxfp4", rounding="sr4"),
    ):
        with pytest.raises(ValueError, match=r"dimension|divide|start|random"):
            call()
