"""Several sums in turn on one accumulator: bits, random words, schedules, and refusals."""

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from amaranth.hdl import Value
from amaranth.sim import Simulator

from halfulp import golden, unit
from halfulp.golden.nn import Policy
from halfulp.golden.random import of_stream
from halfulp.hdl.formats import parse
from halfulp.hdl.schedule import AFTER, CHAIN, INPUT, LOGIC, NEXT, SINK, STATE, STEP, Graph, Node
from halfulp.hdl.specs import UnitSpec
from halfulp.implementation import Implementation, implementation
from halfulp.sim.bench import result_formats
from halfulp.sim.mutation import faults
from halfulp.sim.ports import Columns, Ports
from halfulp.sim.reference import reference
from halfulp.sim.vectors import chains
from halfulp.units.systolic import Chain

TEXTS = [
    "mac e3m2*e3m2+e4m3.sr3@lfsr5 interleave=3",
    "mac e3m2*e3m2=e3m2.sr3+e4m3.sr3@plateau3:9 interleave=2",
    "accumulate e3m2+e4m3.sr4 interleave=5",
    "quire posit4*posit4=posit4 interleave=2",
    "mac fxp1.2*fxp1.2+exact=fxp3.1.sr2@lfsr5 interleave=3",
    "partmac e4m3x2*e4m3+e5m4.rn interleave=4",
]


def steps_of(text: str, count: int = 600) -> tuple[Any, Columns]:
    component = Implementation.parse(text).component()
    return component, chains(Ports.inputs_of(component), result_formats(component), count, 7, component.spec.interleave)


def of_each(component: Any, steps: Columns) -> np.ndarray:
    """Return the results of units that have one sum each."""
    spec, count = component.spec, component.spec.interleave
    seeds = spec.random.seeds(count, spec.seed) if spec.random else [1] * count
    found = np.zeros(len(steps["load"]), dtype=np.uint64)
    for turn, seed in enumerate(seeds):
        alone = Implementation(replace(spec, interleave=1, seed=seed)).component()
        own = {name: codes[turn::count].copy() for name, codes in steps.items()}
        found[turn::count] = reference(alone, own, chained=True)["o"]
    return found


@pytest.mark.sampled(2)
@pytest.mark.parametrize("text", TEXTS)
def test_interleaved_sums_are_those_of_units_with_one_sum(text: str) -> None:
    component, steps = steps_of(text)
    found = reference(component, steps, chained=True)["o"]
    assert np.array_equal(found, of_each(component, steps))
    assert len(np.unique(found)) > 4


def test_interleaved_sequence_of_any_length_has_as_many_results() -> None:
    for count in range(6):
        ones, zeros = torch.full((count,), 0x3C), torch.zeros(count, dtype=torch.int64)
        parameters = {"a": "fp16", "acc": "fp16", "interleave": 4}
        found = golden.accumulate_sequence(ones, zeros, zeros, zeros, **parameters)
        assert found.tolist() == [0x3C] * min(count, 4) + [0x78] * max(count - 4, 0)


def simulated(component: Any, inputs: list[dict[str, int]]) -> list[int]:
    """Return the output of a unit after each accepted cycle, ``latency`` cycles later."""
    found = []

    async def drive(context: Any) -> None:
        for given in [*inputs, *[{"valid": 0, "en": 1}] * component.latency]:
            for name, code in given.items():
                context.set(Value.cast(getattr(component, name)), code)
            await context.tick()
            if given["en"]:
                found.append(context.get(Value.cast(component.o).as_unsigned()))

    simulator = Simulator(component)
    simulator.add_clock(1e-6)
    simulator.add_testbench(drive)
    simulator.run()
    enabled = [given for given in inputs if given["en"]]
    return [found[at + component.latency - 1] for at, given in enumerate(enabled) if given["valid"]]


def busy(component: Any, likely: float, count: int = 150) -> list[dict[str, int]]:
    """Return random inputs; operands are valid with a probability."""
    rng = random.Random(3)
    return [
        {port.name: rng.randrange(1 << port.width) for port in Ports.inputs_of(component)}
        | {"load": rng.random() < 0.1, "clear": rng.random() < 0.1, "en": rng.random() < 0.8}
        | {"valid": rng.random() < likely}
        for _ in range(count)
    ]


