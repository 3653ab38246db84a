"""Stochastic rounder: floor and carry match the rounded result, and both match the decision on discarded bits."""

import random

import pytest
import torch
from amaranth.hdl import Module, Signal, Value
from amaranth.sim import Simulator

from halfulp import golden
from halfulp.golden import exact
from halfulp.golden.nn import Cast
from halfulp.golden.nn.draw import states
from halfulp.golden.random import of_stream
from halfulp.hdl.formats import parse, stochastic
from halfulp.hdl.wire import LONGEST_CARRY_IN_TABLES, carry_out
from halfulp.sim.reference import reference
from halfulp.sim.report import mismatch
from halfulp.units import Sru
from halfulp.units.verilog import emit
from tests.short_form import build

ONE = torch.tensor([1])


@pytest.mark.parametrize("width", range(1, 7))
def test_carry_out_matches_sum(width):
    m = Module()
    x, y, out = Signal(width), Signal(width), Signal()
    m.d.comb += out.eq(carry_out(x, y))
    found = {}

    async def drive(context):
        for first in range(1 << width):
            for second in range(1 << width):
                context.set(x, first)
                context.set(y, second)
                found[first, second] = context.get(out)

    simulator = Simulator(m)
    simulator.add_testbench(drive)
    simulator.run()
    assert found == {(first, second): first + second >> width for first, second in found}
    assert len(found) == 1 << 2 * width


@pytest.mark.parametrize("source", ["lfsr24", "lfsr3", "plateau3"])
def test_cast_with_source_matches_rtl(source):
    """The unit processes the elements of a tensor in order, from the state of the source that the key gives."""
    cast = Cast.parse(f"fxp4.4>int4.sr3@{source}")
    # Seeds of a plateau source begin with its first period.
    key = next(key for key in range(99) if int(states(key, cast.source, (), ONE.device)) < 1 << cast.source.width)
    values = torch.randint(-128, 128, (6, 10), generator=torch.Generator().manual_seed(1)) / 16
    seed = int(states(key, cast.source, (), ONE.device))
    unit = Sru(a="fxp4.4", o="int4", rounding="sr3", random=source, seed=seed)
    found = []

    async def drive(context):
        context.set(unit.en, 1)
        context.set(unit.valid, 1)
        for code in golden.encode(values, "fxp4.4").flatten().tolist():
            context.set(Value.cast(unit.a[0]), code)
            found.append(context.get(Value.cast(unit.o[0])))
            await context.tick()

    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(drive)
    simulator.run()
    assert found == cast.codes(values, cast.fmt, key).flatten().tolist()


def test_sru_of_few_bits_has_no_adder():
    for bits in (1, LONGEST_CARRY_IN_TABLES, LONGEST_CARRY_IN_TABLES + 1):
        unit = Sru(a="fxp8.8", o="int8-wrap", rounding=f"sr{bits}", increment=False)
        assert (" + " in emit(unit)) == (bits > LONGEST_CARRY_IN_TABLES)


@pytest.mark.parametrize(
    ("a", "o", "bits"),
    [
        ("fxp4.4", "int4-wrap", 3),
        ("fxp4.4", "int4-wrap", 6),
        ("int8", "fxp8.-4-wrap", 4),
        ("ufxp3.4", "uint5-wrap", 2),
        ("fxp2.1", "fxp2.4-wrap", 3),
        ("fxp2.6", "fxp6.-2-wrap", 5),
    ],
)
def test_sru_floor_plus_carry_matches_rounded(a, o, bits):
    """Every code and every word, compared with the exact model."""
    a, o, rounding = parse(a), parse(o), stochastic(bits)
    codes, words = torch.arange(1 << a.width), torch.arange(1 << bits)
    codes, words = codes.repeat_interleave(1 << bits), words.repeat(1 << a.width)
    given = {"a": a, "o": o, "rounding": rounding, "random": words}
    whole, (floor, up) = golden.sru(codes, **given), golden.sru(codes, **given, increment=False)
    assert torch.equal((floor + up) % (1 << o.width), whole)
    assert set(up.tolist()) <= {0, 1}
    rows = random.Random(bits).sample(range(len(codes)), min(400, len(codes)))
    given["random"] = words[rows].tolist()
    assert exact.sru(codes[rows].tolist(), **given) == whole[rows].tolist()
    assert exact.sru(codes[rows].tolist(), **given, increment=False) == (floor[rows].tolist(), up[rows].tolist())


