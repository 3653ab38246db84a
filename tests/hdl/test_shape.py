"""Formats as Amaranth shapes: constants, fields, assignment, connection, waveforms."""

import copy
import itertools
import math
import random
import re
import subprocess
import sys
from fractions import Fraction

import pytest
from amaranth.hdl import ClockDomain, Const, Fragment, Module, Mux, Print, Shape, Signal, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from halfulp.hdl.formats import E4M3, E4M3FN, E4M3FNUZ, E5M2, FP16, FP32, INT8, NAMED, POSIT8, Posit, parse
from halfulp.hdl.formats.view import FormatView
from halfulp.hdl.shape import connect

FXP = parse("fxp4.4")


def test_signal_has_width_and_format():
    signal = Signal(E5M2)
    assert isinstance(signal, FormatView)
    assert signal.shape() == parse("e5m2")
    assert Shape.cast(E5M2) == unsigned(8)
    assert len(signal.as_value()) == 8


def test_float_fields_are_named():
    signal = Signal(E5M2)
    assert [len(field) for field in (signal.sign, signal.exponent, signal.mantissa)] == [1, 5, 2]
    with pytest.raises(AttributeError, match="e5m2 has no field 'regime'; it has mantissa, exponent, sign"):
        signal.regime  # noqa: B018  # reading it is the test


@pytest.mark.parametrize(
    ("fmt", "widths"),
    [
        ("fxp4.4", {"fraction": 4, "integer": 3, "sign": 1}),
        ("ufxp3.5-wrap", {"fraction": 5, "integer": 3, "sign": 0}),
        ("int8", {"fraction": 0, "integer": 7, "sign": 1}),
        ("fxp-2.10", {"fraction": 7, "integer": 0, "sign": 1}),
        ("fxp10.-2", {"fraction": 0, "integer": 7, "sign": 1}),
        ("ufxp0.8", {"fraction": 8, "integer": 0, "sign": 0}),
        ("int1", {"fraction": 0, "integer": 0, "sign": 1}),
        ("posit8", {"body": 7, "sign": 1}),
        ("posit64e0", {"body": 63, "sign": 1}),
    ],
)
def test_fixed_and_posit_fields_are_named(fmt, widths):
    fmt = parse(fmt)
    signal = Signal(fmt)
    assert signal.shape() == fmt
    assert Shape.cast(fmt) == unsigned(fmt.width)
    assert {field: len(getattr(signal, field)) for field in fmt.fields()} == widths
    assert list(fmt.fields()) == list(widths)
    with pytest.raises(AttributeError, match=re.escape(f"{fmt} has no field 'mantissa'; it has {', '.join(widths)}")):
        signal.mantissa  # noqa: B018  # reading it is the test


@pytest.mark.parametrize(
    "fmt",
    [
        *(E5M2, E4M3FN, E4M3FNUZ, NAMED["e2m1fn"]),
        *map(parse, ("fxp4.4", "ufxp2.3-wrap", "int8", "fxp-2.9", "posit8", "posit6e1", "posit3e0")),
    ],
    ids=str,
)
def test_const_is_code_of_number(fmt):
    for code in range(1 << fmt.width):
        number = fmt.decode(code)
        if isinstance(number, Fraction) and not (number == 0 and fmt.negative(code)):
            assert fmt.const(number).code == code
            assert fmt.from_bits(code) == fmt.const(number)


def test_const_accepts_special_numbers():
    assert Const(-0.0, E5M2).code == 0x80
    assert Const(math.inf, E5M2).code == 0x7C
    assert Const(math.nan, E5M2).code == 0x7E
    assert Const(1.5, E5M2).number == Fraction(3, 2)
    assert Signal(E5M2, init=1.5).as_value().init == 0x3E
    assert repr(Const(1.5, E5M2)) == "e5m2(1.5)"
    assert Const(math.nan, POSIT8).code == 0x80
    assert Const(-0.0, POSIT8).code == Const(-0.0, INT8).code == 0
    assert Signal(FXP, init=-1.5).as_value().init == 0xE8
    assert Signal(POSIT8, init=Fraction(-1)).as_value().init == 0xC0
    assert Const(-1, INT8).number == -1
    assert repr(Const(-1.5, FXP)) == "fxp4.4(-1.5)"
    assert repr(Const(math.nan, POSIT8)) == "posit8(nan)"
    assert Const(1, POSIT8) != Const(1, Posit(8, 1))
    assert POSIT8.const(None).code == INT8.const(None).code == 0