def agrees(text: str, stages: int, likely: float, **build: Any) -> bool:
    component = Implementation.parse(text, pipeline=stages, **build).component()
    inputs = busy(component, likely)
    taken = [given for given in inputs if given["en"] and given["valid"]]
    steps = {name: np.array([given[name] for given in taken], dtype=np.uint64) for name in component.inputs}
    return simulated(component, inputs) == of_each(component, steps).tolist()


@pytest.mark.sampled(48, 6)
@pytest.mark.parametrize("likely", [1.0, 0.5])
@pytest.mark.parametrize("stages", [0, 1, 3, 6])
@pytest.mark.parametrize("text", TEXTS)
def test_interleaved_unit_has_the_golden_bits_with_pauses(text: str, stages: int, likely: float) -> None:
    assert agrees(text, stages, likely)


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("text", ["mac e3m2*e3m2+e4m3.sr7@lfsr8 interleave=3", "accumulate e3m2+e4m3.rn"])
def test_accumulators_for_speed_have_the_same_bits(text: str) -> None:
    assert agrees(text, 3, 0.7, goal="speed")


@pytest.mark.slow
def test_interleaved_loop_of_one_stage_too_many_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    text = TEXTS[0]
    assert agrees(text, 5, 1.0)
    kind = type(Implementation.parse(text).component())
    right = kind.interval
    monkeypatch.setattr(kind, "interval", lambda self, name: right(self, name) + (right(self, name) > 1))
    assert not agrees(text, 5, 1.0)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("mac", ["e2m1*e2m1+e3m2.rn", "e5m2*e5m2+e6m5.rn"])
def test_interleaved_unit_is_faster_by_stages_in_its_loop(mac: str) -> None:
    slots = Implementation.parse(f"mac {mac} interleave=4", pipeline=5).component().slots
    assert slots["accumulator"] - slots["accumulator_0"] == 3
    assert slots["turn"] <= slots["accumulator_0"]


def loop_of(rng: random.Random, latency: int, slack: int, count: int) -> Graph:
    """Return a random graph of an operand, a register with its next value, and a result."""
    nodes, bits = [Node(INPUT, 0, 2), Node(STATE, 2, 2, group=0, slack=slack)], 4
    for _ in range(count):
        width = rng.randrange(1, 4)
        local = [[rng.randrange(bits), rng.randrange(bits - 2, bits)] for _ in range(width)]
        if rng.random() < 0.5:
            nodes.append(Node(LOGIC, bits, width, local=local, leaves=local, delays=[rng.choice((500, 1500))] * width))
        else:
            nodes.append(Node(CHAIN, bits, width, local=local, delays=[100, 1200]))
        bits += width
    nodes.append(Node(NEXT, bits, 0, common=[2, bits - 1], group=0))
    nodes.append(Node(AFTER, bits, 2, group=0))
    nodes.append(Node(SINK, bits + 2, 0, common=[bits, bits + 1]))
    return Graph(nodes, latency, lambda readers: 0)


def allows(graph: Graph, slots: list[int], slot: int) -> bool:
    """Return True if the next node after those with slots may be in a slot."""
    place = len(slots)
    kind, slack = graph.nodes[place].kind, graph.nodes[1].slack
    return (
        all(slots[other] <= slot for other in graph.operands[place])
        and (kind != NEXT or slot - slots[1] <= slack)
        and (kind != AFTER or slot == slots[place - 1] + 1)
        and (kind != SINK or slot == graph.latency)
    )


def loops(graph: Graph) -> list[list[int]]:
    """Return all schedules of such a graph."""
    found: list[list[int]] = [[0]]
    for _ in graph.nodes[1:]:
        found = [[*slots, slot] for slots in found for slot in range(graph.latency + 1) if allows(graph, slots, slot)]
    return found


