"""Register stages: schedules of small graphs against all schedules, and of units by the delay model."""

import itertools
import random
from collections.abc import Iterator
from typing import Any

import networkx
import pytest
from amaranth.hdl import Const, Fragment, Module, Shape, Signal, Value
from amaranth.hdl._ast import Assign, Concat, Operator, Slice, Switch, SwitchValue
from amaranth.sim import Simulator

from halfulp.hdl import floating
from halfulp.hdl.dataflow import Dataflow
from halfulp.hdl.delay import ECP5
from halfulp.hdl.formats import parse
from halfulp.hdl.operators import GAIN, STARTS
from halfulp.hdl.pipeline import Stages
from halfulp.hdl.raw import order
from halfulp.hdl.schedule import CHAIN, INPUT, LOGIC, NEXT, SINK, STEP, Flow, Graph, Node
from halfulp.implementation import Implementation
from halfulp.sim.ports import Ports


def results(text: str, stages: int, inputs: list[dict[str, int]]) -> list[int]:
    """Return the results of a unit with register stages, one for each cycle of inputs."""
    unit = Implementation.parse(text, pipeline=stages).component()
    found = []

    async def drive(context: Any) -> None:
        for given in [*inputs, *[{"valid": 0}] * unit.latency]:
            for name, code in given.items():
                context.set(Value.cast(getattr(unit, name)), code)
            found.append(context.get(Value.cast(unit.o)))
            await context.tick()

    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(drive)
    simulator.run()
    return found[unit.latency :]


@pytest.mark.sampled(12, 2)
@pytest.mark.parametrize("stages", [1, 2, 4])
@pytest.mark.parametrize(
    "text",
    [
        "mac fxp1.2*fxp1.2+exact=fxp3.1.sr2",
        "mac fxp1.2*fxp1.2+exact=fxp3.1.sr2@lfsr5",
        "mac e2m1*e2m1+e3m2.sr3@lfsr5",
        "quire posit4*posit4=posit4",
    ],
)
def test_idle_cycles_change_no_sum(text: str, stages: int) -> None:
    rng = random.Random(stages)
    unit = Implementation.parse(text).component()
    inputs = [
        {port.name: rng.randrange(1 << port.width) for port in Ports.inputs_of(unit)}
        | {"load": rng.random() < 0.2, "clear": rng.random() < 0.1, "valid": rng.random() < 0.5}
        for _ in range(200)
    ]
    assert results(text, stages, inputs) == results(text, 0, inputs)


def test_pieces_of_an_exact_sum_have_stages_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "accumulate fxp32.32+exact=fxp3.1.rz"
    unit = Implementation.parse(text, pipeline=4).component()
    assert unit.slots["held_from_32"] > unit.slots["held_from_0"]
    mhz = unit.model_mhz
    monkeypatch.setattr("halfulp.units.running_sum.PIECE", 128)
    whole = Implementation.parse(text, pipeline=4).component()
    assert "held_from_32" not in whole.slots
    assert mhz > whole.model_mhz


def operators(item: Any) -> Iterator[Operator]:
    """Yield the operators of a statement or value, each as often as it is written."""
    match item:
        case list():
            children = item
        case Assign():
            children = [item.rhs]
        case Switch():
            children = [item.test, *(inner for _, statements, _ in item.cases for inner in statements)]
        case SwitchValue():
            children = [item.test, *(value for _, value in item.cases)]
        case Operator():
            yield item
            children = item.operands
        case Concat():
            children = item.parts
        case Slice():
            children = [item.value]
        case _:
            children = []
    for child in children:
        yield from operators(child)


@pytest.mark.parametrize("text", ["mac e5m2*e5m2+e6m5.sr10@lfsr16", "mul int8*int8", "add posit8+posit8"])
def test_stages_write_each_operator_once(text: str) -> None:
    fragment = Fragment.get(Implementation.parse(text, pipeline=2).component().elaborate(None), None)
    written = [id(operator) for statements in fragment.statements.values() for operator in operators(statements)]
    assert len(written) == len(set(written)) > 20


