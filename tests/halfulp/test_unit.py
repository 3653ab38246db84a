"""Descriptions of units by `halfulp.unit`, parsed from texts."""

import importlib
import random
import subprocess
import sys

import pytest
import torch

import halfulp
from halfulp import golden
from halfulp.golden.parts import code_of
from halfulp.hdl.formats import Compound
from halfulp.hdl.specs import COMPOSED, UNITS, Build, PwlSpec, UnitSpec
from halfulp.hdl.specs.formula import VALUES, Role
from halfulp.implementation import short
from halfulp.sim.model import CompiledModel
from halfulp.sim.ports import Ports
from halfulp.sim.reference import reference
from halfulp.units import Mac
from halfulp.units.catalogue import CATALOGUE
from tests.short_form import defaults_of_others

TEXTS = [
    "mul e4m3fn*e4m3fn=fp16.rn",
    "add e5m2+fxp4.4=e6m5.rz",
    "fma e4m3*e5m2+bf16.sr4",
    "mac e5m2*e5m2+e6m5.sr10",
    "mac e5m2*e5m2=e5m2.rz+exact=e6m5.rd.sat carry=3",
    "accumulate e5m2+fp32.ru",
    "quire posit8*posit8=posit16.rn carry=7",
    "dot3 e4m3fn*e4m3fn+bf16.sr4 order=sequential",
    "sparsedot2 e4m3fn*e5m2+bf16.sr4 order=sequential sparsity=2:3",
    "sparsemac e4m3fn*e5m2+exact=bf16.sr4 carry=9 sparsity=2:3 step=4",
    "dotmac3 e4m3fn*e5m2+bf16.sr4",
    "sru fxp8.8>fxp4.4.sr3 lanes=2",
    "convert fp16>e4m3fn.sr8.sat",
    "pwl tanh(fxp2.4)>fxp1.6.rn pieces=2",
    "compare e5m2,e4m3.rn",
    "fpu e5m2,e4m3.port flags=before width=16 divide=yes",
    "div fp16/e5m2=bf16.sr4",
    "reciprocal fp16>e4m3.rz",
    "sqrt fp16>e4m3fn.sr8",
    "rsqrt bf16>fp16.sr4",
    "rint fp16>bf16.sr4",
    "logb bf16>fxp8.2.rz",
    "remainder e5m2,e4m3=bf16.rz",
    "requantize int16*fxp1.15=int16.rhu,uint4>uint8.ra",
    "split fp32>bf16x2.sr4",
    "join bf16x3>fp32.rn",
    "partmac bf16x2*bf16x2+fp32.sr4",
    "blockquantize bf16>block(e2m1fn,4,e8m0fnu,floor).sr4",
    "blockdequantize block(e2m1fn,4,e4m3fn,nearest)>fp16.rz",
    "blockdot4 mxfp4*mxfp6_e2m3+bf16.sr4",
    "blockmac mxfp8_e4m3*mxint8+fp16.rn step=4",
]
TEXTS += defaults_of_others(TEXTS, "bf16")


def test_catalogue_units_have_descriptions():
    assert {halfulp.unit(text).spec.form.unit for text in TEXTS} == set(UNITS)


@pytest.mark.parametrize("row", CATALOGUE.values(), ids=CATALOGUE)
def test_unit_has_one_name_in_all_rooms(row):
    """Text, classes and golden function have one name, and their modules too: that of the unit or of its family."""
    stems = [row.unit.__name__, row.spec.__name__.removesuffix("Spec")]
    assert [stem.lower() for stem in stems] == [row.name] * 2
    module, of_spec = (made.__module__.rpartition(".")[2] for made in (row.unit, row.spec))
    assert module == of_spec
    assert getattr(importlib.import_module(f"halfulp.golden.{module}"), row.name) is getattr(golden, row.name)


@pytest.mark.parametrize("text", TEXTS)
def test_description_gives_component_reference_and_exact_results(text):
    """Component, reference and exact results of one text have the same names and agree on random codes."""
    described = halfulp.unit(text)
    assert str(described) == text
    assert halfulp.unit(str(described)) == described == halfulp.unit(described)
    assert len({described, halfulp.unit(text)}) == 1
    unit = described.component()
    assert (unit.spec, unit.name, unit.build) == (described.spec, described.name, Build())
    noise = random.Random(text)
    columns = {
        port.name: [noise.getrandbits(port.width) if port.role is not Role.STATE else int(port.name == "load")] * 1
        for port in Ports.inputs_of(unit)
    }
    for _ in range(40):
        for port in Ports.inputs_of(unit):
            columns[port.name].append(
                noise.getrandbits(port.width) if port.role is not Role.STATE else port.name == "load"
            )

    def column(argument, names, index=None):
        if isinstance(names, str):
            return torch.tensor(columns[names]) if index is None else columns[names][index]
        parts = [column(name, name, index) for name in names]
        compound = unit.spec.operands.get(argument)
        if isinstance(compound, Compound):
            return code_of(torch.stack(parts, -1), compound) if index is None else compound.code_of(parts)
        return torch.stack(parts, -1) if index is None else parts

    operands, words = unit.spec.arguments(*VALUES).items(), unit.spec.arguments(Role.MODE, Role.RANDOM).items()
    found = described.reference(
        *(column(*operand) for operand in operands), **{name: column(name, names) for name, names in words}
    )
    for index in range(41):
        exact = described.exact(
            *(column(*operand, index) for operand in operands),
            **{name: column(name, names, index) for name, names in words},
        )
        got = tuple(part[index].tolist() for part in found) if isinstance(found, tuple) else found[index].tolist()
        assert got == (tuple(exact) if isinstance(found, tuple) else exact), index


