"""Matrix products of blocks against sequences of steps and exact fractions."""

from fractions import Fraction

import pytest
import torch

from halfulp import golden
from halfulp.golden import exact, kernels
from halfulp.golden.kernels import fold
from halfulp.golden.products.steps import is_single
from halfulp.hdl.formats import BLOCKS, Float, Rounding
from halfulp.hdl.formats.source import Stream
from halfulp.hdl.specs import BlockMacSpec, Tiling
from tests.start_values import starts

MACS = [
    *(f"{name}*{name}+fp32" for name in BLOCKS),
    "mxfp8_e4m3*mxfp8_e5m2+bf16.ru.sat",
    "mxfp4*mxfp4+posit16.rd step=4",
    "nvfp4*nvfp4+e6m5.sr10@lfsr16 step=8",
    "mxfp6_e3m2*mxfp6_e3m2+fp16.ro",
    "msfp12*msfp12+fp32.rd",
    "block(fp16,4,bf16,floor)*block(e4m3,4,e5m2,ceil)+fp32.rz",
]
"""Descriptions with a kernel."""

OTHERS = [
    "mxint8*mxint8+exact",
    "mxfp4*mxfp4+fxp12.4.rz",
    "block(posit8,2,e8m0fnu,ceil)*block(nf4,2,bf16,floor)+fp32.sr4",
]


