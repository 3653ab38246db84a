"""Arguments that golden operations refuse."""

import itertools
import re

import numpy as np
import pytest
import torch

from halfulp import golden
from halfulp.golden.check import broadcast_shape
from halfulp.hdl.formats import (
    E5M2,
    E6M5,
    EXACT,
    FP64,
    POSIT8,
    RZ,
    Float,
    stochastic,
)

MUL = {"a": E5M2, "b": E5M2, "o": E5M2}
MAC = {"a": E5M2, "b": E5M2, "acc": E6M5}
POSITS = {"a": POSIT8, "b": POSIT8, "o": POSIT8}
CODES = torch.arange(4)


@pytest.mark.parametrize(
    ("call", "error", "keyword"),
    [
        (
            lambda: golden.mul(CODES.float(), CODES, **MUL),
            TypeError,
            "integer",
        ),
        (lambda: golden.mul([1], CODES, **MUL), TypeError, "tensor"),
        (
            lambda: golden.mul(CODES + 256, CODES, **MUL),
            ValueError,
            "259",
        ),
        (lambda: golden.mul(CODES, CODES - 1, **MUL), ValueError, "-1"),
        (
            lambda: golden.mul(CODES, CODES, **MUL, random=CODES),
            ValueError,
            "random",
        ),
        (
            lambda: golden.mul(CODES, CODES, **MUL, rounding=stochastic(3)),
            ValueError,
            "random",
        ),
        (
            lambda: golden.mul(CODES, CODES, **MUL, rounding=stochastic(1), random=CODES),
            ValueError,
            "random",
        ),
        (lambda: golden.mul(CODES, CODES, **MUL, rounding=EXACT), ValueError, "e5m2"),
        (
            lambda: golden.mul(CODES, CODES, a=5, b=E5M2, o=E5M2),
            TypeError,
            "Format",
        ),
        (
            lambda: golden.mul(CODES, CODES, **MUL, rounding="up"),
            ValueError,
            "up",
        ),
        (
            lambda: golden.mac(CODES, CODES, CODES, a=E5M2, b=E5M2, acc=E6M5, product_rounding=RZ),
            ValueError,
            "product",
        ),
        (
            lambda: golden.mac_sequence(CODES, CODES, CODES[:3], CODES, CODES, a=E5M2, b=E5M2, acc=E6M5),
            ValueError,
            "one-dimensional",
        ),
        (lambda: golden.encode(CODES > 1, E5M2), TypeError, "numbers"),
        (
            lambda: golden.encode(torch.tensor([1, -(1 << 53)]), FP64),
            ValueError,
            "integers",
        ),
        (
            lambda: golden.decode(CODES, Float(11, 52, bias=0)),
            ValueError,
            "number",
        ),
        (lambda: golden.decode(CODES + 253, E5M2), ValueError, "codes"),
        (lambda: golden.mul(CODES, CODES, **MUL, saturate=1), TypeError, "saturate"),
        (lambda: golden.add(CODES, CODES, 2, **MUL), ValueError, "subtract"),
        (lambda: golden.add(CODES, CODES, 1.0, **MUL), TypeError, "subtract"),
        (
            lambda: golden.mul(CODES, CODES.to("meta"), **MUL),
            ValueError,
            "tensors",
        ),
        (
            lambda: golden.mac_sequence(CODES, CODES, CODES + 4093, CODES * 0, CODES * 0, **MAC),
            ValueError,
            "start",
        ),
        (
            lambda: golden.mac_sequence(CODES, CODES, CODES, CODES, CODES, **MAC),
            ValueError,
            "load",
        ),
        (
            lambda: golden.mac_sequence(*[CODES > 9] * 5, **MAC, rounding=stochastic(3), random=CODES[:3]),
            ValueError,
            "one-dimensional",
        ),
        (
            lambda: golden.mac_sequence(*[CODES[:0]] * 5, **MAC, rounding=EXACT),
            ValueError,
            "sum",
        ),
        (
            lambda: golden.dot(CODES[0], CODES[0], **POSITS),
            ValueError,
            "shape",
        ),
        (lambda: golden.dot(CODES, CODES[0], **POSITS), ValueError, "shape"),
        (
            lambda: golden.dot(CODES, CODES[:3], **POSITS),
            ValueError,
            "shape",
        ),
        (
            lambda: golden.dot(CODES, CODES, CODES[0], **POSITS),
            ValueError,
            "both",
        ),
        (
            lambda: golden.dot(CODES, CODES, c="int8", **POSITS),
            ValueError,
            "both",
        ),
        (
            lambda: golden.dot(CODES[:0], CODES[:0], **POSITS),
            ValueError,
            "k 0",
        ),
        (
            lambda: golden.dot(torch.zeros(2, 257).long(), torch.zeros(2, 257).long(), **POSITS),
            ValueError,
            "k 257",
        ),
        (
            lambda: golden.dot(CODES, CODES, order="best", **POSITS),
            ValueError,
            "best",
        ),
        (
            lambda: golden.dot(CODES, CODES, rounding="exact", **POSITS),
            ValueError,
            "products",
        ),
        (
            lambda: golden.dot(CODES, CODES, rounding="sr2", **POSITS),
            ValueError,
            "random",
        ),
        (
            lambda: golden.dot(CODES, CODES, rounding="sr2", order="sequential", **POSITS),
            ValueError,
            "random",
        ),
        (
            lambda: golden.dot(CODES, CODES, random=CODES[0], **POSITS),
            ValueError,
            "random",
        ),
        (lambda: golden.dot(CODES + 253, CODES, **POSITS), ValueError, "256"),
        (lambda: golden.dot(CODES, CODES, [1], c="int8", **POSITS), TypeError, "tensor"),
        (lambda: golden.dot(CODES, CODES, saturate=1, **POSITS), TypeError, "saturate"),
        (
            lambda: golden.dot(CODES, CODES.to("meta"), **POSITS),
            ValueError,
            "tensors",
        ),
        (
            lambda: golden.quire(CODES, CODES, CODES, 2, **POSITS),
            ValueError,
            "subtract",
        ),
        (
            lambda: golden.quire(CODES, CODES, CODES + 253, **POSITS),
            ValueError,
            "start",
        ),
        (
            lambda: golden.quire(CODES, CODES, CODES, carry=0, **POSITS),
            ValueError,
            "carry",
        ),
        (
            lambda: golden.quire(CODES, CODES, CODES, carry=7.0, **POSITS),
            TypeError,
            "carry",
        ),
        (
            lambda: golden.quire(CODES, CODES, CODES, rounding="sr9", **POSITS),
            ValueError,
            "random",
        ),
        (
            lambda: golden.quire_sequence(CODES, CODES, CODES, 0, CODES > 1, CODES > 1, **POSITS),
            ValueError,
            "one-dimensional",
        ),
        (
            lambda: golden.quire_sequence(*[CODES[:0]] * 6, carry=65, **POSITS),
            ValueError,
            "carry",
        ),
        (
            lambda: golden.quire_sequence(*[CODES[:0]] * 6, rounding="exact", **POSITS),
            ValueError,
            "exact",
        ),
        (
            lambda: golden.mac(CODES, CODES, CODES, a="posit8", b="int8", acc="posit16", o="posit8"),
            ValueError,
            "accumulator exact",
        ),
        (
            lambda: golden.accumulate(CODES, CODES, a="posit8", acc="posit16", carry=7),
            ValueError,
            "no carry",
        ),
        (
            lambda: golden.accumulate(CODES, CODES, a="posit8", acc="exakt"),
            ValueError,
            "exakt",
        ),
        (
            lambda: golden.accumulate_sequence(CODES, CODES, CODES > 1, CODES[:3] > 1, a="posit8", acc="exact"),
            ValueError,
            "one-dimensional",
        ),
        (
            lambda: golden.accumulate_sequence(*[CODES] * 2, *[CODES > 1] * 2, a="int8", acc="int32", rounding="sr1"),
            ValueError,
            "random",
        ),
        (
            lambda: golden.decode(CODES, "posit64"),
            ValueError,
            "number",
        ),
        (lambda: golden.decode(CODES, "fxp4.52"), ValueError, "number"),
        (lambda: golden.mul(CODES, CODES[:2], a="int8", b="int8"), ValueError, "broadcast: x (4,), y (2,)"),
        (lambda: golden.add(CODES, CODES, CODES[:3], a="int8", b="int8"), ValueError, "subtract (3,)"),
        (lambda: golden.mac(CODES, CODES, CODES[:3], a="int8", b="int8", acc="int32"), ValueError, "start (3,)"),
        (lambda: golden.convert(CODES, a="int8", o="int4", rounding="sr1", random=CODES[:3]), ValueError, "random"),
        (lambda: golden.quire(CODES, CODES[:3], CODES, a="posit8", b="posit8"), ValueError, "y (3,)"),
        (lambda: golden.encode([1.0], "e5m2", "port"), ValueError, "choose one mode"),
        (lambda: golden.quantize_blocks(torch.ones(4), "mxfp4", "port"), ValueError, "choose one mode"),
        (lambda: golden.compress(CODES, 3), TypeError, "format"),
        (lambda: golden.mac_sequence(*[CODES] * 3, 0, 0, a="int8", b="int8", acc="int32"), ValueError, "load"),
        (lambda: golden.encode(["a"], "e5m2"), TypeError, "not a list with an element of type str"),
        (
            lambda: golden.encode([[1.0, CODES[0]], (2, None)], "e5m2"),
            TypeError,
            "not a list with an element of type None",
        ),
        (lambda: golden.encode((2, 1 << 70), "e5m2"), TypeError, "not a tuple with an integer of more than 64 bits"),
        (lambda: golden.encode([1.0], "e5m2", "rn.sat"), ValueError, "give rounding='rn' and saturate='sat'"),
    ],
)
def test_golden_rejects_bad_arguments(call, error, keyword):
    with pytest.raises(error, match=re.escape(keyword)):
        call()


