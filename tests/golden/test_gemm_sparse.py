"""Matrix products with structured sparsity against exact steps, dense products, and each other's kernels."""

import pytest
import torch

from halfulp import golden
from halfulp.golden import exact
from halfulp.golden.nn import Sparsity
from halfulp.hdl.specs import SparseMacSpec, Tiling
from tests.start_values import starts

MACS = [
    "sparsemac e4m3fn*e4m3fn+fp32",
    "sparsemac e5m2*e4m3+bf16.rd sparsity=1:3 step=2",
    "sparsemac e2m1fn*e3m2fn+e5m2.ru.sat sparsity=2:3",
    "sparsemac posit8*posit8+posit16.rz sparsity=1:4",
    "sparsemac fp16*e5m2+fp16.ro step=4",
    "sparsemac int8*int8+fp32 sparsity=4:8",
]
"""Descriptions with a kernel."""

OTHERS = [
    "sparsemac int8*int8+int32",
    "sparsemac bf16*bf16+fp32.rd sparsity=1:2",
    "sparsemac e4m3fn*e4m3fn+exact=bf16 sparsity=2:5",
    "sparsemac nf4*takum8+takum12.sr4",
    "sparsemac fp32*e4m3fn+fp32 sparsity=1:2 step=3",
]


def operands(spec, n, k, m, seed=0):
    """Return random codes and weights with any indices, a third of them zeros, and few infinite numbers or NaN."""
    generator = torch.Generator().manual_seed(seed)
    stored = -(-k // spec.group[1]) * spec.group[0]

    def codes(fmt, *shape):
        found = golden.encode(torch.randn(shape, generator=generator), fmt)
        zeros = torch.tensor([fmt.encode(0), fmt.encode(0) | (1 << (fmt.width - 1)) * fmt.has_negative_zero])
        found = torch.where(torch.rand(shape, generator=generator) < 0.3, zeros[torch.randint(2, shape)], found)
        anything = torch.randint(1 << fmt.width, shape, generator=generator)
        return torch.where(torch.rand(shape, generator=generator) < 0.02, anything, found)

    index = torch.randint(1 << spec.index_bits, (stored, m), generator=generator)
    return codes(spec.a, n, k), golden.SparseTensor(codes(spec.b, stored, m), index)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("text", [*MACS, *OTHERS])
def test_product_is_sequence_of_exact_steps(text):
    spec = SparseMacSpec.parse(text)
    n, m, k = 3, 4, 2 * spec.activations + 1
    a, b = operands(spec, n, k, m)
    (group_n, group_m), steps = spec.group, spec.steps(k)
    words = None
    if spec.rounding.bits:
        words = torch.randint(0, 1 << spec.rounding.bits, (n, m, steps), generator=torch.Generator().manual_seed(1))
    start = starts(spec, (n, m))
    found = golden.gemm(a, b, spec, start=start, random=words)
    pads = steps * spec.activations - k, steps * spec.k - len(b.values)
    for i in range(n):
        x = a[i].tolist() + [spec.a.encode(0)] * pads[0]
        for j in range(m):
            y, index = b.values[:, j].tolist() + [spec.b.encode(0)] * pads[1], b.indices[:, j].tolist() + [0] * pads[1]
            if spec.quire is not None:
                codes = (torch.tensor(one).reshape(steps, -1) for one in (x, y, index))
                load = torch.arange(steps) == 0
                begin = torch.full((steps,), int(start[i, j]))
                code = int(golden.sparsemac_sequence(*codes, begin, load, load & False, **spec.parameters)[-1])
            else:
                code = int(start[i, j])
                for step in range(steps):
                    of_a = slice(step * spec.activations, (step + 1) * spec.activations)
                    of_b = slice(step * spec.k, (step + 1) * spec.k)
                    word = 0 if words is None else int(words[i, j, step])
                    code = exact.sparsemac(x[of_a], y[of_b], index[of_b], code, random=word, **spec.parameters)
            assert int(found[i, j]) == code, (i, j)
    assert group_n < group_m


@pytest.mark.sampled(6)
@pytest.mark.parametrize("text", MACS)
def test_kernel_matches_torch(text, monkeypatch):
    spec = SparseMacSpec.parse(text)
    a, b = operands(spec, 9, 37, 21)
    a = torch.stack([a, a.flip(0)])
    start = starts(spec, (2, 9, 21))
    found = {}
    for level in ("torch", "native"):
        monkeypatch.setenv("HALFULP_KERNEL", level)
        found[level] = golden.gemm(a, b, spec, start=start)
    assert found["torch"].equal(found["native"])
    assert golden.explain(spec, 9, a.shape[-1], 21).engine == "dot products in lanes of floats"


@pytest.mark.slow
def test_kernel_of_random_words_matches_torch(monkeypatch):
    spec = SparseMacSpec.parse("sparsemac e5m2*e5m2+e6m5.sr10@lfsr16:7")
    a, b = operands(spec, 5, 40, 19)
    found = {}
    for level in ("torch", "native"):
        monkeypatch.setenv("HALFULP_KERNEL", level)
        found[level] = golden.gemm(a, b, spec), golden.gemm(a, b, spec, tiling=Tiling(2, 3, 2), first_step=5)
    assert all(map(torch.equal, *found.values()))
    assert not found["torch"][0].equal(found["torch"][1])


@pytest.mark.parametrize(("n", "m"), [(2, 4), (1, 3), (4, 8)])
def test_product_of_compressed_weights_is_dense_product(n, m):
    """Integer sums are exact, so that the order of steps does not matter."""
    generator = torch.Generator().manual_seed(n)
    x, w = (torch.randint(-128, 128, shape, generator=generator) for shape in ((5, 50), (50, 7)))
    w = torch.where(Sparsity(n, m).mask(w.double(), (0,)), w, 0)
    dense = golden.gemm(x & 255, w & 255, "int8*int8+int32")
    b = golden.compress(w & 255, "int8", f"{n}:{m}", dim=-2)
    assert b.values.shape == b.indices.shape == (-(-50 // m) * n, 7)
    assert dense.equal(golden.gemm(x & 255, b, f"sparsemac int8*int8+int32 sparsity={n}:{m}"))
    assert dense.equal(golden.gemm(x.double(), b, f"sparsemac int8*int8+int32 sparsity={n}:{m}"))


def test_compress_stores_weights_in_ascending_order_of_places():
    codes = torch.tensor([[0, 0x38, 0x80, 0x40, 0, 0, 0, 0x44], [0x38, 0, 0, 0, 0, 0, 0, 0]])
    values, index = golden.compress(codes, "e4m3fn")
    assert values.tolist() == [[0x38, 0x40, 0, 0x44], [0x38, 0, 0, 0]]
    assert index.tolist() == [[1, 3, 0, 3], [0, 1, 0, 1]]
    assert golden.compress(codes[:, :6], "e4m3fn", "2:4").values.shape == (2, 4)
    turned = golden.compress(codes.T, "e4m3fn", dim=0)
    assert turned.mT.values.equal(values)
    assert turned.mT.indices.equal(index)


@pytest.mark.parametrize(
    ("call", "kind", "word"),
    [
        (lambda: golden.compress(torch.tensor([1, 2, 3, 0]), "e4m3fn"), ValueError, "has 3 that are not zero"),
        (lambda: golden.compress(torch.tensor([1.0]), "e4m3fn"), TypeError, "codes"),
        (lambda: golden.compress(torch.tensor([1]), "e4m3fn", "3:2"), ValueError, "3:2"),
        (lambda: golden.compress(torch.tensor([1]), "e4m3fn", dim=1), ValueError, "dimensions"),
        (lambda: golden.compress(torch.tensor([1]), "e4m3fn", dim="k"), TypeError, "dim"),
    ],
)
def test_compress_rejects(call, kind, word):
    with pytest.raises(kind, match=word):
        call()


@pytest.mark.parametrize(
    ("change", "kind", "word"),
    [
        ({"b": torch.zeros(8, 3, dtype=torch.int64)}, TypeError, "compress"),
        ({"a": torch.zeros(2, 7, dtype=torch.int64)}, ValueError, "need 4 rows"),
        ({"a": torch.zeros(12, dtype=torch.int64)}, ValueError, "matrix product"),
        ({"random_product": torch.zeros(1)}, ValueError, "random_product"),
        ({"operand_saturate": True}, ValueError, "operand_saturate"),
        ({"mac": "e4m3fn*e4m3fn+fp32"}, TypeError, "sparsemac"),
        ({"mac": "sparsemac e4m3fn*e4m3fn+fp32 interleave=2"}, ValueError, "interleave"),
        ({"mac": "sparsemac e4m3fn*e4m3fn+fp32 flags"}, ValueError, "flags"),
    ],
)
def test_gemm_rejects_operands(change, kind, word):
    b = golden.SparseTensor(*torch.zeros(2, 6, 3, dtype=torch.int64))
    given = {"a": torch.zeros(2, 12, dtype=torch.int64), "b": b, "mac": "sparsemac e4m3fn*e4m3fn+fp32"}
    given |= change
    with pytest.raises(kind, match=word):
        golden.gemm(given.pop("a"), given.pop("b"), given.pop("mac"), **given)