@pytest.mark.parametrize(
    ("make", "error", "keyword"),
    [
        (lambda: Const(0.3, E5M2), ValueError, "e5m2"),
        (lambda: Const(1e6, E5M2), ValueError, "1000000.0"),
        (lambda: Const(math.inf, E4M3FN), ValueError, "inf"),
        (lambda: Const("1", E5M2), TypeError, "constant"),
        (lambda: E5M2(Signal(7)), ValueError, "bits"),
        (
            lambda: Signal(E5M2).eq(Signal(E4M3)),
            TypeError,
            "signal",
        ),
        (
            lambda: Signal(E5M2).eq(Signal(8)),
            TypeError,
            "signal",
        ),
        (
            lambda: Signal(E5M2) == Signal(E4M3),
            TypeError,
            "compares",
        ),
        (lambda: Signal(E5M2).init, AttributeError, "as_value().init"),
        (lambda: Const(Const(1.0, E4M3), E5M2), TypeError, "constant"),
        (lambda: f"{Signal(E5M2):x}", TypeError, None),
        (lambda: Const(0.3, FXP), ValueError, "fxp4.4"),
        (lambda: Const(128, INT8), ValueError, "int8"),
        (lambda: Const(-1, parse("uint8")), ValueError, "uint8"),
        (lambda: Const(math.nan, INT8), ValueError, "nan"),
        (lambda: Const(-math.inf, INT8), ValueError, "int8"),
        (lambda: Const(math.inf, POSIT8), ValueError, "inf"),
        (lambda: Const(17, POSIT8), ValueError, "posit8"),
        (lambda: Const(True, POSIT8), TypeError, "constant"),
        (lambda: POSIT8.from_bits(256), ValueError, "code 0x100"),
        (lambda: POSIT8(Signal(9)), ValueError, "bits"),
        (
            lambda: Signal(POSIT8).eq(Signal(INT8)),
            TypeError,
            "signal",
        ),
        (
            lambda: Signal(INT8).eq(Signal(parse("int8-wrap"))),
            TypeError,
            "signal",
        ),
        (
            lambda: Signal(INT8) == Signal(parse("uint8")),
            TypeError,
            "compares",
        ),
        (
            lambda: Const(Const(1, INT8), POSIT8),
            TypeError,
            "constant",
        ),
    ],
)
def test_shape_rejects_misuse(make, error, keyword):
    with pytest.raises(error, match=keyword and re.escape(keyword)):
        make()


def test_connect_rejects_formats_of_equal_width():
    def port(flow, fmt):
        return wiring.Signature({"x": flow(fmt)}).create()

    m = Module()
    connect(m, port(Out, E5M2), port(In, E5M2))
    with pytest.raises(wiring.ConnectionError, match=re.escape("cannot connect out.x of e5m2 to into.x of e4m3")):
        connect(m, out=port(Out, E5M2), into=port(In, E4M3))
    eight_bits = [POSIT8, *map(parse, ("posit8e1", "int8", "uint8", "int8-wrap", "fxp4.4", "e5m2"))]
    for fmt, other in itertools.product(eight_bits, repeat=2):
        if fmt == other:
            connect(m, port(Out, fmt), port(In, parse(str(fmt))))
            continue
        sentence = re.escape(f"cannot connect out.x of {fmt} to into.x of {other}")
        with pytest.raises(wiring.ConnectionError, match=sentence):
            connect(m, out=port(Out, fmt), into=port(In, other))
    Fragment.get(m, None)


def test_views_copy_and_nest():
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


def test_format_works_as_layout_field():
    layout = data.StructLayout({"x": E5M2, "y": FP16})
    signal = Signal(layout, init={"x": 0.5, "y": -2.0})
    assert signal.y.shape() == FP16
    assert signal.as_value().init == 0xC000_38
    layout = data.StructLayout({"x": POSIT8, "y": FXP, "z": INT8})
    signal = Signal(layout, init={"x": -1, "y": 1.5, "z": -2})
    assert [signal.x.shape(), signal.y.shape(), signal.z.shape()] == [POSIT8, FXP, INT8]
    assert signal.as_value().init == 0xFE_18_C0


