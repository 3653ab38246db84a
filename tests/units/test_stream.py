"""Streams and valid bits of units: order, sums, back-pressure, and what travels with operands."""

import itertools
import random

import pytest
from amaranth.hdl import ClockDomain, Module
from amaranth.sim import Simulator

from halfulp.hdl.specs import Build
from halfulp.units.axi_stream import AxiStream
from halfulp.units.catalogue import component
from halfulp.units.stream import Streamed
from halfulp.units.tracked import Tracked
from halfulp.units.verilog import default_name, emit, verilog_ports

COUNT = 90
"""Transfers of each test."""


class Stream:
    """Signals of a stream in the simulator, with its fields by name."""

    def __init__(self, beats):
        self.valid, self.ready, self.fields = beats.valid, beats.ready, dict(beats.fields)


def exchange(dut, sent, count, seed=1):
    """Send fields by stream with gaps and return the results, received with back-pressure.

    The first quarter has no gaps and no back-pressure. A ready that comes from a register does not change with the
    ready of the results within a cycle, nor with valid.
    """
    noise = random.Random(seed)
    received, waiting = [], []
    sources = {name: Stream(raw(dut, name)) for name in dut.channels}
    sink = Stream(dut.sink())

    def produce(name):
        async def run(context):
            stream = sources[name]
            for number, fields in enumerate(sent[name]):
                while number > COUNT // 4 and noise.random() < 0.3:
                    await context.tick()
                for field, value in fields.items():
                    context.set(stream.fields[field], value)
                context.set(stream.valid, 1)
                await context.tick().until(stream.ready)
                context.set(stream.valid, 0)

        return run

    async def consume(context):
        held = None
        while len(received) < count:
            context.set(sink.ready, len(received) < count // 4 or noise.random() < 0.5)
            before = [context.get(stream.ready) for stream in sources.values()]
            if dut.registered:
                context.set(sink.ready, 1 - context.get(sink.ready))
                assert [context.get(stream.ready) for stream in sources.values()] == before
                context.set(sink.ready, 1 - context.get(sink.ready))
            _, _, *values, valid, ready = await context.tick().sample(*sink.fields.values(), sink.valid, sink.ready)
            assert held is None or (valid and values == held), "a waiting result changed"
            held = values if valid and not ready else None
            if valid and ready:
                received.append(dict(zip(sink.fields, values, strict=True)))
        context.set(sink.ready, 1)
        for _ in range(20):
            await context.tick()
            waiting.append(context.get(sink.valid))

    top = Module()
    top.domains.sync = ClockDomain()
    top.submodules.dut = dut
    simulator = Simulator(top)
    simulator.add_clock(1e-6)
    for name in dut.channels:
        simulator.add_testbench(produce(name))
    simulator.add_testbench(consume)
    simulator.run_until(2e-3)
    assert len(received) == count
    assert not any(waiting), "more results than expected"
    return received


def raw(dut, name):
    """Return the signals of a stream of operands; ``keep`` in its bytes."""
    beats = dut.source(name)
    if "keep" in beats.fields:
        fields = dict(beats.fields) | {"keep": getattr(dut, f"{dut.prefix(name)}_tkeep")}
        return type(beats)(beats.valid, beats.ready, fields)
    return beats


def words(count, low, high, seed):
    """Return random integers."""
    return [random.Random(seed * 1000 + number).randrange(low, high) for number in range(count)]


def split(dut, rows):
    """Return the fields of each row by stream."""
    return {name: [{field: row[field] for field in fields} for row in rows] for name, fields in dut.channels.items()}


def signed(value, bits):
    """Return the number of a code in two's complement."""
    return value - (1 << bits) * (value >> (bits - 1))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("kind", [Streamed, AxiStream])
@pytest.mark.parametrize("registered", [False, True])
@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("pipeline", [0, 2])
def test_stream_of_products_carries_last_and_user(kind, registered, separate, pipeline):
    unit = component("mul int4*int4=int8", Build(pipeline=pipeline))
    beside = {"tlast": True, "tuser": 5} if kind is AxiStream else {"last": True, "user": 5}
    dut = kind(unit, **beside, registered=registered, separate=separate)
    columns = (words(COUNT, 0, top, seed) for seed, top in enumerate((16, 16, 2, 32)))
    rows = [dict(zip(("a", "b", "last", "user"), row, strict=True)) for row in zip(*columns, strict=True)]
    products = [signed(row["a"], 4) * signed(row["b"], 4) & 255 for row in rows]
    expected = [
        {"o": product, "last": row["last"], "user": row["user"]} for product, row in zip(products, rows, strict=True)
    ]
    assert exchange(dut, split(dut, rows), COUNT) == expected


def test_axi_stream_keeps_all_bytes_of_a_result_or_none():
    dut = AxiStream(component("mul int4*int4=int12", Build(pipeline=1)), tkeep=True)
    rows = [{"a": number % 16, "b": 3, "keep": (3, 3, 1, 2, 0)[number % 5]} for number in range(COUNT)]
    results = exchange(dut, split(dut, rows), COUNT)
    assert [result["keep"] for result in results] == [3 * (row["keep"] == 3) for row in rows]
    assert [result["o"] for result in results] == [signed(row["a"], 4) * 3 & 4095 for row in rows]


def test_stream_of_iterative_unit_carries_user():
    dut = Streamed(component("div int8/int4=int8.rz", Build(iterations=2)), user=6, registered=True, separate=True)
    rows = [{"a": number, "b": 1 + number % 7, "user": number % 64} for number in range(40)]
    results = exchange(dut, split(dut, rows), 40)
    assert results == [{"o": row["a"] // row["b"], "user": row["user"]} for row in rows]


SUMS = (
    ("mac int4*int4+int16", lambda row: signed(row["a"], 4) * signed(row["b"], 4)),
    ("mac int4*int4+int16 interleave=3", lambda row: signed(row["a"], 4) * signed(row["b"], 4)),
    ("accumulate int4+int16", lambda row: signed(row["a"], 4)),
    ("quire int4*int4=int16", lambda row: (1 - 2 * row["subtract"]) * signed(row["a"], 4) * signed(row["b"], 4)),
    (
        "dotmac2 int4*int4+int16",
        lambda row: sum(signed(row[f"a{place}"], 4) * signed(row[f"b{place}"], 4) for place in range(2)),
    ),
)
"""Units with an accumulator, and the term of a step in Python."""


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("text", "term"), SUMS, ids=[text for text, _ in SUMS])
@pytest.mark.parametrize("pipeline", [0, 2])
@pytest.mark.parametrize("separate", [False, True])
def test_stream_of_sums_gives_one_result_at_last(text, term, pipeline, separate):
    """A sum starts from +0, or from ``c`` where ``load`` is 1; sums that take turns end at their own last."""
    unit = component(text, Build(pipeline=pipeline))
    dut = Streamed(unit, last=True, user=4, separate=separate, registered=separate)
    turns = unit.spec.interleave
    noise, rows, expected, sums = random.Random(7), [], [], [None] * turns
    for number in range(COUNT):
        row = {name: noise.randrange(1 << 4) for name in unit.inputs if name[0] in "ab"}
        row |= {"c": noise.randrange(1 << 16), "load": noise.random() < 0.1, "subtract": noise.random() < 0.5}
        row |= {"last": noise.random() < 0.3 or number >= COUNT - turns, "user": noise.randrange(16)}
        row |= {name: int(value) for name, value in row.items()}
        rows.append({name: row[name] for fields in dut.channels.values() for name in fields})
        start = signed(row["c"], 16) if row["load"] else sums[number % turns] or 0
        total = max(min(start + term(row), (1 << 15) - 1), -(1 << 15))
        sums[number % turns] = None if row["last"] else total
        if row["last"]:
            expected.append({"o": total & 0xFFFF, "last": 1, "user": row["user"]})
    assert exchange(dut, split(dut, rows), len(expected)) == expected


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: Streamed(component("sqrt e5m2"), separate=True), "one operand"),
        (lambda: AxiStream(component("mac int4*int4+int8"), tkeep=True), "sums"),
        (lambda: Streamed(component("mul int4*int4"), user=-1), "user -1"),
        (lambda: AxiStream(component("mul int4*int4")).emit_options("async-low"), "sync or async"),
        (lambda: Tracked(component("mul int4*int4"), valid=True), "register stages"),
        (lambda: Tracked(component("mul int4*int4", Build(pipeline=1))), "one of them"),
        (lambda: Tracked(component("div e5m2/e5m2", Build(iterations=1)), valid=True), "iterative"),
    ],
)
def test_streams_refuse_parameters_without_effect(make, word):
    with pytest.raises(ValueError, match=word):
        make()