@pytest.mark.parametrize(
    "text",
    ["mul e5m2*e5m2.sr4@lfsr16:5", "mac e5m2*e5m2=e5m2.sr3+e6m5.sr10@lfsr16", "sru int16>int8.sr3@plateau3 lanes=3"],
)
def test_reference_uses_words_of_source(text):
    described = halfulp.unit(text)
    unit = described.component()
    noise = random.Random(text)
    codes = {port.name: [noise.getrandbits(port.width) for _ in range(50)] for port in Ports.inputs_of(unit)}
    codes |= {name: [int(name == "load")] * 50 for name in ("load", "clear") if name in codes}
    tensors = {name: torch.tensor(column) for name, column in codes.items()}
    operands = [
        tensors[names] if isinstance(names, str) else torch.stack([tensors[name] for name in names], -1)
        for names in unit.spec.arguments(*VALUES).values()
    ]
    found = described.reference(*operands)
    arrays = {name: column.numpy().view("uint64") for name, column in tensors.items()}
    expected = reference(unit, arrays)
    columns = found.unbind(-1) if found.dim() > 1 else [found]
    for port, column in zip(unit.outputs, columns, strict=True):
        assert column.tolist() == expected[port].tolist()


def test_missing_words_and_wrong_operands_are_refused():
    """A source has words for operations in order, so a single exact result needs its own word."""
    described = halfulp.unit("mul e5m2*e5m2.sr4@lfsr8")
    with pytest.raises(ValueError, match="needs random words: random"):
        described.exact(0x3D, 0x3F)
    assert [described.exact(0x3D, 0x3F, random=word) for word in (0, 15)] == [64, 65]
    with pytest.raises(TypeError, match="operands must be tensors of codes, not int"):
        described.reference(1, 2)


def test_source_state_matches_hardware():
    unit = halfulp.unit("mul e5m2*e5m2.sr8@lfsr16:5").component()
    codes = {name: torch.arange(100).numpy().view("uint64") for name in ("a", "b")}
    with CompiledModel.of_unit(unit) as model:
        model.reset()
        found = model.run(codes, 100)["o"].tolist()
    assert found == reference(unit, codes)["o"].tolist()
    assert found != reference(halfulp.unit("mul e5m2*e5m2.sr8@lfsr16").component(), codes)["o"].tolist()


def test_component_rejects_build_without_effect():
    described = halfulp.unit("e5m2*e5m2+e6m5.rn")
    built = described.component(Build(pipeline=2))
    assert isinstance(built, Mac)
    assert (built.latency, built.name) == (3, "mac_e5m2_e5m2_e6m5_rn_p2")
    with pytest.raises(ValueError, match="stochastic"):
        described.component(Build(stochastic="eager"))


@pytest.mark.parametrize("fmt", ["e5m2", "int8", "posit8", "nf4", "bf16x2", "mxfp4", "block(e2m1fn,2,e3m0fnu,floor)"])
def test_text_of_name_and_format_is_the_short_form(fmt):
    taken = 0
    for name in UNITS | COMPOSED:
        try:
            expected = short(name, fmt).spec
        except (TypeError, ValueError):
            with pytest.raises(ValueError, match="\n"):
                halfulp.unit(f"{name} {fmt}")
        else:
            assert UnitSpec.parse(f" {name}  {fmt} ") == expected
            taken += 1
    assert taken > 2


def test_description_rejects_unknown_function_or_table():
    for text in ("pwl tanhh(fxp4.4)", "pwl gelu6-00000000(fxp4.4)"):
        with pytest.raises(ValueError, match=r"tanhh|gelu6-00000000"):
            halfulp.unit(text)


def test_saved_table_is_keyed_by_name_and_digest():
    from halfulp.hdl.fit.store import write

    table = halfulp.unit("pwl gelu(fxp2.4) pieces=3").table
    write(table)
    described = halfulp.unit(f"pwl {table}(fxp2.4)")
    assert isinstance(described.spec, PwlSpec)
    assert described.table == table
    assert described.component().table == table
    with pytest.raises(ValueError, match="the segments"):
        halfulp.unit(f"pwl {table}(fxp2.6)").component()


def test_package_has_function_unit_for_any_import_order():
    code = "import sys, halfulp; from halfulp.implementation import Implementation; assert callable(halfulp.unit); "
    code += "assert isinstance(halfulp.unit('mul e5m2*e5m2'), Implementation); assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


def test_missing_name_of_the_package_is_answered_with_its_names():
    with pytest.raises(AttributeError, match=r"no attribute 'gemm'; it has .*golden"):
        _ = halfulp.gemm