def graph_of(rng: random.Random, latency: int) -> Graph:
    """Return a random graph of two operands, some logic, carry chains of one or two pieces, and one result."""
    nodes = [Node(INPUT, 0, 2), Node(INPUT, 2, 2)]
    bits = 4
    for _ in range(rng.randrange(2, 6)):
        width = rng.randrange(1, 5)
        local = [[rng.randrange(bits) for _ in range(2)] for _ in range(width)]
        if rng.random() < 0.5:
            delays, ends = [rng.choice((500, 1000, 1500)) for _ in local], [rng.choice((0, 400)) for _ in local]
            nodes.append(Node(LOGIC, bits, width, local=local, leaves=local, delays=delays, ends=ends))
        else:
            first = Node(CHAIN, bits, width + 1, local=local, delays=[100, 1200])
            nodes.append(first)
            bits += 1
            if rng.random() < 0.5:
                common = [bits + width - 1]
                constant = [[] for _ in local]
                nodes.append(Node(CHAIN, bits + width, width, local=constant, common=common, delays=[100, 1200]))
                bits += width
        bits += width
    nodes.append(Node(SINK, bits, 0, common=[*range(max(4, bits - rng.choice((4, 12))), bits)]))
    return Graph(nodes, latency, lambda readers: 0)


def registers(graph: Graph, slots: list[int]) -> int:
    """Return the register bits of a schedule."""
    return sum(
        bits * (max(slots[user] for user in users) - slots[place])
        if len(users) == 1
        else bits * max(slots[user] - slots[place] for user in users)
        for place, buses in enumerate(graph.buses)
        for users, bits in buses.items()
    )


def all_slots(graph: Graph) -> list[list[int]]:
    """Return all schedules of a graph."""
    middle = len(graph.nodes) - 3
    found = []
    for chosen in itertools.product(range(graph.latency + 1), repeat=middle):
        slots = [0, 0, *chosen, graph.latency]
        if all(slots[place] >= slots[other] for place in range(len(slots)) for other in graph.operands[place]):
            found.append(slots)
    return found


@pytest.mark.parametrize("seed", range(50))
def test_schedule_has_the_smallest_delay(seed: int) -> None:
    rng = random.Random(seed)
    graph = graph_of(rng, rng.randrange(1, 4))
    slots, delay = graph.schedule()
    every = all_slots(graph)
    least = min(map(graph.delay, every))
    assert slots in every
    assert graph.delay(slots) <= delay
    assert delay == pytest.approx(least, abs=STEP)
    if graph.latency == 1:
        assert registers(graph, slots) == min(registers(graph, other) for other in every if graph.delay(other) <= delay)


@pytest.mark.parametrize("seed", range(10))
def test_minimum_cut_agrees_with_networkx(seed: int) -> None:
    rng = random.Random(seed)
    flow, other = Flow(), networkx.DiGraph()
    other.add_nodes_from([flow.source, flow.sink, *(flow.node() for _ in range(6))])
    room = {(a, b): rng.randrange(1, 9) for a in range(8) for b in range(8) if a != b and rng.random() < 0.4}
    for (a, b), bits in room.items():
        flow.edge(a, b, bits)
        other.add_edge(a, b, capacity=bits)
    reached = flow.minimum_cut()
    assert reached[flow.source]
    assert not reached[flow.sink]
    crossing = sum(bits for (a, b), bits in room.items() if reached[a] and not reached[b])
    assert crossing == networkx.minimum_cut_value(other, flow.source, flow.sink)


@pytest.mark.slow
@pytest.mark.sampled(2, 2)
@pytest.mark.parametrize("text", ["add posit8+posit8", "fma e5m2*e5m2+e5m2", "mul fp16*fp16", "dot3 int8*int8=fp32"])
def test_delay_falls_with_each_stage(text: str) -> None:
    delays = []
    for stages in range(9):
        unit = Implementation.parse(text, pipeline=stages).component()
        m = Module()
        unit.logic(m)
        delays.append(unit._dataflow(m, unit.latency).schedule()[1])
    assert all(later <= earlier * 1.001 for earlier, later in itertools.pairwise(delays))
    assert delays[8] < delays[0] / 3


