"""Floating-point unit that iterates divisions and roots: results in streams, order, latency, flush, and refusals."""

import itertools

import numpy as np
import pytest
from amaranth.hdl import Shape
from click.testing import CliRunner

from halfulp.cli import cli
from halfulp.hdl.specs.fpu import DIVISIONS, FpuSpec
from halfulp.sim.model import CompiledModel, pack, unpack
from halfulp.sim.reference import reference
from halfulp.units import Build, FpnewTop, Fpu, Streamed
from tests.units.test_fpu import chosen, simulate

BEHIND = 8
"""Bits of the field that travels with the operands."""

DIV, SQRT, ADD = (FpuSpec.parse("fpu e2m1 divide").operations.index(name) for name in (*DIVISIONS, "add"))


def stream_mismatches(unit, codes, go=None):
    """Send vectors through the stream of a unit, and return the places of wrong results, flags and side fields."""
    dut = Streamed(unit, user=BEHIND)
    count = len(codes["op"])
    codes = codes | {"user": np.arange(count, dtype=np.uint64) % (1 << BEHIND)}
    fields = dut.channels["i"]
    rows = np.stack([codes[name] for name in fields], axis=1)
    widths = [Shape.cast(shape).width for shape in fields.values()]
    outputs = [Shape.cast(shape).width for shape in (*unit.outputs.values(), BEHIND)]
    cycles = 4 * count * (unit.latency + unit.steps + 2)
    with CompiledModel.of_streams(dut) as model:
        passed = model.stream({"i": pack(rows, widths)}, {"o": count}, go=go, limit=cycles, more=unit.steps + 2)
    assert passed.given["o"] == count
    assert passed.faults["o"] == 0
    found = unpack(passed.words["o"], outputs)
    expected = reference(Fpu(unit.spec), codes) | {"user": codes["user"]}
    wrong = np.zeros(count, dtype=bool)
    for column, name in enumerate((*unit.outputs, "user")):
        wrong |= found[:, column] != expected[name]
    return np.flatnonzero(wrong).tolist(), passed.cycles["o"]


def pauses(rng):
    """Return random cycles in which operands are offered and results are taken."""
    return {name: rng.random(997) < share for name, share in (("i", 0.7), ("o", 0.5))}


def mixed(spec, count, seed):
    """Return vectors of divisions, roots and other operations in random order."""
    names = (*DIVISIONS, *DIVISIONS, "fmadd", "flt", "f2i")
    parts = list(chosen(spec, names, count, seed))
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    order = np.random.default_rng(seed).permutation(len(joined["op"]))
    return {name: column[order] for name, column in joined.items()}


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("build", [Build(iterations=1), Build(pipeline=2, iterations=3)], ids=str)
def test_iterated_divisions_of_all_pairs_in_all_modes(build):
    unit = Fpu("fpu e3m2 divide", build=build)
    boxes = np.uint64((1 << 8) - (1 << 6))
    grid = itertools.product(range(64), range(64), (DIV, SQRT), range(5))
    x, y, op, mode = np.array(list(grid), dtype=np.uint64).T
    zero = np.zeros_like(x)
    names = ("src_fmt", "dst_fmt", "int_fmt", "vectorial", "rs3")
    codes = {"rs1": x | boxes, "rs2": y | boxes, "op": op, "mode": mode} | dict.fromkeys(names, zero)
    assert stream_mismatches(unit, codes)[0] == []


TEXTS = (
    ("fpu e3m4,e2m1 divide", Build(iterations=1)),
    ("fpu fp16,e4m3fn,e5m2 width=32 divide", Build(pipeline=1, iterations=2)),
    ("fpu fp32,fp16,bf16 width=32 divide", Build(pipeline=3, iterations=1)),
    ("fpu fp32,bf16.port_ro flags=before divide", Build(pipeline=2, iterations=4)),
    ("fpu fp64,fp32 divide", Build(pipeline=4, iterations=3, reset_less=True)),
)


@pytest.mark.slow
@pytest.mark.parametrize(("text", "build"), TEXTS)
def test_operations_in_streams_match_golden(text, build):
    unit = Fpu(text, build=build)
    for seed, go in enumerate((None, pauses(np.random.default_rng(2)))):
        assert stream_mismatches(unit, mixed(unit.spec, 1 << 12, seed), go)[0] == []


@pytest.mark.slow
def test_comparison_in_streams_detects_a_lost_side_field(monkeypatch):
    monkeypatch.setattr(Streamed, "_varying", lambda dut, m, offered, accept, side: _without_hold(dut, m, accept, side))
    unit = Fpu("fpu e3m4,e2m1 divide", build=Build(iterations=1))
    assert stream_mismatches(unit, mixed(unit.spec, 1 << 10, 1))[0]