@pytest.mark.parametrize("sharing", ["own", "rotated"])
def test_sru_lanes_have_same_words_without_increment(sharing):
    options = {"a": "int16", "o": "fxp16.-8-wrap", "random": "plateau3", "lanes": 7, "sharing": sharing, "seed": 5}
    whole, split = Sru(**options), Sru(**options, increment=False)
    assert whole.sources == split.sources
    codes = {f"a{lane}": torch.arange(0, 1 << 16, 37).numpy().astype("uint64") for lane in range(7)}
    one, two = reference(whole, codes), reference(split, codes)
    assert list(two) == [f"o{lane}" for lane in range(7)] + [f"up{lane}" for lane in range(7)]
    for lane in range(7):
        assert ((two[f"o{lane}"] + two[f"up{lane}"]) % 256 == one[f"o{lane}"]).all()
        word = of_stream(split.sources[f"random{lane}"], len(codes["a0"]), 3)
        want = (codes[f"a{lane}"].astype("int64") >> 5) % 8 + word.numpy() >= 8
        assert (two[f"up{lane}"] == want).all()


def test_sru_ports_and_name():
    unit = Sru(a="int16", o="int8-wrap", lanes=2, increment=False, random="plateau3")
    assert unit.name == "sru_int16_int8_wrap_sr3_plateau3_lanes_2_increment_no"
    assert list(unit.outputs) == ["o0", "o1", "up0", "up1"]
    assert [len(port) for port in unit.up] == [1, 1]
    assert Sru(a="int16", o="int8").up == []


@pytest.mark.parametrize(
    ("options", "error", "sentence"),
    [
        ({"o": "int8"}, ValueError, "without increment int8"),
        ({"o": "int8-wrap", "saturate": True}, ValueError, "without increment saturate"),
        ({"o": "int8-wrap", "increment": 0}, TypeError, "increment"),
    ],
)
def test_sru_rejects_bad_parameters(options, error, sentence):
    with pytest.raises(error, match=sentence):
        Sru(a="int16", **({"increment": False} | options))
    if error is ValueError:
        with pytest.raises(error, match=sentence):
            golden.sru(ONE, a="int16", rounding="sr3", random=ONE, increment=False, **options)


def test_golden_sru_rejects_float_result():
    with pytest.raises(TypeError, match="fixed point"):
        golden.sru(ONE, a="int16", o="e5m2", random=ONE)
    with pytest.raises(TypeError, match="fixed point"):
        golden.sru(ONE, a="e5m2", o="int8", random=ONE)


@pytest.mark.parametrize(
    ("options", "flag", "outputs"),
    [({}, "", {"o0": 1, "o1": 1}), ({"increment": False}, " increment=no", {"o0": 0, "up0": 1})],
)
def test_sru_mismatch_text_has_all_fields(options, flag, outputs):
    unit = build("sru", "int16", lanes=2, **options)
    codes = {"a0": 0x00FF, "a1": 0x0100, "random0": 7, "random1": 7}
    given = {name: torch.tensor([code]).numpy().astype("uint64") for name, code in codes.items()}
    want = {name: int(column[0]) for name, column in reference(unit, given).items()}
    assert outputs.items() <= want.items()
    text = mismatch(unit, codes, want, want | {"o0": 2}).text
    assert "a0             0x00ff" in text
    assert f"lanes=2{flag}' --vector 0x00ff,0x0100" in text
    assert "wrong golden model" not in text
    assert "wrong golden model" in mismatch(unit, codes, want | {"o0": 3}, want).text