BLOCK, SCALE = torch.zeros(2, 32, dtype=torch.int64), torch.full((2,), 127)
MXFP4 = {"a": "mxfp4", "b": "mxfp4"}
BF16X2 = {"a": "bf16x2", "o": "bf16"}


@pytest.mark.parametrize(
    ("call", "shapes"),
    [
        (lambda words: golden.encode(torch.ones(4, 8), "e4m3fn", "sr8", words), "values (4, 8), random (3,)"),
        (lambda words: golden.encode(torch.ones(4, 8), "bf16x2", "sr8", words), "values (4, 8), random (3,)"),
        (lambda words: golden.quantize(torch.ones(4, 8), "e4m3fn", "sr8", words), "values (4, 8), random (3,)"),
        (lambda words: golden.split(CODES, a="fp32", o="bf16x2", rounding="sr8", random=words), "x (4,), random (3,)"),
        (
            lambda words: golden.join(CODES, **BF16X2, rounding="sr8", random=words.unsqueeze(-1)),
            "x (4,), random[..., 0] (3,)",
        ),
        (
            lambda words: golden.dotmac(BLOCK, BLOCK, CODES[0], **MAC, rounding="sr8", random=words),
            "operands (2,), start (), random (3,)",
        ),
        (
            lambda words: golden.blockmac(
                BLOCK, BLOCK, SCALE, SCALE, CODES[0], **MXFP4, acc="fp32", rounding="sr8", random=words
            ),
            "operands (2,), start (), random (3,)",
        ),
        (
            lambda words: golden.blockdot(BLOCK, BLOCK, SCALE, SCALE, **MXFP4, o="fp32", rounding="sr8", random=words),
            "x_scale (2,), y_scale (2,), random (3,)",
        ),
        (
            lambda words: golden.blockquantize(BLOCK, a="fp16", o="mxfp4", rounding="sr8", random=words),
            "x (2, 32), random (3,)",
        ),
    ],
)
def test_random_words_of_another_shape_are_refused(call, shapes):
    with pytest.raises(ValueError, match=re.escape(f"the shapes of the tensors of a call must broadcast: {shapes}")):
        call(CODES[:3])


