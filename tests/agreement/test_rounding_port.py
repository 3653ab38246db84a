"""Rounding chosen by a port: RTL, golden model and exact results of every unit, and equality with fixed modes."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from halfulp import golden, unit
from halfulp.golden import exact
from halfulp.hdl.formats import Codebook, Rounding, parse
from halfulp.hdl.formats.rounding import MODES
from halfulp.hdl.specs import UNITS, MacSpec, UnitSpec
from halfulp.sim.bench import run
from halfulp.sim.reference import reference
from halfulp.units import Div, Mul
from tests.every_unit import built, exact_mismatches, rtl_mismatches, specs
from tests.settings import EXHAUSTIVE

CHOICES = ("rn", "rz", "rd", "ru", "ra", "ro", "sr3", "ra")
"""Modes of `port_ro_sr3` by code; those up to ``ra`` are the rounding modes of RISC-V."""


def with_port(fmt, name, rounding):
    """Return descriptions of a unit in a format with a rounding that a port chooses."""
    found = [spec for spec in specs(fmt, name) if getattr(spec, "product", None) is None]
    return [replace(spec, rounding=Rounding.parse(rounding)) for spec in found] if found and found[0].PORT else []


def takes_port(name):
    # An fpu has no stochastic modes; its own tests have all others.
    return UNITS[name].PORT and name not in ("sru", "fpu")


def book():
    """Return a codebook with infinity beyond a threshold, so that overflow depends on the mode."""
    values = [0, 1, 2.5, 4, 7, float("inf"), float("nan"), -0.0, -1, -2.5, -4, -7, -8, -9, float("-inf"), -11]
    return Codebook.register("ported", values, overflow="infinity", threshold=12)


FORMATS = ("e2m1", "e2m1fn", "e2m1fnuz", "e2m2-ftz", "fxp2.2", "posit5", "takum5")


@pytest.mark.parametrize("rounding", ["port", "port_ro", "port_sr12", "port_ro_sr3"])
def test_port_text_is_parsed_and_printed(rounding):
    assert str(Rounding.parse(rounding)) == rounding
    spec = UnitSpec.parse(f"mul fp16*fp16.{rounding}.sat")
    assert UnitSpec.parse(spec.text) == spec
    assert spec.text.endswith(f".{rounding}.sat")
    assert Mul(a="fp16", b="fp16", o="fp16", rounding=rounding).inputs["mode"].width == 3


def test_codes_of_modes_are_those_of_riscv():
    assert [str(choice) for choice in Rounding.parse("port_ro_sr3").choices] == list(CHOICES)
    assert [str(choice) for choice in Rounding.parse("port").choices] == ["rn", "rz", "rd", "ru", *["ra"] * 4]
    assert Rounding("rn").choices == ()


@pytest.mark.parametrize("code", range(8))
def test_golden_port_equals_the_mode_of_its_code(code):
    codes = torch.arange(1 << 12)
    x, y, random = codes & 63, codes >> 6, torch.full((1 << 12,), 5)
    given = {"a": "e3m2", "b": "e3m2", "o": "e3m1"}
    mode = torch.full((1 << 12,), code)
    found = golden.mul(x, y, **given, rounding="port_ro_sr3", mode=mode, random=random)
    words = {"random": random} if CHOICES[code] == "sr3" else {}
    assert torch.equal(found, golden.mul(x, y, **given, rounding=CHOICES[code], **words))


def test_modes_differ():
    """Every mode of the port gives other results than all others, so that none stands for another one."""
    x, y = torch.arange(1 << 12) & 63, torch.arange(1 << 12) >> 6
    found = [
        golden.mul(x, y, a="e3m2", b="e3m2", o="e3m1", rounding="port_ro", mode=torch.tensor(code)) for code in range(6)
    ]
    assert all(not torch.equal(p, q) for at, p in enumerate(found) for q in found[:at])


SOME = (
    "mul e2m1*e2m1=takum5",
    "add e2m1+e2m1=e3m0fn",
    "div e2m1/e2m1=e2m2-ftz",
    "dot2 e2m1*e2m1=posit4 order=sequential",
)
"""Units whose operands have one format, because they share the inputs of a test."""


def test_golden_matches_exact_and_rtl():
    found = [replace(UnitSpec.parse(text), rounding=Rounding.parse("port_ro_sr3")) for text in SOME]
    for spec in found:
        checks, failed = exact_mismatches(spec, most_bits=0, count=128)
        assert checks
        assert not failed
    checks, failed = rtl_mismatches(dict(zip(found, found, strict=True)), most_bits=15, count=1 << 12)
    assert checks
    assert not failed


@pytest.mark.slow
@pytest.mark.sampled(8, 8)
@pytest.mark.parametrize("text", [*FORMATS, book], ids=lambda text: text if isinstance(text, str) else "codebook")
def test_every_unit_matches_exact_and_its_rtl(text):
    fmt = parse(text) if isinstance(text, str) else text()
    found = [spec for name in UNITS if takes_port(name) for spec in with_port(fmt, name, "port_ro_sr3")]
    assert found
    for spec in found:
        checks, failed = exact_mismatches(spec, most_bits=6, count=64)
        assert checks
        assert not failed
    for latency in (0, 1):
        same = [spec for spec in found if built(spec).latency == latency]
        checks, failed = rtl_mismatches(dict(zip(same, same, strict=True)), most_bits=14, count=1 << 12)
        assert checks
        assert not failed


LARGER = ("e3m4", "e4m3fn", "fp16", "posit8", "takum8", "fxp4.4")

SOME_UNITS = ("mul", "add", "fma", "div", "rsqrt", "convert", "compare", "rint", "dot", "mac")
"""Units with different numbers before their rounding."""


def cases():
    """Return units, formats and ports: each of some units in each larger format; HALFULP_EXHAUSTIVE=1 takes all."""
    if EXHAUSTIVE:
        return list(itertools.product(filter(takes_port, UNITS), [*FORMATS, *LARGER], ("port", "port_sr4")))
    chosen = itertools.product(SOME_UNITS, LARGER)
    return [(*case, ("port", "port_sr4")[(place + place // len(LARGER)) % 2]) for place, case in enumerate(chosen)]


@pytest.mark.slow
@pytest.mark.sampled(11, 11)
@pytest.mark.parametrize(("name", "text", "rounding"), cases())
def test_rtl_matches_golden_in_larger_formats(name, text, rounding):
    found = with_port(parse(text), name, rounding)
    for latency in (0, 1):
        same = [spec for spec in found if built(spec).latency == latency]
        if same:
            checks, failed = rtl_mismatches(dict(zip(same, same, strict=True)), most_bits=18, count=1 << 16)
            assert checks
            assert not failed


@pytest.mark.slow
@pytest.mark.parametrize(
    "text", ["mac e3m2*e3m2+e4m3.port", "mac e2m1*e2m1+exact=e4m3.port_ro_sr3", "fma e3m2*e3m2+e3m2.port"]
)
def test_bench_tests_a_port(text):
    assert run(unit(text).component()).failed == 0


def test_mode_of_each_step_rounds_an_accumulator():
    count = 256
    rng = np.random.default_rng(3)
    columns = {name: torch.from_numpy(rng.integers(0, 64, count)) for name in "xyc"}
    mode = torch.from_numpy(rng.integers(0, 8, count))
    off = torch.zeros(count, dtype=torch.int64)
    given = {name: parse("e3m2") for name in ("a", "b", "acc")}
    found = golden.mac_sequence(*columns.values(), off, off, **given, rounding="port", mode=mode)
    held = 0
    for at in range(count):
        codes = (int(columns["x"][at]), int(columns["y"][at]), held)
        held = exact.mac(*codes, **given, rounding=Rounding("port"), mode=int(mode[at]))
        assert int(found[at]) == held


def test_sign_of_cancelled_sum_depends_on_mode():
    one, minus_one = 0x3C00, 0xBC00
    found = golden.add(
        torch.tensor(one), torch.tensor(minus_one), a="fp16", b="fp16", rounding="port", mode=torch.arange(8)
    )
    assert found.tolist() == [0, 0, 0x8000, 0, 0, 0, 0, 0]
    codes = {"a": [one], "b": [minus_one], "subtract": [0], "mode": [2]}
    columns = {name: np.array(column, dtype=np.uint64) for name, column in codes.items()}
    assert reference(unit("add fp16+fp16.port").component(), columns)["o"].tolist() == [0x8000]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("sru fxp4.4>fxp2.2.port", "port"),
        ("pwl tanh(fxp2.2).port", "port"),
        ("join bf16x2>fp32.port", "port"),
        ("blockquantize fp32>mxfp4.port", "port"),
        ("mac fp16*fp16=fp16.port+fp32.rn", "product"),
        ("mul fp16*fp16.port_sr40", "port"),
        ("mul fp16*fp16.port_rz", "port_rz"),
    ],
)
def test_port_is_refused_where_it_is_not_possible(text, word):
    with pytest.raises(ValueError, match=word):
        unit(text)


def test_products_of_matrices_refuse_a_port():
    x = torch.zeros(2, 2, dtype=torch.int64)
    with pytest.raises(ValueError, match="matrices"):
        golden.gemm(x, x, MacSpec.parse("fp16*fp16+fp16.port"))


def test_modes_are_checked():
    x = torch.zeros(2, dtype=torch.int64)
    given = {"a": "fp16", "b": "fp16"}
    with pytest.raises(ValueError, match="mode"):
        golden.mul(x, x, **given, rounding="port")
    with pytest.raises(ValueError, match="mode"):
        golden.mul(x, x, **given, rounding="rn", mode=x)
    with pytest.raises(ValueError, match="contains 8"):
        golden.mul(x, x, **given, rounding="port", mode=x + 8)
    with pytest.raises(TypeError, match="integer"):
        golden.mul(x, x, **given, rounding="port", mode=x.double())
    with pytest.raises(ValueError, match="mode"):
        exact.mul(0, 0, a=parse("fp16"), b=parse("fp16"), o=parse("fp16"), mode=1)
    with pytest.raises(ValueError, match="port"):
        parse("fp16").encode(0.1, "port")


def test_fixed_modes_have_no_port():
    assert all("mode" not in Div(a="fp16", b="fp16", o="fp16", rounding=mode).inputs for mode in MODES)
