"""Formats as Amaranth shapes: constants, fields, assignment, connection, waveforms."""

import copy
import math
import re
from fractions import Fraction

import pytest
from amaranth.hdl import Const, Fragment, Module, Mux, Shape, Signal, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from halfulp.hdl import FormatView, connect
from halfulp.hdl.formats import E4M3, E4M3FN, E4M3FNUZ, E5M2, FP16, FP32, NAMED, Float, parse


def test_a_signal_of_a_format_has_its_width_and_format():
    signal = Signal(E5M2)
    assert isinstance(signal, FormatView)
    assert signal.shape() == parse("e5m2")
    assert Shape.cast(E5M2) == unsigned(8)
    assert len(signal.as_value()) == 8


def test_fields_are_named():
    signal = Signal(E5M2)
    assert [len(field) for field in (signal.sign, signal.exponent, signal.mantissa)] == [1, 5, 2]
    with pytest.raises(AttributeError, match="e5m2 has no field 'regime'; it has mantissa, exponent, sign"):
        signal.regime  # noqa: B018  # reading it is the test


@pytest.mark.parametrize("fmt", [E5M2, E4M3FN, E4M3FNUZ, NAMED["e2m1fn"]], ids=str)
def test_a_constant_is_the_code_of_its_number(fmt):
    for code in range(1 << fmt.width):
        number = fmt.decode(code)
        if isinstance(number, Fraction) and not (number == 0 and fmt.negative(code)):
            assert fmt.const(number).code == code
            assert fmt.from_bits(code) == fmt.const(number)


def test_constants_of_special_numbers():
    assert Const(-0.0, E5M2).code == 0x80
    assert Const(math.inf, E5M2).code == 0x7C
    assert Const(math.nan, E5M2).code == 0x7E
    assert Const(1.5, E5M2).number == Fraction(3, 2)
    assert Signal(E5M2, init=1.5).as_value().init == 0x3E
    assert repr(Const(1.5, E5M2)) == "e5m2(1.5)"


@pytest.mark.parametrize(
    ("make", "error", "sentence"),
    [
        (lambda: Const(0.3, E5M2), ValueError, "e5m2 does not hold 0.3; the nearest number it holds is 0.3125"),
        (lambda: Const(1e6, E5M2), ValueError, "e5m2 does not hold 1000000.0; the nearest number it holds is inf"),
        (lambda: Const(math.inf, E4M3FN), ValueError, "e4m3fn does not hold inf; the nearest number it holds is nan"),
        (lambda: Const("1", E5M2), TypeError, "a constant of e5m2 is made of a number, not str"),
        (lambda: E5M2(Signal(7)), ValueError, "e5m2 has 8 bits, but the value to view has 7"),
        (
            lambda: Signal(E5M2).eq(Signal(E4M3)),
            TypeError,
            "a signal of e5m2 takes e5m2, not e4m3; a Convert unit goes between",
        ),
        (
            lambda: Signal(E5M2).eq(Signal(8)),
            TypeError,
            "a signal of e5m2 takes a value of that format or a number; assign raw bits through as_value()",
        ),
        (
            lambda: Signal(E5M2) == Signal(E4M3),
            TypeError,
            "== compares the codes of two values of e5m2; a Compare unit compares numbers of other formats",
        ),
        (lambda: Const(Const(1.0, E4M3), E5M2), TypeError, "a constant of e5m2 cannot be made of e4m3(1), which is of"),
        (lambda: f"{Signal(E5M2):x}", TypeError, None),
    ],
)
def test_misuse_is_refused_with_a_sentence(make, error, sentence):
    with pytest.raises(error, match=sentence and re.escape(sentence)):
        make()


def test_formats_of_one_width_do_not_connect():
    def port(flow, fmt):
        return wiring.Signature({"x": flow(fmt)}).create()

    m = Module()
    connect(m, port(Out, E5M2), port(In, E5M2))
    with pytest.raises(wiring.ConnectionError, match=re.escape("cannot connect out.x of e5m2 to into.x of e4m3")):
        connect(m, out=port(Out, E5M2), into=port(In, E4M3))
    Fragment.get(m, None)


def test_views_copy_and_compose():
    signal = Signal(E5M2)
    assert copy.copy(signal).fmt == E5M2
    array = Signal(data.ArrayLayout(E5M2, 3))
    assert array[1].shape() == E5M2
    chosen = E5M2(Mux(signal.sign, signal.as_value(), array[2].as_value()))
    m = Module()
    m.d.comb += array[0].eq(chosen)
    with m.Switch(signal), m.Case(0x3C):
        m.d.comb += array[1].eq(1.5)
    Fragment.get(m, None)


def test_a_format_is_a_field_of_a_layout():
    layout = data.StructLayout({"x": E5M2, "y": FP16})
    signal = Signal(layout, init={"x": 0.5, "y": -2.0})
    assert signal.y.shape() == FP16
    assert signal.as_value().init == 0xC000_38


@pytest.mark.parametrize(
    ("fmt", "texts"),
    [
        (E5M2, {0x3E: "1.5", 0x80: "-0", 0x7C: "inf", 0xFC: "-inf", 0x7E: "nan", 0x01: "1.52587891e-05"}),
        (FP16, {0x3E00: "0x1.800p0", 0x8001: "-0x0.004p-14", 0x7C00: "0x1.000p16(inf)", 0x7E00: "0x1.800p16(nan)"}),
        (Float(6, 5, specials="fn"), {0x7FF: "0x1.f8p32(nan)", 0x7FE: "0x1.f0p32"}),
        (Float(6, 5, specials="fnuz"), {0x800: "-0x0.00p-31(nan)", 0x3E0: "0x1.00p-1"}),
        (FP32, {0x3FC00000: "0x1.800000p0"}),
    ],
    ids=str,
)
def test_waveforms_show_numbers(fmt, texts, tmp_path):
    m = Module()
    signal = Signal(fmt, name="watched")
    mirror = Signal(fmt)
    m.d.comb += mirror.eq(signal)
    simulator = Simulator(m)

    async def drive(context):
        for code in texts:
            context.set(signal, fmt.from_bits(code))
            await context.delay(1e-6)
            assert context.get(mirror) == fmt.from_bits(code)

    simulator.add_testbench(drive)
    wave = tmp_path / "wave.vcd"
    with simulator.write_vcd(str(wave)):
        simulator.run()
    shown = re.findall(r"^s(\S+) ", wave.read_text(), re.MULTILINE)
    assert set(texts.values()) <= set(shown)
