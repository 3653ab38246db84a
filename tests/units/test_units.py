"""Parameters, ports and names of units, and the stream wrapper in Amaranth's simulator."""

import inspect
import pickle
import random
import re
from dataclasses import fields

import pytest
import torch
from amaranth.hdl import ClockDomain, Module, Shape, Value, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from halfulp import golden
from halfulp.golden import exact
from halfulp.hdl.formats import E4M3FN, E5M2, E6M5, RN, Float, parse, stochastic
from halfulp.hdl.formats.block import parse_operand
from halfulp.hdl.specs import Build
from halfulp.units import Accumulate, Add, Compare, Convert, Dot, Fma, Mac, Mul, Quire, Streamed
from halfulp.units.catalogue import CATALOGUE
from tests.short_form import BLOCK, build


def test_units_accept_texts_and_objects():
    text = Mul(a="e5m2", b="e4m3fn", o="e6m5", rounding="sr4", saturate=True)
    objects = Mul(a=E5M2, b=E4M3FN, o=E6M5, rounding=stochastic(4), saturate=True)
    assert text.parameters == objects.parameters
    assert text.name == objects.name == "mul_e5m2_e4m3fn_e6m5_sr4_sat"
    assert text.inputs == {"a": E5M2, "b": E4M3FN, "random": unsigned(4)}
    assert text.a.shape() == E5M2
    assert text.o.shape() == E6M5


def documented(unit, title):
    """Return the names in a section of a unit's docstring."""
    section = inspect.getdoc(unit).partition(f"\n{title}\n{'-' * len(title)}\n")[2].partition("\n\n")[0]
    heads = [line.partition(" : ")[0] for line in section.splitlines() if not line.startswith(" ")]
    return {name for head in heads for name in head.split(", ")} - {"..."}


@pytest.mark.parametrize("row", CATALOGUE.values(), ids=CATALOGUE)
def test_signature_and_docstring_have_all_parameters_and_ports(row):
    parameters = inspect.signature(row.unit).parameters
    assert {parameter.kind for parameter in parameters.values()} == {inspect.Parameter.KEYWORD_ONLY}
    assert documented(row.unit, "Parameters") == set(parameters)
    if row.name != "pwl":
        effective = {item.name for item in fields(row.spec) if row.spec.has_effect(item.name)}
        assert set(parameters) == {*effective, "build"}
    fmt = sample(row.name, "e4m3fn")
    random = {"rounding": "sr3"} if row.spec.takes(parse_operand(fmt), stochastic(3)) else {}
    flags = {"flags": True} if row.spec.FLAGS else {}
    unit = build(row.name, fmt, pipeline=1, **random, **flags)
    known = documented(row.unit, "Members")
    ports = {port if port in known else re.sub(r"\d+$", "0", port) for port in unit.signature.members}
    assert ports <= known


def test_subclass_with_own_constructor_has_its_signature():
    class Square(Mul):
        """Product whose operands have one format."""

        def __init__(self, fmt):
            super().__init__(a=fmt, b=fmt, o=fmt)

    assert list(inspect.signature(Square).parameters) == ["fmt"]
    assert Square.__doc__ == "Product whose operands have one format."
    assert Square("e2m1").name == "mul_e2m1_e2m1_e2m1_rn"


def test_units_pickle_as_their_arguments():
    for row in CATALOGUE.values():
        unit = build(row.name, sample(row.name, "e4m3fn"), pipeline=1)
        copy = pickle.loads(pickle.dumps(unit))
        assert (type(copy), copy.name, copy.parameters) == (type(unit), unit.name, unit.parameters)