def operands(spec, n, k, m, seed=0):
    """Return random codes in blocks: zeros, far and special scales, rows that cancel, and few infinite elements."""
    generator = torch.Generator().manual_seed(seed)
    found = []
    for block, shape, dim in ((spec.a, [n, k], -1), (spec.b, [k, m], -2)):
        elements = torch.randint(0, 1 << block.element.width, shape, generator=generator)
        special = torch.tensor(
            [isinstance(block.element.decode(code), float) for code in range(1 << block.element.width)]
        )
        chance = torch.rand(shape, generator=generator)
        elements[(chance < 0.3) | (special[elements] & (chance < 0.99))] = block.element.encode(0)
        shape[dim] = -(-k // block.length)
        scale = block.scale.encode(1) + torch.randint(-3, 4, shape, generator=generator)
        far = torch.randint(0, 1 << block.scale.width, shape, generator=generator)
        scale = torch.where(torch.rand(shape, generator=generator) < 0.1, far, scale)
        if isinstance(block.scale, Float) and block.scale.has_inf:
            scale = torch.where(scale == block.scale.infinity(False), 0, scale)
            scale = torch.where(scale == block.scale.infinity(True), 0, scale)
        found.append(golden.BlockTensor(elements.to(torch.int32), scale))
    return found


@pytest.mark.sampled(5)
@pytest.mark.parametrize("text", [*MACS, *OTHERS])
def test_product_is_sequence_of_steps(text, monkeypatch):
    monkeypatch.setenv("HALFULP_KERNEL", "torch")
    spec = BlockMacSpec.parse(text)
    length = spec.a.length
    k = 2 * length - 1
    a, b = operands(spec, 3, k, 2)
    steps = spec.steps(k)
    words = None
    if spec.rounding.bits:
        words = torch.randint(0, 1 << spec.rounding.bits, (3, 2, steps), generator=torch.Generator().manual_seed(1))
        spec = BlockMacSpec.parse(text.split("@")[0] + (" step=8" if "@" in text else ""))
    start = starts(spec, (3, 2))
    found = golden.gemm(a, b, spec, start=start, random=words)
    parameters = {name: value for name, value in spec.parameters.items() if name != "random"}
    zeros = [block.element.encode(0) for block in (spec.a, spec.b)]
    for i in range(3):
        for j in range(2):
            x = [*a.elements[i].tolist(), zeros[0]]
            y = [*b.elements[:, j].tolist(), zeros[1]]
            code = int(start[i, j])
            if spec.quire is None:
                for step in range(steps):
                    place = slice(step * spec.k, (step + 1) * spec.k)
                    scales = (int(a.scale[i, step * spec.k // length]), int(b.scale[step * spec.k // length, j]))
                    word = 0 if words is None else int(words[i, j, step])
                    code = exact.blockmac(x[place], y[place], *scales, code, random=word, **parameters)
            else:
                one = (
                    torch.tensor(x).reshape(steps, -1),
                    torch.tensor(y).reshape(steps, -1),
                    a.scale[i],
                    b.scale[:, j],
                )
                load = torch.tensor([True] + [False] * (steps - 1))
                begin = torch.full((steps,), code)
                code = int(golden.blockmac_sequence(*one, begin, load, load & False, **parameters)[-1])
            assert int(found[i, j]) == code, (i, j)


@pytest.mark.sampled(16, 3)
@pytest.mark.parametrize("text", MACS)
def test_kernel_matches_torch(text, monkeypatch):
    spec = BlockMacSpec.parse(text)
    a, b = operands(spec, 9, 3 * spec.a.length + 6, 21)
    a.elements[3] = b.elements[:, 2]
    start = starts(spec, (9, 21))
    found = {}
    for level in ("torch", "native"):
        monkeypatch.setenv("HALFULP_KERNEL", level)
        found[level] = golden.gemm(a, b, spec, start=start)
    lane = fold.lane_of(spec, kernels.Words(), is_single(spec))
    # Sums whose scale may be infinite have no kernel.
    assert (lane.source is None) == (spec.a.scale.has_inf or spec.b.scale.has_inf)
    assert found["torch"].equal(found["native"])


def test_wide_dot_products_and_batches_match_torch(monkeypatch):
    # Sums of products of e5m2 may exceed the bits of binary64.
    spec = BlockMacSpec.parse("mxfp8_e5m2*mxfp8_e5m2+fp32")
    a, b = operands(spec, 6, 64, 5, seed=7)
    # 57344 * 57344 + 2^-32 - 57344 * 57344
    a.elements[0], b.elements[:, 0], a.scale[0], b.scale[:, 0] = 0, 0, 127, 127
    a.elements[0, :3] = torch.tensor([0x7B, 1, 0xFB])
    b.elements[:3, 0] = torch.tensor([0x7B, 1, 0x7B])
    a = golden.BlockTensor(a.elements.reshape(2, 3, 64), a.scale.reshape(2, 3, 2))
    found = {}
    for level in ("torch", "native"):
        monkeypatch.setenv("HALFULP_KERNEL", level)
        found[level] = golden.gemm(a, b, spec)
        assert int(found[level][0, 0, 0]) == spec.o.encode(Fraction(1, 1 << 32))
        assert golden.gemm(golden.BlockTensor(a.elements[1], a.scale[1]), b, spec).equal(found[level][1])
    assert found["torch"].equal(found["native"])


def test_tiled_product_takes_words_of_one_source_in_order():
    """A tile of one multiply-accumulate computes the products of a batch one after the other, row by row."""
    spec = BlockMacSpec.parse("mxfp4*mxfp4+e6m5.sr10@lfsr16 step=8")
    (a, b), (more_a, _) = (operands(spec, 3, 70, 2, seed=seed) for seed in (1, 2))
    a = golden.BlockTensor(*(torch.stack(pair) for pair in zip(a[:2], more_a[:2], strict=True)))
    steps = spec.steps(70)
    words = golden.random.of_stream(Stream(spec.random, 9), 7 + 12 * steps, 10)[7:].reshape(2, 3, 2, steps)
    wanted = golden.gemm(a, b, "mxfp4*mxfp4+e6m5.sr10 step=8", random=words)
    assert torch.equal(golden.gemm(a, b, spec, tiling=Tiling(1, 1), first_step=7, seed=9), wanted)


def test_real_operands_and_start_split_a_sum():
    x, y = torch.randn(4, 70), torch.randn(70, 3)
    mac = "mxfp8_e4m3*mxfp8_e4m3+fp32.rn"
    a, b = golden.quantize_blocks(x, "mxfp8_e4m3"), golden.quantize_blocks(y, "mxfp8_e4m3", dim=-2)
    want = golden.gemm(a, b, mac)
    assert golden.gemm(x, y, mac).equal(want)
    assert golden.gemm(x[:, 64:], y[64:], mac, start=golden.gemm(x[:, :64], y[:64], mac)).equal(want)
    near = golden.dequantize_blocks(a, "mxfp8_e4m3") @ golden.dequantize_blocks(b, "mxfp8_e4m3", dim=-2)
    assert torch.allclose(golden.decode(want, "fp32").float(), near, rtol=1e-5, atol=1e-5)


def test_tensor_scales_multiply_finished_sums():
    x, y = torch.randn(3, 32), torch.randn(32, 2)
    a, b = golden.quantize_blocks(x, "nvfp4", tensor="max"), golden.quantize_blocks(y, "nvfp4", dim=0, tensor=0.375)
    found = golden.gemm(a, b, "nvfp4*nvfp4+bf16.rz")
    sums = golden.gemm(a._replace(tensor=None), b._replace(tensor=None), "nvfp4*nvfp4+bf16.rz")
    for code, of_sum in zip(found.flatten().tolist(), sums.flatten().tolist(), strict=True):
        bf16 = BlockMacSpec.parse("nvfp4*nvfp4+bf16").o
        product = bf16.decode(of_sum) * Fraction(float(a.tensor)) * Fraction(3, 8)
        assert code == bf16.encode(product, Rounding.parse("rn"))


@pytest.mark.parametrize(
    ("change", "error", "word"),
    [
        ({"a": torch.zeros(2, 32, dtype=torch.int64)}, TypeError, "BlockTensor"),
        ({"mac": "e2m1fn*e2m1fn+fp32"}, TypeError, "BlockTensor"),
        ({"mac": "mxfp4*mxfp4+fp32 interleave=2"}, ValueError, "interleave"),
        ({"mac": "nvfp4*nvfp4+fp32"}, ValueError, "scales of a"),
        ({"random_product": torch.zeros(1, dtype=torch.int64)}, ValueError, "random_product"),
        ({"seed": 3}, ValueError, "seed"),
        ({"operand_saturate": True}, ValueError, "operand_saturate"),
        ({"b": torch.randn(31, 2)}, ValueError, "shape"),
    ],
)
def test_products_of_blocks_refuse(change, error, word):
    x = golden.quantize_blocks(torch.randn(2, 32), "mxfp4")
    given = {"a": x, "b": x.mT, "mac": "mxfp4*mxfp4+fp32"} | change
    with pytest.raises(error, match=word):
        golden.gemm(given.pop("a"), given.pop("b"), given.pop("mac"), **given)