@pytest.mark.parametrize(
    ("fmt", "texts"),
    [
        (E5M2, {0x3E: "1.5", 0x80: "-0", 0x7C: "inf", 0xFC: "-inf", 0x7E: "nan", 0x01: "1.52587891e-05"}),
        (FP16, {0x3E00: "3e00(sign=0,exponent=0f,mantissa=200)", 0x8001: "8001(sign=1,exponent=00,mantissa=001)"}),
        (FP32, {0x3FC00000: "3fc00000(sign=0,exponent=7f,mantissa=400000)"}),
        (POSIT8, {0x40: "1", 0xC0: "-1", 0x80: "nan", 0x7F: "16777216", 0xFF: "-5.96046448e-08"}),
        (FXP, {0x18: "1.5", 0xFF: "-0.0625", 0x80: "-8"}),
        (INT8, {0x7F: "127", 0x80: "-128"}),
        (parse("fxp8.8"), {0x0180: "0180(sign=0,integer=01,fraction=80)"}),
        (parse("uint12"), {0xFFF: "fff(integer=fff)"}),
        (parse("posit16"), {0xC800: "c800(sign=1,body=4800)"}),
    ],
    ids=str,
)
def test_waveform_shows_numbers(fmt, texts, tmp_path):
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


def code_of(fmt, text):
    """Return the code of a text such as ``3e00(sign=0,exponent=0f,mantissa=200)`` from its fields."""
    code, fields = re.fullmatch(r"([0-9a-f]+)\((.*)\)", text).groups()
    place, found = 0, 0
    parts = dict(part.split("=") for part in fields.split(","))
    assert list(parts) == [name for name, width in reversed(fmt.fields().items()) if width]
    for name, width in fmt.fields().items():
        value = int(parts.get(name, "0"), 16)
        assert value < 1 << width
        found, place = found | value << place, place + width
    assert found == int(code, 16)
    return found


def printed(fmt, codes, capsys):
    """Return the output of a design that prints codes."""
    m = Module()
    m.domains.sync = ClockDomain()
    signal = Signal(fmt)
    m.d.sync += Print(signal)
    simulator = Simulator(m)
    simulator.add_clock(1e-6)

    async def drive(context):
        for code in codes:
            context.set(signal, fmt.from_bits(code))
            await context.tick()

    simulator.add_testbench(drive)
    capsys.readouterr()
    simulator.run()
    texts = capsys.readouterr().out.split()
    assert len(texts) == len(codes)
    return texts


@pytest.mark.parametrize(
    "fmt", ["posit8", "posit8e0", "posit3", "fxp4.4", "ufxp3.-1", "int8-wrap", "int1", "e5m2", "e4m3fnuz"]
)
def test_narrow_formats_print_numbers(fmt, capsys):
    fmt = parse(fmt)
    assert printed(fmt, range(1 << fmt.width), capsys) == [fmt.text(code) for code in range(1 << fmt.width)]


@pytest.mark.parametrize(
    "fmt",
    [
        "posit9e0",
        "posit9",
        "posit9e4",
        "posit10e3",
        "fxp4.5",
        "ufxp9.0",
        "fxp-1.10-wrap",
        "e5m3",
        "e3m5fn",
        "e4m4fnuz",
        "e3m5-finite",
    ],
)
def test_medium_formats_print_fields_of_all_codes(fmt, capsys):
    fmt = parse(fmt)
    texts = printed(fmt, range(1 << fmt.width), capsys)
    assert [code_of(fmt, text) for text in texts] == list(range(1 << fmt.width))


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "fmt",
    [
        "posit16",
        "posit32",
        "posit31e4",
        "posit64e0",
        "fxp8.8",
        "int32",
        "uint64",
        "int64-wrap",
        "fxp30.34",
        "fp16",
        "bf16",
        "fp32",
        "fp64",
    ],
)
def test_wide_formats_print_fields(fmt, capsys):
    fmt = parse(fmt)
    rng = random.Random(str(fmt))
    ones = (1 << fmt.width) - 1
    codes = [code ^ flip for shift in range(fmt.width) for code in (1 << shift, ones >> shift) for flip in (0, ones)]
    codes += [rng.getrandbits(fmt.width) >> rng.randrange(fmt.width) ^ ones * rng.getrandbits(1) for _ in range(200)]
    assert [code_of(fmt, text) for text in printed(fmt, codes, capsys)] == codes


def run_python(*lines):
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True)


def test_formats_and_specs_import_no_torch():
    run_python(
        "import sys, halfulp.hdl.formats, halfulp.hdl.specs, halfulp.hdl.specs.segments",
        "from halfulp.hdl.formats import E5M2, Fixed, parse",
        "assert E5M2 == parse('e5m2') and not isinstance(E5M2, Fixed)",
        "assert not {'mpmath', 'numpy', 'torch'} & set(sys.modules)",
    )