@pytest.mark.parametrize(
    ("unit", "name", "latency"),
    [
        (Add(a=E5M2, b=E5M2, o=E5M2), "add_e5m2_e5m2_e5m2_rn", 0),
        (
            Fma(a=E5M2, b=E5M2, c=E6M5, o=E6M5, rounding="rd", build=Build(pipeline=3)),
            "fma_e5m2_e5m2_e6m5_e6m5_rd_p3",
            3,
        ),
        (Mac(a=E5M2, b=E5M2, acc=E6M5), "mac_e5m2_e5m2_e6m5_rn", 1),
        (
            Mac(a=E5M2, b=E5M2, acc=E6M5, product="e5m2-ftz", product_rounding="rz", build=Build(pipeline=2)),
            "mac_e5m2_e5m2_e5m2_ftz_rz_e6m5_rn_p2",
            3,
        ),
        (Convert(a=E6M5, o="e3m2-fn"), "convert_e6m5_e3m2_fn_rn", 0),
        (Compare(a=E5M2, b=E5M2, o=E5M2, build=Build(pipeline=1)), "compare_e5m2_e5m2_e5m2_rn_p1", 1),
        (Mul(a="posit8", b="fxp-2.10", o="int8-wrap"), "mul_posit8_fxp_2_10_int8_wrap_rn", 0),
        (Quire(a="posit8", b="posit8", o="posit8"), "quire_posit8_posit8_posit8_rn", 1),
        (
            Quire(a="e5m2", b="int8", o="fxp8.8", carry=5, rounding="sr3", saturate=True, build=Build(pipeline=4)),
            "quire_e5m2_int8_fxp8_8_sr3_sat_carry_5_p4",
            5,
        ),
        (Accumulate(a="posit8", acc="posit16"), "accumulate_posit8_posit16_rn", 1),
        (Accumulate(a="posit8", acc="exact", build=Build(pipeline=2)), "accumulate_posit8_exact_posit8_rn_p2", 3),
        (Accumulate(a="e5m2", acc="exact", o="fp32", carry=7), "accumulate_e5m2_exact_fp32_rn_carry_7", 1),
        (Mac(a="posit8", b="int8", acc="exact", o="posit16"), "mac_posit8_int8_exact_posit16_rn", 1),
        (
            Mac(
                a="posit8",
                b="int8",
                acc="exact",
                carry=3,
                product="fxp4.4-wrap",
                product_rounding="rz",
                build=Build(pipeline=1),
            ),
            "mac_posit8_int8_fxp4_4_wrap_rz_exact_posit8_rn_carry_3_p1",
            2,
        ),
        (Dot(k=3, a="posit8", b="int8", o="posit16"), "dot3_posit8_int8_posit16_rn", 0),
        (
            Dot(
                k=2, a="e5m2", b="e5m2", c="fp32", o="e6m5", order="sequential", rounding="sr4", build=Build(pipeline=3)
            ),
            "dot2_e5m2_e5m2_fp32_e6m5_sr4_order_sequential_p3",
            3,
        ),
        (Dot(k=1, a="int8", b="int8", o="int16", rounding="exact", saturate=True), "dot1_int8_int8_int16_exact_sat", 0),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_unit_names_carry_parameters(unit, name, latency):
    assert (unit.name, unit.latency) == (name, latency)
    assert hasattr(unit, "en") == (latency > 0)


def test_unit_names_differ_by_format():
    units = [Convert(a=a, o=E5M2) for a in (Float(3, 2), Float(3, 2, specials="fn"), Float(3, 2, specials="finite"))]
    units += [Convert(a=Float(3, 2, bias=bias), o=E5M2) for bias in (-1, 1, 11)]
    assert len({unit.name for unit in units}) == len(units)


def test_unit_names_differ_by_sum():
    units = [Quire(a="posit8", b="posit8", o=o, carry=carry) for o in ("posit8", "posit8e1") for carry in (30, 31)]
    units += [Accumulate(a="posit8", acc="exact", o=o, carry=carry) for o in ("posit8", "int8") for carry in (30, 31)]
    units += [Accumulate(a=a, acc="posit8") for a in ("fxp2.4", "fxp-2.4", "ufxp2.4", "fxp2.4-wrap", "posit8")]
    units += [Dot(k=k, a="int8", b="int8", o="int8", c=c, order=order) for k, c, order in DOTS]
    units += [Mac(a="int8", b="int8", acc="exact", carry=carry, product=None) for carry in (1, 31)]
    assert len({unit.name for unit in units}) == len(units)


DOTS = [(k, c, order) for k in (1, 2, 12) for c in (None, "int8", "posit8") for order in ("exact", "sequential")]


def test_sum_units_have_documented_ports():
    """Ports: operands, start value, start of a sum, random words, result, and a clock enable if there are registers."""
    one, posit, fixed = unsigned(1), parse("posit8"), parse("fxp4.4")
    begin = {"load": one, "clear": one}
    for unit, inputs, o in (
        (Quire(a=posit, b=fixed, o=E5M2), {"a": posit, "b": fixed, "c": E5M2, "subtract": one, **begin}, E5M2),
        (Accumulate(a=posit, acc=E6M5), {"a": posit, "c": E6M5, **begin}, E6M5),
        (Accumulate(a=posit, acc="exact"), {"a": posit, "c": posit, **begin}, posit),
        (Mac(a=posit, b=fixed, acc="exact", o=E6M5), {"a": posit, "b": fixed, "c": E6M5, **begin}, E6M5),
        (Dot(k=2, a=posit, b=fixed, o=E5M2), {"a0": posit, "a1": posit, "b0": fixed, "b1": fixed}, E5M2),
        (Dot(k=1, a=posit, b=fixed, c=E6M5, o=E5M2), {"a0": posit, "b0": fixed, "c": E6M5}, E5M2),
    ):
        assert (unit.inputs, unit.outputs) == (inputs, {"o": o})
        for name, shape in {**unit.inputs, **unit.outputs}.items():
            assert unit.signature.members[name].shape == shape
        assert ("en" in unit.signature.members) == ("valid" in unit.signature.members) == unit.stateful
    random = {"random": unsigned(5)}
    assert Quire(a=posit, b=posit, o=posit, rounding="sr5").inputs["random"] == unsigned(5)
    assert random.items() <= Dot(k=3, a=posit, b=posit, o=posit, rounding="sr5").inputs.items()
    sequential = Dot(k=3, a=posit, b=posit, o=posit, rounding="sr5", order="sequential")
    assert {f"random{index}": unsigned(5) for index in range(3)}.items() <= sequential.inputs.items()
    assert not random.items() <= sequential.inputs.items()


def test_dot_ports_are_lists():
    unit = Dot(k=3, a="posit8", b="fxp4.4", o="e5m2", c="e6m5", build=Build(pipeline=1))
    assert unit.spec.k == 3
    assert [port.shape() for port in unit.a] == [parse("posit8")] * 3
    assert [port.shape() for port in unit.b] == [parse("fxp4.4")] * 3
    assert [port.as_value() is getattr(unit, f"b{index}").as_value() for index, port in enumerate(unit.b)] == [True] * 3
    assert list(unit.inputs) == ["a0", "a1", "a2", "b0", "b1", "b2", "c"]
    assert len(Dot(k=1, a="posit8", b="posit8", o="posit8").a) == 1
    assert unit.parameters == {
        "a": parse("posit8"),
        "b": parse("fxp4.4"),
        "o": E5M2,
        "c": E6M5,
        "order": "exact",
        "rounding": RN,
        "saturate": False,
    }


def test_catalogue_build_has_defaults():
    unit = build("mac", "e5m2")
    assert unit.parameters["acc"] == E6M5
    assert unit.parameters["product"] is None
    assert unit.parameters["rounding"] == RN
    assert build("mac", "e5m2", product="e5m2.rz").name == "mac_e5m2_e5m2_e5m2_rz_e6m5_rn"
    assert build("mac", "e5m2", product="e5m2").name == "mac_e5m2_e5m2_e5m2_rn_e6m5_rn"
    assert build("convert", "bf16").parameters["o"] == E4M3FN
    assert build("fma", "e5m2", c="e6m5").parameters["o"] == E6M5
    assert build("mac", "posit8").name == "mac_posit8_posit8_posit16_rn"
    assert build("mac", "fxp4.4", acc="exact", to="fxp8.8", carry=3).name == "mac_fxp4_4_fxp4_4_exact_fxp8_8_rn_carry_3"
    assert build("accumulate", "int8").name == "accumulate_int8_int32_rn"
    assert build("accumulate", "e5m2", acc="exact").name == "accumulate_e5m2_exact_e5m2_rn"
    assert build("quire", "posit16", to="posit32", carry=8).name == "quire_posit16_posit16_posit32_rn_carry_8"
    assert build("dot", "posit8").spec.k == 4
    assert (
        build("dot", "posit8", k=2, c="int8", order="sequential").name
        == "dot2_posit8_posit8_int8_int8_rn_order_sequential"
    )


class Scaled(wiring.Component):
    """Design that contains a dot product."""

    def __init__(self, unit):
        self.unit = unit
        super().__init__(
            {
                "x": In(data.ArrayLayout(unit.spec.a, unit.spec.k)),
                "y": In(data.ArrayLayout(unit.spec.b, unit.spec.k)),
                "enable": In(1),
                "o": Out(unit.spec.o),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.unit = unit = self.unit
        for index in range(unit.spec.k):
            m.d.comb += [unit.a[index].eq(self.x[index]), unit.b[index].eq(self.y[index])]
        if unit.build.pipeline:
            m.d.comb += unit.en.eq(self.enable)
        m.d.comb += self.o.eq(unit.o)
        return m


@pytest.mark.sampled(15, 2)
@pytest.mark.parametrize("pipeline", [0, 1, 3, 9])
@pytest.mark.parametrize(
    ("a", "b", "o", "order"),
    [
        ("posit8", "posit8", "posit8", "exact"),
        ("posit8", "fxp4.4", "e5m2", "sequential"),
        ("int8", "int8", "int16", "exact"),
    ],
)
def test_dot_works_inside_a_design(a, b, o, order, pipeline):
    """One result per enabled cycle, delayed by the latency."""
    unit = Dot(k=3, a=a, b=b, o=o, order=order, build=Build(pipeline=pipeline))
    top = Scaled(unit)
    rng = random.Random(f"{a}{b}{pipeline}")
    rows = [[[rng.getrandbits(8) for _ in range(3)] for _ in "ab"] for _ in range(40)]
    formats = {"a": parse(a), "b": parse(b), "o": parse(o)}
    expected = [exact.dot(x, y, **formats, order=order) for x, y in rows]
    found = []

    async def drive(context):
        for x, y in [*rows, *rows[: unit.latency]]:
            context.set(top.x.as_value(), sum(code << (8 * index) for index, code in enumerate(x)))
            context.set(top.y.as_value(), sum(code << (8 * index) for index, code in enumerate(y)))
            while pipeline and rng.random() < 0.3:
                context.set(top.enable, 0)
                before = context.get(top.o).code
                await context.tick()
                assert context.get(top.o).code == before
            context.set(top.enable, 1)
            if not pipeline:
                await context.delay(1e-9)
            found.append(context.get(top.o).code)
            if pipeline:
                await context.tick()

    simulator = Simulator(top)
    if pipeline:
        simulator.add_clock(1e-6)
    simulator.add_testbench(drive)
    simulator.run()
    assert found[unit.latency :] == expected


@pytest.mark.sampled(6, 2)
@pytest.mark.parametrize(
    ("unit", "sequence"),
    [
        (Quire(a="fxp4.4", b="e5m2", o="fxp8.4-wrap", rounding="sr3"), golden.quire_sequence),
        (Quire(a="posit8", b="posit8", o="posit8", carry=1, build=Build(pipeline=2)), golden.quire_sequence),
        (
            Accumulate(a="posit8", acc="exact", o="e5m2", rounding="ru", build=Build(pipeline=1)),
            golden.accumulate_sequence,
        ),
        (Accumulate(a="int8", acc="fxp6.2-wrap"), golden.accumulate_sequence),
        (Mac(a="posit8", b="int8", acc="exact", product="fxp4.4", product_rounding="rz"), golden.mac_sequence),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_accumulators_match_golden_in_amaranth_simulator(unit, sequence):
    """Compare with the golden sequence of valid steps, with gaps and a disabled clock."""
    rng = random.Random(unit.name)
    widths = {name: Shape.cast(shape).width for name, shape in unit.inputs.items()}
    steps = []
    for _ in range(60):
        codes = {name: rng.getrandbits(width) for name, width in widths.items()}
        codes |= {"load": rng.random() < 0.1, "clear": rng.random() < 0.1}
        steps.append({**codes, "valid": rng.random() < 0.7})
    # Steps without effect flush the pipeline registers.
    steps += [dict.fromkeys(steps[0], 0)] * unit.latency
    found = []

    async def drive(context):
        for step in steps:
            for name, code in step.items():
                context.set(Value.cast(getattr(unit, name)), int(code))
            while rng.random() < 0.3:
                context.set(unit.en, 0)
                await context.tick()
            context.set(unit.en, 1)
            await context.tick()
            found.append(context.get(unit.o.as_value()))

    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(drive)
    simulator.run()
    taken = [index for index, step in enumerate(steps) if step["valid"]]
    columns = {name: torch.tensor([int(steps[index][name]) for index in taken]) for name in unit.inputs}
    words = {"random": columns.pop("random")} if "random" in columns else {}
    names = [name for name in ("a", "b", "c", "subtract", "load", "clear") if name in columns]
    expected = sequence(*(columns[name] for name in names), **unit.parameters, **words).tolist()
    assert [found[index + unit.latency - 1] for index in taken] == expected


def sample(name, *formats):
    """Return the first format that the unit accepts, or a block."""
    row = CATALOGUE[name]
    return next((fmt for fmt in (*formats, "fxp4.4") if row.spec.takes(parse(fmt), None)), BLOCK)


@pytest.mark.sampled(50, 5)
@pytest.mark.parametrize("pipeline", [0, 1, 2, 5])
@pytest.mark.parametrize("name", CATALOGUE)
def test_stream_gives_every_result_once_in_order(name, pipeline):
    """Compare with the same unit without registers and stream, with gaps on both sides."""
    dut = Streamed(build(name, sample(name, "e4m3fn"), pipeline=pipeline))
    words = [(37 * n * n + 11 * n) % (1 << Shape.cast(dut.i.payload.shape()).width) for n in range(60)]
    received, held = [], None

    async def produce(context):
        for n, word in enumerate(words):
            for _ in range(n % 3 if n < 30 else 0):
                await context.tick()
            context.set(dut.i.payload.as_value(), word)
            context.set(dut.i.valid, 1)
            await context.tick().until(dut.i.ready)
            context.set(dut.i.valid, 0)

    async def consume(context):
        nonlocal held
        beat = 0
        while len(received) < len(words):
            beat += 1
            context.set(dut.o.ready, beat % 4 in (0, 3) or len(received) > 40)
            _, _, valid, ready, payload = await context.tick().sample(
                dut.o.valid, dut.o.ready, dut.o.payload.as_value()
            )
            if held is not None:
                assert valid, "a waiting result went away"
                assert payload == held, "a waiting result changed"
            held = payload if valid and not ready else None
            if valid and ready:
                received.append(payload)

    top = Module()
    top.domains.sync = ClockDomain()
    top.submodules.dut = dut
    simulator = Simulator(top)
    simulator.add_clock(1e-6)
    simulator.add_testbench(produce)
    simulator.add_testbench(consume)
    simulator.run_until(1e-3)
    assert received == reference(name, words)


def reference(name, words):
    """Return the results of the combinational unit (of the accumulator after each step) for packed operands."""
    dut = build(name, sample(name, "e4m3fn"))
    results = []

    async def drive(context):
        for word in words:
            for port, shape in dut.inputs.items():
                width = Shape.cast(shape).width
                signal = getattr(dut, port)
                context.set(getattr(signal, "as_value", lambda signal=signal: signal)(), word & ((1 << width) - 1))
                word >>= width
            if dut.latency:
                await context.tick()
            else:
                await context.delay(1e-9)
            packed, low = 0, 0
            for port, shape in dut.outputs.items():
                signal = getattr(dut, port)
                packed |= context.get(getattr(signal, "as_value", lambda signal=signal: signal)()) << low
                low += Shape.cast(shape).width
            results.append(packed)

    simulator = Simulator(dut)
    if dut.latency:
        simulator.add_clock(1e-6)
    simulator.add_testbench(drive)
    simulator.run()
    return results


def test_add_exact_difference_needs_sign():
    assert Add(a="uint4", b="uint4", o="int6", rounding="exact").result == parse("int6")
    with pytest.raises(ValueError, match="uint5 cannot hold every result of add uint4"):
        Add(a="uint4", b="uint4", o="uint5", rounding="exact")