@pytest.mark.parametrize(("text", "stages"), [("fma e5m2*e5m2+e5m2", 5), ("add posit8+posit8", 2)])
def test_delay_of_a_schedule_is_that_with_its_own_lookup_tables(text: str, stages: int) -> None:
    unit = Implementation.parse(text, pipeline=stages).component()
    flow = unit.dataflow(stages)
    slots, delay = flow.schedule()
    flow.cover(slots)
    graph = Graph([operation.node for operation in flow.operations], flow.latency, ECP5.net)
    assert delay == graph.delay(slots) + ECP5.register


@pytest.mark.slow
@pytest.mark.parametrize("text", ["add e5m2+e5m2", "mul posit8*posit8"])
def test_stages_that_gain_little_are_output_registers(text: str) -> None:
    found = []
    for stages in range(6, 13):
        flow = Implementation.parse(text, pipeline=stages).component().dataflow(stages)
        slots, delay = flow.schedule()
        kinds = [operation.node.kind for operation in flow.operations]
        inner = [slot for kind, slot in zip(kinds, slots, strict=True) if kind != SINK]
        assert {slot for kind, slot in zip(kinds, slots, strict=True) if kind == SINK} == {stages}
        found.append((delay, inner))
    little = 0
    for (slower, before), (faster, after) in itertools.pairwise(found):
        assert before == after or slower > GAIN * faster
        little += before == after
    assert little


@pytest.mark.slow
def test_starts_with_other_delays_lead_to_faster_schedules(monkeypatch: pytest.MonkeyPatch) -> None:
    flow = Implementation.parse("mul bf16*bf16.rn", pipeline=2).component().dataflow(2)
    _, fast = flow._fastest(2)
    monkeypatch.setattr("halfulp.hdl.operators.STARTS", STARTS[:1])
    assert flow._fastest(2)[1] > 1.05 * fast


@pytest.mark.slow
def test_start_with_tables_of_one_stage_fewer_leads_to_faster_schedules() -> None:
    """The other starts find no schedule of eight stages that is much faster than one of seven."""
    seven, eight = (
        Implementation.parse("pwl tanh(fxp4.12).rn pieces=8", pipeline=stages).component().dataflow(stages)
        for stages in (7, 8)
    )
    assert seven.schedule()[1] > 1.05 * eight.schedule()[1]


def test_logic_of_more_inputs_is_slower() -> None:
    for few, many in ((1, ECP5.widest), (ECP5.widest + 1, 70)):
        delays = [ECP5.logic(inputs) for inputs in range(few, many + 1)]
        assert delays == sorted(delays)
    assert ECP5.logic(1) == 0


@pytest.mark.parametrize(("inputs", "more"), [(4, 0), (5, ECP5.wide + ECP5.apart)])
def test_register_behind_a_wide_multiplexer_is_a_cell_of_its_own(inputs: int, more: int) -> None:
    a, o, m = Signal(inputs), Signal(), Module()
    m.d.comb += o.eq(a.xor())
    flow = Dataflow(m, outputs=[o], enable=Const(1, 1), latency=0, model=ECP5)
    assert flow.schedule()[1] == ECP5.level + more + ECP5.register


@pytest.mark.parametrize(("text", "ends"), [("", []), (" interleave=2", [ECP5.apart])])
def test_registers_of_one_value_are_cells_of_their_own(text: str, ends: list[int]) -> None:
    unit = Implementation.parse(f"mac e2m1*e2m1+e3m2.rn{text}", pipeline=1, target="ecp5").component()
    found = [one.node.ends for one in unit.dataflow(1).operations if one.node.kind == NEXT]
    assert found[-1] == ends


def test_sum_with_zero_has_no_delay() -> None:
    a, o, m = Signal(8), Signal(8), Module()
    m.d.comb += o.eq(a + Const(0, 3))
    flow = Dataflow(m, outputs=[o], enable=Const(1, 1), latency=0, model=ECP5)
    assert flow.schedule()[1] == ECP5.register