def test_shapes_broadcast_as_in_numpy():
    sizes = [shape for length in range(3) for shape in itertools.product(range(4), repeat=length)]
    for shapes in [(), *itertools.product(sizes, repeat=2), *itertools.product(sizes[::2], repeat=3)]:
        given = map(torch.Size, shapes)
        try:
            want = np.broadcast_shapes(*shapes)
        except ValueError:
            with pytest.raises(RuntimeError):
                broadcast_shape(*given)
        else:
            assert broadcast_shape(*given) == want, shapes


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: golden.mul(x, x, "e4m3fn"), r'formats of mul are given by name: a="e4m3fn", b="e4m3fn"'),
        (lambda x: golden.add(x, x, E5M2), r'formats of add are given by name: a="e5m2", b="e5m2"'),
        (lambda x: golden.sqrt(x, "e5m2"), r'formats of sqrt are given by name: a="e5m2"'),
        (lambda x: golden.decode(x.to(torch.float8_e5m2), "e4m3fn"), "name the format e5m2"),
        (lambda x: golden.encode(x, "e4m3fn.sr8"), 'such as e4m3fn, and the rest apart: rounding="sr8"'),
        (lambda x: golden.encode(x, "e4m3fn.sat"), "such as e4m3fn, and the rest apart: saturate=True"),
        (lambda x: golden.encode(x, "bf16.rz.satfinite"), 'apart: rounding="rz", saturate="satfinite"'),
    ],
)
def test_error_names_the_right_call(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call(torch.arange(4))


LAYOUTS = {
    "sparse_coo": torch.Tensor.to_sparse,
    "sparse_csr": torch.Tensor.to_sparse_csr,
    "_mkldnn": lambda x: x.float().to_mkldnn(),
    "nested": lambda x: torch.nested.nested_tensor(list(x)),
    "jagged": lambda x: torch.nested.nested_tensor(list(x), layout=torch.jagged),
}

CALLS = {
    "gemm": lambda x: golden.gemm(x, torch.ones(8, 2), "bf16*bf16+fp32.rn"),
    "second operand": lambda x: golden.gemm(torch.ones(2, 4), x, "bf16*bf16+fp32.rn"),
    "blocks": lambda x: golden.gemm(x, torch.ones(8, 2), "mxfp4*mxfp4+fp32.rn"),
    "matrix unit": lambda x: golden.gemm(x, torch.ones(8, 2), "mma4 bf16*bf16+fp32.rn"),
    "encode": lambda x: golden.encode(x, "bf16"),
    "decode": lambda x: golden.decode(x, "bf16"),
    "dot": lambda x: golden.dot(x, x, a="bf16", b="bf16", o="bf16"),
    "quantize_blocks": lambda x: golden.quantize_blocks(x, "mxfp4"),
    "table": lambda x: golden.register_operator("sparse", x, "bf16"),
    "linear": golden.nn.convert(torch.nn.Linear(8, 2), "bf16*bf16+fp32.rn").model,
    "convolution": golden.nn.convert(torch.nn.Conv2d(1, 1, 1), "bf16*bf16+fp32.rn").model,
    "attention": lambda x: ATTENTION(x, x, x),
}

ATTENTION = golden.nn.convert(torch.nn.MultiheadAttention(8, 2), "bf16*bf16+fp32.rn").model


@pytest.mark.filterwarnings("ignore:Sparse", "ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", CALLS)
def test_tensors_without_strides_are_refused_with_the_remedy(name, layout):
    given = LAYOUTS[layout](torch.eye(4, 8))
    kind, dense = ("nested", "to_padded_tensor(") if given.is_nested else (f"of {given.layout}", "to_dense()")
    pattern = re.escape(f"is a tensor {kind}, and the golden model computes dense ones") + ".*" + re.escape(dense)
    with pytest.raises(TypeError, match=pattern):
        CALLS[name](given)
