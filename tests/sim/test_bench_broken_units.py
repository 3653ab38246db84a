"""Mutants of units, each with one deliberate mistake: the test bench detects each and its cause."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value

from halfulp.golden import exact
from halfulp.hdl import eager
from halfulp.hdl.formats import E5M2, E6M5, RA, RN, Float, parse, stochastic
from halfulp.hdl.lfsr import source_word
from halfulp.hdl.number import pack
from halfulp.hdl.operators import Operation
from halfulp.hdl.pipeline import Stages
from halfulp.hdl.specs import Build
from halfulp.sim.bench import run
from halfulp.sim.report import Failure, Result
from halfulp.units.arithmetic import Add, Arithmetic, Mul
from halfulp.units.convert import Convert
from halfulp.units.mac import Mac
from halfulp.units.stream import Streamed

VECTORS = 1 << 11
E5M2_SAME: dict[str, Any] = {"a": E5M2, "b": E5M2, "o": E5M2}


def mismatches(result: Result) -> list[Failure]:
    """Return the saved mismatches of a failed run, found by cocotb and by the compiled model."""
    assert not result.passed
    found = [failure for check in result.checks for failure in check.failures if failure.kind == "mismatch"]
    assert {check.tool for check in result.checks if check.failed} == {"cocotb", "compiled loop"}
    assert found
    return found


def kinds(result: Result) -> set[str]:
    """Return the kinds of the printed failures."""
    return {failure.kind for check in result.checks for failure in check.failures}


def check_causes(result: Result, cause: Callable[[dict[str, int], int, int], bool]) -> None:
    """Check that every mismatch has the expected cause, given operand codes, expected code and actual code."""
    for failure in mismatches(result):
        assert failure.codes is not None
        assert failure.expected is not None
        assert failure.got is not None
        assert cause(failure.codes, failure.expected["o"], failure.got["o"]), failure.text
    assert kinds(result) == {"mismatch"}


def repack(monkeypatch: pytest.MonkeyPatch, change: Callable[..., Value]) -> None:
    """Replace `pack` of units by ``change``, which has the same arguments."""
    monkeypatch.setattr("halfulp.units.base.pack", change)


class LostSticky(Add):
    def compute(self, m: Module, random: Any, *operands: Any) -> Any:
        raw, random = super().compute(m, random, *operands)
        return replace(raw, sticky=Const(0, 1)), random


def test_bench_catches_lost_sticky_bit() -> None:
    def sticky_decides(codes: dict[str, int], expected: int, got: int) -> bool:
        # The dropped part below the window matters only if the rest of the sum is a tie or exact.
        x, y = (E5M2.decode(codes[name]) for name in "ab")
        assert not isinstance(x, float)
        assert not isinstance(y, float)
        near = (min(abs(x), abs(y)) / max(abs(x), abs(y))) < 0.5
        return near and abs(expected - got) == 1

    check_causes(run(LostSticky(**E5M2_SAME), limit=VECTORS), sticky_decides)


class TiesAway(Mul):
    pass


@pytest.mark.slow
def test_bench_catches_ties_away(monkeypatch: pytest.MonkeyPatch) -> None:
    repack(monkeypatch, lambda m, x, o, rounding, saturate, random: pack(m, x, o, RA, saturate, random))

    def away(codes: dict[str, int], expected: int, got: int) -> bool:
        return got == exact.mul(codes["a"], codes["b"], **E5M2_SAME, rounding=RA)

    check_causes(run(TiesAway(**E5M2_SAME), limit=VECTORS), away)


class NoSubnormalShift(Mul):
    pass


@pytest.mark.slow
def test_bench_catches_missing_subnormal_shift(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "halfulp.hdl.floating.shift_right_sticky", lambda m, value, amount, name, fill=None: (value, Const(0, 1))
    )

    def subnormal(codes: dict[str, int], expected: int, got: int) -> bool:
        return expected & (E5M2.sign_code - 1) <= 1 << E5M2.man

    check_causes(run(NoSubnormalShift(**E5M2_SAME), limit=VECTORS), subnormal)


class WrongZero(Add):
    def compute(self, m: Module, random: Any, *operands: Any) -> Any:
        raw, random = super().compute(m, random, *operands)
        return replace(raw, sign=raw.sign | raw.zero), random


@pytest.mark.slow
def test_bench_catches_wrong_zero_sign() -> None:
    result = run(WrongZero(**E5M2_SAME), limit=VECTORS)
    check_causes(result, lambda codes, expected, got: (expected, got) == (0, E5M2.sign_code))


class EarlyOverflow(Mul):
    pass


@pytest.mark.slow
def test_bench_catches_overflow_threshold_off_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def early(m: Module, x: Any, o: Float, rounding: Any, saturate: bool, random: Any) -> Value:
        code = pack(m, x, o, rounding, saturate, random)
        return Cat(Mux(code[:-1] == o.max_code, o.max_code + 1, code[:-1])[: o.width - 1], code[-1])

    repack(monkeypatch, early)
    result = run(EarlyOverflow(**E5M2_SAME), limit=VECTORS)
    check_causes(result, lambda codes, expected, got: expected & 0x7F == E5M2.max_code and got & 0x7F == E5M2.inf_code)


class SwappedRandom(Mul):
    def compute(self, m: Module, random: Any, *operands: Any) -> Any:
        return super().compute(m, Cat(random[1], random[0], random[2:]), *operands)


@pytest.mark.slow
def test_bench_catches_swapped_random_bit() -> None:
    rounding = stochastic(3)

    def swapped(codes: dict[str, int], expected: int, got: int) -> bool:
        word = codes["random"]
        other = word & 4 | (word & 1) << 1 | (word & 2) >> 1
        return got == exact.mul(codes["a"], codes["b"], **E5M2_SAME, rounding=rounding, random=other)

    check_causes(run(SwappedRandom(**E5M2_SAME, rounding=rounding), limit=VECTORS), swapped)


class Restless(Mul):
    def staged(self, m: Module, **options: Any) -> Module:
        return super().staged(m, enable=Const(1, 1))


@pytest.mark.slow
@pytest.mark.parametrize("pipeline", [1, 2])
def test_bench_catches_register_that_moves_in_stall(pipeline: int) -> None:
    result = run(Restless(**E5M2_SAME, build=Build(pipeline=pipeline)), limit=VECTORS)
    assert not result.passed
    assert "stall" in kinds(result)
    # The compiled model has no stalls, so it shows that the results themselves are right.
    assert [check.failed for check in result.checks if check.tool == "compiled loop"] == [0]


class HalfRestless(Mul):
    """Only the first stage ignores the clock enable, so the output never moves in a stall."""


@pytest.mark.slow
def test_bench_catches_inner_register_that_moves_in_stall(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Stages._register

    def careless(stages: Stages, value: Value, operation: Operation, slot: int) -> Value:
        enable = stages._enable
        stages._enable = Const(1, 1) if slot == 1 else enable
        register = right(stages, value, operation, slot)
        stages._enable = enable
        return register

    monkeypatch.setattr(Stages, "_register", careless)
    result = run(HalfRestless(**E5M2_SAME, build=Build(pipeline=2)), limit=VECTORS)
    assert not result.passed
    texts = [failure.text for check in result.checks for failure in check.failures if failure.kind == "stall"]
    assert any("only with stalls" in text for text in texts)


class StrangeNan(Mul):
    pass


@pytest.mark.slow
def test_bench_catches_noncanonical_nan(monkeypatch: pytest.MonkeyPatch) -> None:
    def strange(m: Module, x: Any, o: Float, rounding: Any, saturate: bool, random: Any) -> Value:
        code = pack(m, x, o, rounding, saturate, random)
        return Mux(code == o.nan_code, o.nan_code + 1, code)[: o.width]

    repack(monkeypatch, strange)
    result = run(StrangeNan(**E5M2_SAME), limit=VECTORS)
    check_causes(result, lambda codes, expected, got: (expected, got) == (E5M2.nan_code, E5M2.nan_code + 1))


class Unsaturated(Mul):
    pass


@pytest.mark.slow
def test_bench_catches_ignored_saturate(monkeypatch: pytest.MonkeyPatch) -> None:
    repack(monkeypatch, lambda m, x, o, rounding, saturate, random: pack(m, x, o, rounding, False, random))
    result = run(Unsaturated(**E5M2_SAME, saturate=True), limit=VECTORS)
    check_causes(result, lambda codes, expected, got: expected & 0x7F == E5M2.max_code and got & 0x7F == E5M2.inf_code)


class Late(Mul):
    """Unit with one register more than its latency."""

    more = 1

    def staged(self, m: Module, **options: Any) -> Module:
        return super().staged(m, latency=self.latency + self.more)


class Hasty(Late):
    """Unit with one register less than its latency."""

    more = -1


@pytest.mark.slow
@pytest.mark.parametrize(("unit", "really", "declared"), [(Late, 3, 2), (Hasty, 1, 2)])
def test_bench_catches_latency_off_by_one(unit: type[Arithmetic], really: int, declared: int) -> None:
    result = run(unit(**E5M2_SAME, build=Build(pipeline=2)), limit=VECTORS)
    assert not result.passed
    assert "latency" in kinds(result)
    texts = [failure.text for check in result.checks for failure in check.failures if failure.kind == "latency"]
    assert any(f"{really} clock cycles" in text and f"not {declared}" in text for text in texts)


class Eager(Mac):
    """Accumulator that steps without valid operands."""

    def elaborate(self, platform: object) -> Module:
        valid = self.valid
        self.valid = Const(1, 1)
        try:
            return super().elaborate(platform)
        finally:
            self.valid = valid


@pytest.mark.slow
def test_bench_catches_accumulator_that_moves_without_operands() -> None:
    result = run(Eager(a=E5M2, b=E5M2, acc=E6M5, rounding=RN), limit=VECTORS)
    assert not result.passed
    assert "bubble" in kinds(result)


class Impatient(Convert):
    """Unit whose source steps in every cycle, and so loses words in a stall."""

    def word(self, m: Module, name: str = "random") -> Value | None:
        stream = self.sources[name]
        return source_word(m, stream.source, [stream.seed], Const(1, 1), name)[: self.words[name]]


@pytest.mark.slow
@pytest.mark.parametrize("pipeline", [0, 2])
def test_bench_catches_source_that_steps_in_stall(pipeline: int) -> None:
    options: dict[str, Any] = {"rounding": "sr3", "random": "lfsr5", "build": Build(pipeline=pipeline)}
    result = run(Impatient(a="e6m5", o="e4m3", **options), limit=VECTORS)
    assert not result.passed
    # The compiled model has no stalls, so without stages before the source it reads every word correctly.
    assert pipeline or [check.failed for check in result.checks if check.tool == "compiled loop"] == [0]
    assert {check.name for check in result.checks if check.failed} >= {"plain", "stream"}


class Forgetful(Mac):
    """Unit whose source is not reset."""

    def word(self, m: Module, name: str = "random") -> Value | None:
        if name not in self.sources:
            return super().word(m, name)
        source = self.sources[name].source
        state = Signal(source.width, init=self.spec.seed, reset_less=True)
        with m.If(self.en & self.valid):
            m.d.sync += state.eq(Cat(Cat(*(state[tap - 1] for tap in source.taps)).xor(), state[:-1]))
        return state[: self.words[name]]


@pytest.mark.slow
def test_bench_catches_source_without_reset() -> None:
    result = run(Forgetful(a=E5M2, b=E5M2, acc=E6M5, rounding="sr4", random="lfsr9"), limit=VECTORS)
    assert not result.passed


class Saturated(Mul):
    pass


@pytest.mark.slow
def test_bench_catches_fixed_wrap_instead_of_saturate(monkeypatch: pytest.MonkeyPatch) -> None:
    fmt = parse("fxp4.4")

    def wrap(m: Module, x: Any, o: Any, rounding: Any, saturate: bool, random: Any) -> Value:
        return pack(m, x, replace(o, overflow="wrap"), rounding, saturate, random)

    repack(monkeypatch, wrap)
    result = run(Saturated(a=fmt, b=fmt, o=fmt), limit=VECTORS)
    check_causes(result, lambda codes, expected, got: expected in (0x7F, 0x80))


class ToZero(Mul):
    pass


@pytest.mark.slow
def test_bench_catches_posit_rounded_to_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    fmt = parse("posit8")

    def underflow(m: Module, x: Any, o: Any, rounding: Any, saturate: bool, random: Any) -> Value:
        return Mux(x.beyond & ~x.kept[1] & ~x.nan, 0, pack(m, x, o, rounding, saturate, random))[: o.width]

    repack(monkeypatch, underflow)
    result = run(ToZero(a=fmt, b=fmt, o=fmt), limit=VECTORS)
    check_causes(result, lambda codes, expected, got: expected in (1, 0xFF) and got == 0)


class Buffered(Mul):
    pass


@pytest.mark.slow
def test_bench_catches_stream_that_ignores_back_pressure(monkeypatch: pytest.MonkeyPatch) -> None:
    class Pushy(Streamed):
        def elaborate(self, platform: object) -> Module:
            m = Module()
            m.submodules.inner = inner = Streamed(self.unit)
            m.d.comb += [
                inner.i.payload.eq(self.i.payload),
                inner.i.valid.eq(self.i.valid),
                self.i.ready.eq(1),
                inner.o.ready.eq(1),
                self.o.payload.eq(inner.o.payload),
                self.o.valid.eq(inner.o.valid),
            ]
            return m

    monkeypatch.setattr("halfulp.units.stream.Streamed", Pushy)
    unit = Buffered(**E5M2_SAME, build=Build(pipeline=1))
    result = run(unit, limit=VECTORS)
    assert not result.passed
    assert {"payload", "count"} & kinds(result)
    assert {check.name for check in result.checks if check.failed} == {"stream"}


class WordOnePlaceLow(Mac):
    pass


@pytest.mark.slow
def test_bench_catches_misaligned_random_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """An eager structure aligns the word before it normalises the sum."""
    right = eager._discarded
    monkeypatch.setattr(eager, "_discarded", lambda significand, first, count: right(significand, first - 1, count))
    unit = WordOnePlaceLow(a=E5M2, b=E5M2, acc=E6M5, rounding="sr10", build=Build(stochastic="eager"))
    # Only one word in many gives a wrong result.
    check_causes(run(unit, limit=4 * VECTORS), lambda codes, expected, got: abs(expected - got) <= 2)