def test_streams_refuse_wrong_types():
    with pytest.raises(TypeError, match="last"):
        Streamed(component("mul int4*int4"), last=1)
    with pytest.raises(TypeError, match="Tracked takes a Unit"):
        Tracked("mul", valid=True)


def test_names_of_streams_differ_by_option():
    unit = component("mac int4*int4+int8", Build(pipeline=1))
    choices = itertools.product([False, True], [0, 1, 2], [False, True], [False, True])
    names = [
        kind(unit, **{first: last, second: user}, registered=registered, separate=separate).name
        for last, user, registered, separate in choices
        for kind, first, second in ((Streamed, "last", "user"), (AxiStream, "tlast", "tuser"))
    ]
    names += [Tracked(unit, valid=valid, tag=tag).name for valid, tag in ((True, 0), (True, 3), (False, 3))]
    assert len(names) == len(set(names))
    assert default_name(AxiStream(unit, tlast=True)).endswith("_p1_axis_tlast")


@pytest.mark.parametrize("text", ["mul int4*int4=int8", "add int4+int4=int5.sr2@lfsr8", "mac int4*int4+int16"])
def test_tracked_results_have_valid_and_tag_of_operands(text):
    """Valid and tag come with the result of their operands in stalls, too."""
    plain = component(text, Build(pipeline=2))
    dut = Tracked(component(text, Build(pipeline=2)), valid=True, tag=7)
    assert dut.latency == plain.latency
    noise, found, sent = random.Random(3), [], []

    async def drive(context):
        for cycle in range(200):
            enable, valid = noise.random() < 0.7, noise.random() < 0.6
            a, b, tag = noise.randrange(16), noise.randrange(16), noise.randrange(128)
            for name, value in (("en", enable), ("valid", valid), ("tag", tag)):
                context.set(getattr(dut, name), value)
            for name, value in (("a", a), ("b", b)):
                context.set(getattr(dut, name).as_value(), value)
            if enable:
                sent.append((valid, tag, signed(a, 4), signed(b, 4)))
            await context.tick()
            if enable:
                found.append((context.get(dut.o_valid), context.get(dut.o_tag), context.get(dut.o.as_value())))
            assert not (context.get(dut.o_valid) and cycle < plain.latency - 1)

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(drive)
    simulator.run()
    total, pairs = 0, list(zip(sent, found[dut.latency - 1 :], strict=False))
    assert len(pairs) > 100
    for (valid, tag, a, b), (o_valid, o_tag, o) in pairs:
        total += a * b * valid
        assert (o_valid, o_tag) == (valid, tag)
        if valid:
            expected = {"mul": a * b & 255, "add": a + b & 31, "mac": total & 0xFFFF}[text[:3]]
            assert o == expected


def test_emitted_axi_stream_has_clock_reset_and_signals():
    dut = AxiStream(component("mul e5m2*e5m2", Build(pipeline=1)), tlast=True, tkeep=True, separate=True)
    text = emit(dut, dut.name, **dut.emit_options("async", {"clk": "clock"}))
    widths = {port.name: port.width for port in verilog_ports(text, dut.name)}
    assert widths["clock"] == widths["aresetn"] == widths["s_axis_a_tkeep"] == widths["m_axis_tlast"] == 1
    assert "s_axis_b_tlast" not in widths
    assert "b e5m2 [7:0]" in text.partition("module")[0]
    combinational = AxiStream(component("mul e5m2*e5m2"))
    ports = {port.name for port in verilog_ports(emit(combinational, "top", **combinational.emit_options()), "top")}
    assert {"aclk", "aresetn"} <= ports