@pytest.mark.parametrize("seed", range(40))
def test_schedule_of_a_loop_has_the_smallest_delay(seed: int) -> None:
    rng = random.Random(seed)
    graph = loop_of(rng, rng.randrange(1, 5), rng.randrange(1, 3), rng.randrange(2, 4))
    slots, delay = graph.schedule()
    every = loops(graph)
    assert slots in every
    assert graph.delay(slots) <= delay
    assert delay == pytest.approx(min(map(graph.delay, every)), abs=STEP)


def test_schedule_of_a_full_loop_has_no_register_at_its_narrowest_value() -> None:
    widths = (1, 4, 4, 4)
    nodes, bits, before = [Node(INPUT, 0, 8), Node(STATE, 8, 4, group=0, slack=1)], 12, [*range(12)]
    for width in widths:
        local = [before] * width
        nodes.append(Node(LOGIC, bits, width, local=local, leaves=local, delays=[500] * width))
        before, bits = [*range(bits, bits + width)], bits + width
    nodes.append(Node(NEXT, bits, 0, common=before, group=0))
    nodes.append(Node(AFTER, bits, 4, group=0))
    nodes.append(Node(SINK, bits + 4, 0, common=[*range(bits, bits + 4)]))
    graph = Graph(nodes, 4, lambda readers: 0)
    slots, delay = graph.schedule()
    assert delay == 1000
    assert slots in loops(graph)
    assert slots[3] - slots[1] == 0


@pytest.mark.parametrize("text", TEXTS)
def test_interleave_is_part_of_the_text(text: str) -> None:
    spec = UnitSpec.parse(text)
    assert UnitSpec.parse(str(spec)) == spec
    assert spec.text.endswith(text[text.index(" interleave") :])
    assert spec != replace(spec, interleave=1)


@pytest.mark.parametrize(("text", "word"), [("interleave=0", "interleave"), ("interleave=65", "interleave")])
def test_interleave_out_of_range_is_refused(text: str, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        UnitSpec.parse(f"mac e5m2*e5m2+e6m5.rn {text}")


def test_short_form_takes_interleave() -> None:
    assert implementation("mac", "e5m2", interleave=2).spec.interleave == 2
    with pytest.raises(ValueError, match="interleave"):
        implementation("mul", "e5m2", interleave=2)


def test_products_of_matrices_refuse_interleave() -> None:
    text = "mac e5m2*e5m2+e6m5.rn interleave=4"
    one = torch.zeros(1, 1, dtype=torch.int64)
    for refused in (
        lambda: golden.gemm(one, one, text),
        lambda: Policy.parse(text),
        lambda: Chain(mac=text, n=1, m=1),
    ):
        with pytest.raises(ValueError, match="interleave"):
            refused()


def test_words_of_interleaved_sums_come_in_turn() -> None:
    text = "mac e5m2*e5m2+e6m5.sr10@lfsr16:5 interleave=4"
    stream = UnitSpec.parse(text).streams["random"]
    seeds = stream.source.seeds(4, 5)
    assert (stream.seed, *stream.others) == tuple(seeds)
    words = of_stream(stream, 30, 10)
    for turn, seed in enumerate(seeds):
        assert torch.equal(words[turn::4], golden.random.words("lfsr16", 30, seed, bits=10)[: len(words[turn::4])])


def test_reference_of_interleaved_unit_uses_words_in_turn() -> None:
    codes = torch.arange(64)
    text = "accumulate e3m2+e4m3.sr4@lfsr7"
    words = of_stream(UnitSpec.parse(f"{text} interleave=4").streams["random"], 64, 4)
    found = unit(f"{text} interleave=4").reference(codes, codes)
    assert torch.equal(found, unit("accumulate e3m2+e4m3.sr4").reference(codes, codes, random=words))


def test_fault_campaign_finds_errors_in_each_sum() -> None:
    component = Implementation.parse("accumulate e3m2+e4m3.rn interleave=3", pipeline=2).component()
    right = {"o": np.zeros(2 * (1 + 48 + 3), dtype=np.uint64)}
    for turn in range(3):
        wrong = right["o"].copy()
        wrong[52 + 3 + 45 + turn] = parse("e4m3").encode(1)
        _, lost, ulps = faults._worst(component, right, {"o": wrong}, 2, True)
        assert (ulps != 0).tolist() == [False, True]
        assert not lost.any()