@pytest.mark.parametrize("word", ["<<", ">>"])
@pytest.mark.parametrize("places", [0, 3, 7, 9])
@pytest.mark.parametrize("is_signed", [False, True])
def test_shift_by_a_constant_is_wires(word: str, places: int, is_signed: bool) -> None:
    a = Signal(Shape(8, is_signed))
    shifted = Operator(word, [a, Const(places)])
    o, m = Signal(shifted.shape()), Module()
    m.d.comb += o.eq(shifted)
    flow = Dataflow(m, outputs=[o], enable=Const(1, 1), latency=0, model=ECP5)
    slots, delay = flow.schedule()
    assert delay == ECP5.register

    async def drive(context: Any) -> None:
        for code in range(256):
            context.set(a, code)
            assert context.get(o) == context.get(shifted)

    simulator = Simulator(Stages(flow, slots, enable=Const(1, 1)).m)
    simulator.add_testbench(drive)
    simulator.run()


@pytest.mark.parametrize("code", range(8))
def test_switch_by_a_constant_reads_only_its_case(code: int) -> None:
    signals = [Signal(Shape(3 + place, place == 1), name=f"case{place}") for place in range(3)]
    switch = SwitchValue(Const(code, 3), [(("001", "01-"), signals[0]), (("1-0",), signals[1]), (("0--",), signals[2])])
    o, m = Signal(switch.shape()), Module()
    m.d.comb += o.eq(switch)
    flow = Dataflow(m, outputs=[o], enable=Const(1, 1), latency=0, model=ECP5)
    slots, delay = flow.schedule()
    assert delay == ECP5.register
    chosen = {1: 0, 2: 0, 3: 0, 4: 1, 6: 1, 0: 2}.get(code)
    inputs = [operation.name for operation in flow.operations if operation.node.kind == INPUT]
    assert inputs == ([] if chosen is None else [f"case{chosen}"])

    rng = random.Random(code)

    async def drive(context: Any) -> None:
        for _ in range(8):
            for signal in signals:
                context.set(signal, rng.getrandbits(len(signal)))
            assert context.get(o) == context.get(switch)

    simulator = Simulator(Stages(flow, slots, enable=Const(1, 1)).m)
    simulator.add_testbench(drive)
    simulator.run()


def test_codes_of_one_format_order_their_magnitudes() -> None:
    delays = []
    for texts in (("e4m3", "e4m3"), ("e4m3", "e4m3-ftz"), ("e4m3", "e5m3")):
        m, less = Module(), Signal()
        formats = [parse(text) for text in texts]
        codes = [Signal(fmt.width, name=name) for fmt, name in zip(formats, "ab", strict=True)]
        x, y = (floating.unpack(m, code, fmt, code.name) for code, fmt in zip(codes, formats, strict=True))
        m.d.comb += less.eq(order(m, x, y).x_less)
        delays.append(Dataflow(m, outputs=[less], enable=Const(1, 1), latency=0, model=ECP5).schedule()[1])
    assert delays[0] + ECP5.level < min(delays[1:])


@pytest.mark.parametrize("goal", ["area", "speed"])
def test_sum_with_a_product_is_only_shifted_up(goal: str) -> None:
    unit = Implementation.parse("fma fp16*fp16+fp16", pipeline=2, goal=goal).component()
    assert not any(operation.name.startswith("shifted_down") for operation in unit.dataflow(2).operations)


@pytest.mark.parametrize(("build", "is_tree"), [({}, False), ({"pipeline": 1}, True), ({"goal": "speed"}, True)])
def test_rows_of_a_product_with_stages_are_a_tree(build: dict[str, Any], is_tree: bool) -> None:
    unit = Implementation.parse("fma fp16*fp16+fp16", **build).component()
    names = {operation.name for operation in unit.dataflow(unit.stages).operations}
    assert ("partial_product_from_0" in names) == is_tree