def _without_hold(dut, m, accept, side):
    """Connect a unit with the side fields of the operands that are offered, not of those that were accepted."""
    unit, sink = dut.unit, dut.sink()
    m.d.comb += [unit.en.eq(sink.ready | ~sink.valid), unit.valid.eq(dut.source("i").valid)]
    m.d.comb += [accept.eq(unit.ready & unit.en), sink.valid.eq(unit.o_valid)]
    return side


@pytest.mark.parametrize(
    ("build", "cycles"),
    # One cycle for the operands, and digits of 3 + 2 (e5m2) and 11 + 2 bits (fp16): the precision, one for the
    # rounding, and a leading zero.
    [
        (Build(iterations=1), {"e5m2": 6, "fp16": 14}),
        pytest.param(Build(pipeline=3, iterations=2), {"e5m2": 7, "fp16": 11}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_latency_of_a_division_follows_the_result_format(build, cycles):
    unit = Fpu("fpu fp16,e5m2 divide", build=build)
    assert (unit.latency, unit.initiation, unit.latency_varies) == (build.pipeline, 1, True)
    found = {}

    async def bench(ctx):
        ctx.set(unit.vectorial, 1)
        for place, fmt in enumerate(unit.spec.formats):
            ctx.set(unit.src_fmt, place)
            ctx.set(unit.dst_fmt, place)
            ctx.set(unit.op, DIV)
            ctx.set(unit.valid, 1)
            assert ctx.get(unit.ready) == 1
            await ctx.tick()
            # The next operands wait, and are those of a sum.
            ctx.set(unit.op, ADD)
            found[str(fmt)] = 1
            while not ctx.get(unit.o_valid):
                assert ctx.get(unit.ready) == (found[str(fmt)] > cycles[str(fmt)] - build.pipeline)
                ctx.set(unit.valid, not ctx.get(unit.ready))
                await ctx.tick()
                found[str(fmt)] += 1
            ctx.set(unit.valid, 0)
            await ctx.tick().repeat(unit.latency + 1)

    simulate(unit, bench)
    assert found == cycles


def test_flush_discards_a_division():
    top = FpnewTop(Fpu("fpu e5m2 divide", build=Build(pipeline=1, iterations=1)), tag=4)

    async def operation(ctx, op, tag):
        for name, value in (("op_i", op), ("src_fmt_i", 3), ("dst_fmt_i", 3), ("tag_i", tag), ("in_valid_i", 1)):
            ctx.set(getattr(top, name), value)
        await ctx.tick().until(top.in_ready_o)
        ctx.set(top.in_valid_i, 0)

    async def bench(ctx):
        # 1 / 2, and then 1 * 2 with another tag. The quotient would be ready seven cycles after its operands.
        ctx.set(top.operands_i, 0x403C)
        ctx.set(top.out_ready_i, 1)
        for cycles in range(7):
            await operation(ctx, 4, 5)
            for _ in range(cycles):
                await ctx.tick()
            assert (ctx.get(top.busy_o), ctx.get(top.out_valid_o)) == (1, cycles == 6)
            ctx.set(top.flush_i, 1)
            await ctx.tick()
            ctx.set(top.flush_i, 0)
            assert (ctx.get(top.busy_o), ctx.get(top.out_valid_o), ctx.get(top.in_ready_o)) == (0, 0, 1)
            await operation(ctx, 3, 9)
            assert (ctx.get(top.out_valid_o), ctx.get(top.tag_o), ctx.get(top.result_o)) == (1, 9, 0x40)
            await ctx.tick()
            assert (ctx.get(top.out_valid_o), ctx.get(top.busy_o)) == (0, 0)

    simulate(top, bench)


def test_iterations_need_divide():
    with pytest.raises(ValueError, match="iterations 1 has no effect on fpu_e5m2"):
        Fpu("fpu e5m2", build=Build(iterations=1))
    with pytest.raises(ValueError, match="only 5 in all"):
        Fpu("fpu e5m2 divide", build=Build(iterations=7))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("command", ["sim", "sweep", "coverage", "emit --package -o unused"])
def test_commands_refuse_a_latency_that_varies(command):
    found = CliRunner().invoke(cli, [*command.split(), "fpu e2m1 divide", "--iterations", "1"])
    assert "depends on the operation; remove iterations" in found.output
    assert found.exit_code == 2


def test_test_bench_refuses_a_latency_that_varies():
    with pytest.raises(ValueError, match="a test bench needs a unit with one latency"):
        CompiledModel.of_unit(Fpu("fpu e2m1 divide", build=Build(iterations=1)))
