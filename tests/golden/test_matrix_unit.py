"""Matrix units: steps against fractions, products as chains of steps, texts, and policies."""

import re
from pathlib import Path

import pytest
import torch

from halfulp import golden
from halfulp.golden import emulate, exact_matrix_unit, matrix_unit, nn
from halfulp.hdl.specs.mma import MATRIX_UNITS, UNITS_BY_NAME, MmaSpec
from tests.matrix_unit_operands import codes_of, scales_of

PAGE = Path(__file__).parents[2] / "docs/matrix_units.md"

UNITS = {str(spec): spec for spec in MATRIX_UNITS.values()}
"""Different units by text."""

SAMPLES = ("h100.wgmma.e4m3", "v100.mma.fp16.fp16", "b200.tcgen05.mxfp4", "mi100.mfma.bf16", "mi250.mfma.fp16")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ["normal", "wide", "subnormal", "zeros", "special"])
@pytest.mark.parametrize("text", UNITS)
def test_step_matches_fractions(text, kind):
    spec, generator, count = UNITS[text], torch.Generator().manual_seed(9), 12
    x, y = (codes_of(fmt, (count, spec.k), kind, generator) for fmt in spec.elements)
    start, scales = codes_of(spec.o, (count,), kind, generator), []
    if spec.a.shares_scale:
        scales = [scales_of(block, (count, spec.k // block.length), kind, generator) for block in (spec.a, spec.b)]
    codes = matrix_unit.step(spec, x, y, start, *scales)
    for at in range(count):
        operands = [part[at].tolist() for part in (x, y, start, *scales)]
        assert exact_matrix_unit.step(spec, *operands) == int(codes[at])


OWN = (
    "mma24 fp16*fp16+fp32.rz order=aligned30 zero=-140",
    "mma17 e5m2*e4m3fn+fp32.rz order=aligned25 zero=-133",
    "mma3 e5m2*e4m3fn+fp16.rn order=aligned7 zero=-9",
    "mma5 tf32*bf16+fp32.rn order=aligned40 zero=100 through=e8m9",
    "mma1 fp16*bf16+fp32.rz order=aligned2 zero=-500",
    "mma2 e2m1*e2m1+e3m2.rz order=aligned3 zero=-2",
    "mma3 e5m2*e4m3fn+bf16.rn order=aligned9 zero=-30",
    "mma2 e4m3*e2m3fn+e5m4.rz order=aligned6 zero=-40 through=e5m2",
    "mma7 fp16*e3m2fn+fp16.rn order=exact",
    "mma6 fp16*fp16+fp32.rn order=exact",
    "mma6 bf16*fp16+fp32.rn order=pairwise2",
    "mma9 fp16*e5m10+fp32.rn order=staged11",
    "mma10 bf16*bf16+fp32.rn order=staged31 halves=2",
    "mma4 e2m1*bf16+bf16.rn order=pairwise4",
    "mma2 bf16*bf16+bf16.rn order=staged9 halves=2",
    "mma3 e4m3*e3m1+fp16.rn order=staged20",
    "mma3 block(e4m3fn,3,e8m0fnu,floor)*block(e5m2,3,e8m0fnu,floor)+fp32.rz order=aligned25 zero=-133",
    "mma32 block(e3m2fn,16,e4m3fn,nearest)*block(e2m1fn,32,e8m0fnu,floor)+fp32.rn order=aligned35 zero=-50 group=8",
)
"""Descriptions of no device, with other formats, sizes and numbers of bits."""


@pytest.mark.sampled(12, 4)
@pytest.mark.parametrize("kind", ["normal", "wide", "subnormal", "zeros", "special"])
@pytest.mark.parametrize("text", OWN)
def test_any_description_matches_fractions_in_torch_and_kernel(text, kind, monkeypatch):
    monkeypatch.setenv("HALFULP_KERNEL", "native")
    spec, generator, count = MmaSpec.parse(text), torch.Generator().manual_seed(3), 60
    x, y = (codes_of(fmt, (count, spec.k), kind, generator) for fmt in spec.elements)
    start, scales = codes_of(spec.o, (count,), kind, generator), []
    if kind == "zeros":
        x[::2], start[::4] = 0, 0
    if spec.a.shares_scale:
        scales = [scales_of(block, (count, spec.k // block.length), kind, generator) for block in (spec.a, spec.b)]
        if kind == "zeros":
            scales[1][:] = 1 << 7
    codes = matrix_unit.step(spec, x, y, start, *scales)
    sides = ([part.unsqueeze(1) for part in (side, *scales[at : at + 1])] for at, side in enumerate((x, y)))
    assert torch.equal(matrix_unit._chain(spec, *sides, start.reshape(-1, 1, 1)).reshape(-1), codes)
    for at in range(count):
        operands = [part[at].tolist() for part in (x, y, start, *scales)]
        assert exact_matrix_unit.step(spec, *operands) == int(codes[at])


@pytest.mark.parametrize("small", [2.0**-9 * (1 + 2.0**-10), 2.0**-10 * (1 + 2.0**-9), 2.0**-14])
def test_exact_sums_keep_small_products_beside_large_ones(small, monkeypatch):
    """A product has bits below the last place of binary64 beside one that the accumulator cancels."""
    monkeypatch.setenv("HALFULP_KERNEL", "native")
    operands = torch.tensor([[2.0**15, small, 0, 0]], dtype=torch.float64)
    start = golden.encode(torch.tensor([[-(2.0**30)]]), "fp32")
    made = golden.gemm(operands, operands.mT, "mi100.mfma.fp16", start=start)
    assert int(made) == int(golden.encode(torch.tensor(small * small, dtype=torch.float64), "fp32"))


def test_step_has_the_published_result():
    """Values of the definition, computed by hand: with 13 bits, 2^-14 is lost beside 1, and kept beside 2^-1."""
    spec = MmaSpec.parse("h100.wgmma.e4m3")
    small, half, one = (golden.encode(torch.tensor(x), "e4m3fn") for x in (2.0**-7, 0.5, 1.0))
    x, y = torch.zeros(32, dtype=torch.int64), torch.zeros(32, dtype=torch.int64)
    x[0] = y[0] = small
    start = torch.tensor(0)
    for first, wanted in ((one, 1.0), (half, 0.5 + 2.0**-14)):
        x[1], y[1] = first, one
        assert float(golden.decode(matrix_unit.step(spec, x, y, start), "fp32")) == wanted


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("kernel", ["native", "torch"])
def test_product_is_a_chain_of_steps(name, kernel, monkeypatch):
    monkeypatch.setenv("HALFULP_KERNEL", kernel)
    spec = MATRIX_UNITS[name]
    torch.manual_seed(1)
    a, b = torch.randn(2, 5, 70), torch.randn(70, 19)
    start = golden.encode(torch.randn(2, 5, 19), spec.o)
    made = golden.gemm(a, b, name, start=start)
    x, y = matrix_unit.checked(spec, a, b, golden.nn.Cast().rounding, False)
    left, right = matrix_unit._operand(spec, x, -1), matrix_unit._operand(spec, y, -2)
    length = left[0].shape[-1]
    for batch, row, column in ((0, 0, 0), (1, 4, 18), (1, 2, 7)):
        acc = start[batch, row, column]
        for at in range(0, length, spec.k):
            piece = slice(at, at + spec.k)
            rows = [matrix_unit._taken(part[batch, row], piece, length) for part in left]
            columns = [matrix_unit._taken(part[:, column], piece, length) for part in right]
            scales = (rows[1], columns[1]) if len(rows) == 2 else ()
            acc = matrix_unit.step(spec, rows[0], columns[0], acc, *scales)
        assert made[batch, row, column] == acc
    assert golden.gemm(a[:, :, :0], b[:0], "h100.mma.fp16").eq(0).all()


def test_parts_of_sums_are_added_in_software():
    torch.manual_seed(1)
    a, b = torch.randn(6, 300), torch.randn(300, 4)
    made = golden.gemm(a, b, "h100.wgmma: e4m3fn*e5m2+fp32 every=128")
    total = torch.zeros(6, 4)
    for first in range(0, 300, 128):
        part = golden.gemm(a[:, first : first + 128], b[first : first + 128], "h100.wgmma: e4m3fn*e5m2+fp32")
        total = total + golden.decode(part, "fp32").float()
    assert torch.equal(golden.decode(made, "fp32").float(), total)


def test_products_do_not_depend_on_the_number_of_threads():
    torch.manual_seed(1)
    a, b, threads = torch.randn(40, 128), torch.randn(128, 50), torch.get_num_threads()
    try:
        results = []
        for count in (1, 2, 5):
            torch.set_num_threads(count)
            results.append(golden.gemm(a, b, "b200.tcgen05.nvfp4"))
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(result, results[0]) for result in results)


@pytest.mark.parametrize("name", MATRIX_UNITS)
def test_texts_are_parsed(name):
    spec = MATRIX_UNITS[name]
    assert MmaSpec.parse(str(spec)) == MmaSpec.parse(name) == spec
    unit, a, b = ".".join(name.split(".")[:2]), spec.a, spec.b
    assert unit in UNITS_BY_NAME
    assert MmaSpec.parse(f"{unit}: {a}*{b}+{spec.o}") == spec


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("h100.wgmma.fp64", "invalid matrix unit"),
        ("h200.wgmma.e4m3", "did you mean h100.wgmma.e4m3"),
        ("h200.wgmma: e4m3fn*e4m3fn+fp32", "unknown matrix unit h200.wgmma"),
        ("h200.wgmma: e4m3fn*e4m3fn+fp32", "no unit|unknown|expected"),
        ("h100.wgmma: e4m3fn*fp16+fp32", "h100.wgmma has no e4m3fn"),
        ("h100.wgmma: bf16*bf16+fp16", "has no bf16"),
        ("h100.wgmma.e4m3 every=100", "multiple of the step of 32"),
        ("h100.wgmma.e4m3 zero=1", "takes every=N, rows=N and columns=N only"),
        ("mma4 fp16*fp16+fp32.rn order=aligned23", "needs zero"),
        ("mma4 fp16*fp16+fp32.rn order=exact zero=3", "takes no zero"),
        ("mma4 fp16*fp16+fp32.ra order=exact", "rn or rz"),
        ("mma4 fp16*fp16+e4m3fn.rn order=exact", "float with infinities"),
        ("mma4 fp16*fp16+fp32.rn.sat order=exact", "overflow"),
        ("mma4 fp16*fp16+fp32.rz order=exact", "rounds to nearest"),
        ("mma6 fp16*fp16+fp32.rn order=pairwise4", "divide the step"),
        ("mma4 mxfp4*fp16+fp32.rz order=aligned23 zero=-1", "both operands"),
        ("mma4 fp16*fp16+fp32.rz order=aligned23 zero=-1 group=2", "needs operands in blocks"),
        ("mma4 fp16*fp16+fp32.rz order=sorted23", "unknown order"),
        ("mma4 fp16*fp16+fp32.rz order=aligned23 zero=-1 foo=2", "no option"),
        ("mma4 fp16*fp16+fp32.rz order=aligned23 zero=-1 through=e5m3", "its exponent bits and fewer"),
        ("mma4 e11m7*fp16+fp32.rz order=aligned23 zero=-1", "range of fp32"),
        ("mma4 fp16*fp16+fp32.rn order=staged35", "2 to 31"),
        ("mma4 fp16*fp16+fp32.rz order=aligned23 zero=-600", "-500 to 200"),
        ("mma16 nvfp4*nvfp4+fp32.rz order=aligned25 zero=-133", "scale such as e8m0fnu"),
        ("mma32 mxfp4*mxfp4+fp32.rn order=exact", "aligned sums, not exact"),
        ("mma64 mxfp8_e5m2*mxfp8_e5m2+fp32.rz order=aligned25 zero=-1 group=16", "too many bits"),
        ("mma4 posit8*fp16+fp32.rz order=aligned23 zero=-1", "must be a float"),
    ],
)
def test_invalid_texts_are_refused(text, message):
    with pytest.raises((TypeError, ValueError), match=message):
        MmaSpec.parse(text)


def test_products_of_matrices_refuse_rows_of_a_unit():
    for use in (lambda text: golden.gemm(torch.ones(4, 4), torch.ones(4, 4), text), golden.nn.Policy.parse):
        with pytest.raises(ValueError, match="rows=2 and columns=1 are of a unit in RTL"):
            use("v100.mma.fp16 rows=2")


def test_parameters_of_other_products_are_refused():
    a = torch.ones(4, 4)
    for name, value in (("source", "philox"), ("seed", 3), ("first_step", 2), ("multiplier", "own")):
        with pytest.raises(ValueError, match=f"{name} has no effect"):
            golden.gemm(a, a, "h100.mma.fp16", **{name: value})
    with pytest.raises(ValueError, match="codes of 16 bits"):
        golden.gemm(torch.full((2, 2), 1 << 20), torch.zeros(2, 2, dtype=torch.int64), "h100.mma.fp16")
    with pytest.raises(ValueError, match="describes the unit mma, expected mac"):
        golden.explain("h100.mma.fp16", 2, 3, 4)
    with pytest.raises(ValueError, match="no device rtl has matrix units"):
        nn.Policy.parse("h100.mma.fp16, device=rtl")


@pytest.mark.parametrize("policy", ["h100.wgmma.e4m3", "b200.tcgen05.mxfp8_e4m3", "mi300.mfma.fp16"])
def test_layers_and_programs_have_the_bits_of_products(policy):
    torch.manual_seed(3)
    model, x = torch.nn.Linear(40, 7), torch.randn(9, 40)
    converted = nn.convert(model, policy).model
    wanted = golden.gemm(
        x, model.weight.detach().mT, policy, start=golden.encode(model.bias.detach(), "fp32").expand(9, 7)
    )
    assert torch.equal(golden.encode(converted(x).detach(), "fp32"), wanted)
    results = []
    for run in (converted, model):
        run.zero_grad()
        with emulate(policy, strict=True) if run is model else torch.enable_grad():
            results.append(run(x))
            (results[-1] * x[:, :7]).sum().backward() if run is not model else results[-1].backward(x[:, :7])
        results.append(run.weight.grad.clone())
    assert torch.equal(results[0], results[2])
    assert torch.equal(results[1], results[3])
    assert str(nn.Policy.parse(str(nn.Policy.parse(policy)))) == str(nn.Policy.parse(policy))


@pytest.mark.slow
def test_network_in_a_matrix_unit_is_equal_eager_and_compiled():
    torch.manual_seed(3)
    policy = "h100.wgmma: e4m3fn*e4m3fn+fp32 every=128, elementwise=bf16.rn"
    model = torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.GELU(), torch.nn.Linear(30, 5))
    x, gradients = torch.randn(6, 20), []
    for run in (model, torch.compile(model, backend=emulate.backend(policy))):
        model.zero_grad()
        with emulate(policy) if run is model else torch.enable_grad():
            result = run(x)
            result.backward(torch.ones_like(result))
        gradients.append([result.detach().clone(), *(parameter.grad.clone() for parameter in model.parameters())])
    for eager, compiled in zip(*gradients, strict=True):
        assert torch.equal(eager, compiled)


@pytest.mark.parametrize(
    "text", ["h100.wgmma.e4m3", "h100.wgmma.e4m3 every=128", "mma4 fp16*fp16+fp32.rn order=staged9"]
)
def test_policy_has_the_name_of_a_unit(text):
    assert str(nn.Policy.parse(text)) == text


def test_equal_units_of_several_devices_have_no_name_in_policies():
    text = str(nn.Policy.parse("b200.tcgen05.e4m3"))
    assert text == str(nn.Policy.parse("rtx5090.mma.e4m3")) == MATRIX_UNITS["b200.tcgen05.e4m3"].text


@pytest.mark.parametrize("text", ["H100.wgmma.e4m3", "h100.wgmma.e4m3fn"])
def test_unknown_name_of_a_unit_gets_a_near_one(text):
    with pytest.raises(ValueError, match=r"did you mean h100\.wgmma\.e4m3\?"):
        nn.Policy.parse(text)


def test_table_of_devices_names_all_units():
    rows = re.findall(r"^\| (`\w+`) \| [\w ]+ \| (`\w+`)[\w ,]* \| (`.+`) \|$", PAGE.read_text(), re.MULTILINE)
    named = {f"{device}.{unit}.{fmt}".replace("`", "") for device, unit, formats in rows for fmt in formats.split(", ")}
    assert named == {name.removesuffix(".fp16") if name.count(".") == 3 else name for name in MATRIX_UNITS}
