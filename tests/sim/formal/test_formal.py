"""Proofs: each kind of claim holds for a small unit, and a mutant of it is refuted with a witness."""

import json
import shlex
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from click.testing import CliRunner

from halfulp.hdl import eager, floating, raw
from halfulp.hdl.formats import RN, RU, RZ, Rounding, parse
from halfulp.hdl.formats.source import TAPS, Lfsr, Source
from halfulp.hdl.late import Loop
from halfulp.hdl.lfsr import source_word
from halfulp.hdl.number import multiply, pack, unpack
from halfulp.hdl.operators import Operation
from halfulp.hdl.pipeline import Stages, _Delayed, _Reset
from halfulp.implementation import short
from halfulp.sim.formal import claims as claims_module
from halfulp.sim.formal.claims import KINDS, Claim, claims, examine, simulated
from halfulp.sim.formal.cli import formal
from halfulp.sim.formal.codes import magnitude, negated, rank
from halfulp.sim.formal.prove import PROVED, REFUTED, UNFINISHED, Question, Verdict
from halfulp.sim.ports import Ports
from halfulp.sim.regressions import parse_steps, with_results
from halfulp.tools.errors import ToolError
from halfulp.units.base import Unit
from halfulp.units.catalogue import CATALOGUE
from halfulp.units.stream import Streamed
from tests.settings import EXHAUSTIVE
from tests.short_form import asked

Patch = Callable[[pytest.MonkeyPatch], None]


CATALOGUE_TEXTS = [
    str(short(name, fmt, **options).spec)
    for name, row in CATALOGUE.items()
    for fmt in ("e2m1", "fxp2.2")
    for options in ({}, {"rounding": "sr2", "random": "lfsr5"})
    if row.spec.takes(parse(fmt), Rounding.parse(options["rounding"]) if options else None)
]
"""Every unit of the catalogue, with and without a random source."""


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use an empty build folder, so that no proof is cached."""
    monkeypatch.setenv("HALFULP_BUILD", str(tmp_path / "build"))


def packed(change: Callable[[Any, Any, Value], Value]) -> Patch:
    """Return mutants that change the final code of a unit, given format, rounding and code."""

    def wrong(m: Module, x: Any, o: Any, rounding: Any, saturate: bool, random: Any) -> Value:
        return change(o, rounding, pack(m, x, o, rounding, saturate, random))[: o.width]

    return lambda patch: patch.setattr("halfulp.units.base.pack", wrong)


def lost_sign(m: Module, code: Value, fmt: Any, name: str) -> Any:
    raw = unpack(m, code, fmt, name)
    return replace(raw, sign=raw.sign & ~raw.zero) if name == "a" else raw


def up_toward_zero(m: Module, x: Any, o: Any, rounding: Any, saturate: bool, random: Any) -> Value:
    return pack(m, x, o, RU if rounding == RZ else rounding, saturate, random)


def up_to_nearest(m: Module, x: Any, o: Any, rounding: Any, saturate: bool, random: Any) -> Value:
    return pack(m, x, o, RU if rounding == RN else rounding, saturate, random)


def wrong_block(m: Module, a: Any, b: Any, *, dsp: bool, **options: Any) -> Any:
    product = multiply(m, a, b, dsp=dsp, **options)
    return replace(product, sign=product.sign ^ product.zero) if dsp else product


def negated_block(m: Module, a: Any, b: Any, *, dsp: bool, **options: Any) -> Any:
    product = multiply(m, a, b, dsp=dsp, **options)
    return replace(product, sign=~product.sign) if dsp else product


def word_one_place_low(patch: pytest.MonkeyPatch) -> None:
    right = eager._discarded
    patch.setattr(eager, "_discarded", lambda significand, first, count: right(significand, first - 1, count))


def uncounted(patch: pytest.MonkeyPatch) -> None:
    """Mutant that counts the leading zeros of one factor only."""
    patch.setattr(floating, "_total", lambda counts, exclusive: counts[0])


def carry_ignored(patch: pytest.MonkeyPatch) -> None:
    """Mutant whose anticipation takes the first one of both operands, of differences too."""
    patch.setattr(raw, "_anticipated", lambda big, small, subtract: Cat(Const(0, 1), big | small))


def skewed(patch: pytest.MonkeyPatch) -> None:
    """Mutant with a value that skips a register: the first that has one."""
    right, skipping = Stages._register, dict[Stages, Operation]()

    def register(stages: Stages, value: Value, operation: Operation, slot: int) -> Value:
        skips = skipping.setdefault(stages, operation) is operation
        return value if skips else right(stages, value, operation, slot)

    patch.setattr(Stages, "_register", register)


def early_word(patch: pytest.MonkeyPatch) -> None:
    """Mutant whose random source steps with the operands instead of its own stage."""
    patch.setattr(_Delayed, "on_Signal", lambda delayed, value: value)


def restless(patch: pytest.MonkeyPatch) -> None:
    right = Unit.staged
    patch.setattr(Unit, "staged", lambda unit, m: right(unit, m, enable=Const(1, 1)))


def forgetful(patch: pytest.MonkeyPatch) -> None:
    def signal(*shape: Any, **options: Any) -> Signal:
        return Signal(*shape, **({"name": "accumulator"} | options), reset_less=True)

    patch.setattr("halfulp.units.running_sum.Signal", signal)


def zeroed(patch: pytest.MonkeyPatch) -> None:
    """Mutant whose registers after an accumulator are 0 after a reset."""
    patch.setattr(_Reset, "value", lambda reset, value: 0)


def held_through_reset(patch: pytest.MonkeyPatch) -> None:
    """Mutant whose registers after an accumulator have no reset."""
    right = Stages._register

    def register(stages: Stages, value: Value, operation: Operation, slot: int) -> Value:
        made: Any = right(stages, value, operation, slot)
        made._reset_less |= operation.reads_result
        return made

    patch.setattr(Stages, "_register", register)


class Faulty(Streamed):
    """Copy of the stream wrapper with a mistake named by its parameter."""

    mistake = ""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.unit = unit = self.unit
        m.d.comb += [Value.cast(getattr(unit, name)).eq(Value.cast(self.i.payload[name])) for name in unit.inputs]
        m.d.comb += Value.cast(self.o.payload).eq(Cat(*(Value.cast(getattr(unit, name)) for name in unit.outputs)))
        occupied = Signal(unit.latency, reset_less=self.mistake == "remembers")
        waits = self.o.valid & ~self.o.ready
        m.d.comb += [
            self.i.ready.eq(1 if self.mistake == "takes" else ~waits),
            self.o.valid.eq(occupied[-1]),
            unit.en.eq(1 if self.mistake == "moves" else ~waits),
        ]
        taken = {"invents": Const(1, 1), "loses": self.i.valid & ~self.o.valid}.get(self.mistake, self.i.valid)
        with m.If(~waits):
            m.d.sync += occupied.eq(Cat(taken, occupied[:-1]))
        return m


def short_window(patch: Any) -> None:
    first = Loop.first.fget
    patch.setattr(Loop, "first", property(lambda self: first(self) - 1))


def stream(mistake: str) -> Patch:
    wrong = type("Wrong", (Faulty,), {"mistake": mistake})
    return lambda patch: patch.setattr("halfulp.sim.formal.structures.Streamed", wrong)


def uncomplemented(patch: Any) -> None:
    """Mutant whose plateau source is an LFSR."""

    def wrong(m: Module, source: Source, *given: Any) -> Value:
        return source_word(m, Lfsr(source.width), *given)

    patch.setattr("halfulp.units.base.source_word", wrong)


def repacked(wrong: Any) -> Patch:
    return lambda patch: patch.setattr("halfulp.units.base.pack", wrong)


CASES: list[tuple[str, str, Patch]] = [
    ("commutes", "mul e2m1", lambda patch: patch.setattr("halfulp.units.base.unpack", lost_sign)),
    ("monotone", "convert e3m3 --to e2m1 --round sr2", packed(lambda o, r, code: code ^ (code[1:] == 1))),
    ("rz below rn", "add posit5", repacked(up_toward_zero)),
    ("valid", "mul e3m2", packed(lambda o, r, code: Mux(code == o.nan_code, o.nan_code + 1, code))),
    ("symmetric", "add posit5", repacked(up_to_nearest)),
    ("lazy is eager", "add e2m2 --round sr3", word_one_place_low),
    ("DSP is LUT", "mul e2m3", lambda patch: patch.setattr("halfulp.units.arithmetic.multiply", wrong_block)),
    ("speed is area", "mul e2m4 --to e5m4", uncounted),
    ("speed is area", "fma e2m1", carry_ignored),
    ("loop is area", "mac e2m1 --acc e3m2 --goal loop", short_window),
    ("pipelined", "mac e2m1 --pipeline 1", skewed),
    ("stalls", "mul e2m1 --pipeline 2", restless),
    ("DSP is LUT", "quire e2m1", lambda patch: patch.setattr("halfulp.units.quire.multiply", negated_block)),
    ("pipelined", "quire e2m1 --pipeline 1", skewed),
    ("pipelined", "mac e2m1 --round sr3 --random lfsr5 --pipeline 1", early_word),
    ("reset", "mac e2m1 --pipeline 1", forgetful),
    ("reset", "quire posit4 --pipeline 3", zeroed),
    ("reset", "quire posit4 --pipeline 3 --reset-less", held_through_reset),
    ("period", "mac e2m1 --round sr3 --random lfsr3", lambda patch: patch.setitem(TAPS, 3, (3,))),
    ("chance", "sru fxp2.3 --to int2-wrap --round sr3 --random plateau3 --no-increment", uncomplemented),
    ("stream waits", "mul e2m1 --pipeline 2", stream("moves")),
    ("stream order", "mul e2m1 --pipeline 2", stream("loses")),
    ("stream reset", "mul e2m1 --pipeline 2", stream("remembers")),
]
"""One case of each kind of claim; more with HALFULP_EXHAUSTIVE=1."""

if EXHAUSTIVE:
    CASES += [
        ("valid", "mul posit5", packed(lambda o, r, code: Mux(code == 1, 0, code))),
        ("valid", "add fxp2.2", packed(lambda o, r, code: code ^ (1 << o.width - 1))),
        ("symmetric", "mul e2m1", repacked(up_to_nearest)),
        ("pipelined", "mul e2m1 --pipeline 2", skewed),
        ("stream waits", "mul e2m1 --pipeline 2", stream("takes")),
        ("stream order", "mul e2m1 --pipeline 2", stream("invents")),
    ]


def found(kind: str, words: str) -> claims_module.Finding:
    (finding,) = examine([Claim(kind, asked(words))])
    return finding


@pytest.mark.sampled(126, 13)
@pytest.mark.parametrize("text", CATALOGUE_TEXTS)
def test_claims_about_catalogue_units_are_not_refuted(text: str) -> None:
    findings = list(examine(claims(text), limit=20))
    assert len(findings) >= 5
    assert [finding.claim.kind for finding in findings if finding.verdict.status == REFUTED] == []


def test_claim_kinds_all_have_a_mutant() -> None:
    assert {kind for kind, _, _ in CASES} == set(KINDS)


@pytest.mark.sampled(21, 3)
@pytest.mark.parametrize(("kind", "words", "mistake"), CASES, ids=lambda value: value if isinstance(value, str) else "")
def test_claim_is_proved_and_refuted_after_one_mistake(
    kind: str, words: str, mistake: Patch, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = found(kind, words)
    assert (right.verdict.status, right.lines) == (PROVED, ())
    mistake(monkeypatch)
    wrong = found(kind, words)
    assert wrong.verdict.status == REFUTED
    # A witness of wrong results names units, codes and numbers, and another simulator confirms it.
    saves = [line for line in wrong.lines if line.startswith("  save:  halfulp save ")]
    of_registers = any(word in words for word in ("pipeline", "quire", "loop", "random"))
    assert len(saves) == (0 if of_registers else 1 if kind == "valid" else 2)
    for line in saves:
        words_ = shlex.split(line)[3:]
        unit = asked(shlex.join(words_[:-2])).component()
        assert with_results(unit, parse_steps(words_[-1], Ports.inputs_of(unit)), "of a proof").results


def test_stream_wrapper_copy_is_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    stream("")(monkeypatch)
    assert found("stream order", "mul e2m1 --pipeline 2").verdict.status == PROVED


@pytest.mark.parametrize("fmt", ["e2m1", "e2m1fnuz", "posit4e1", "fxp1.3", "ufxp2.2"])
def test_code_order_magnitude_and_sign_match_decode(fmt: str) -> None:
    """Every code agrees with its decoded number."""
    of = parse(fmt)
    codes = [code for code in range(1 << of.width) if of.decode(code) == of.decode(code)]

    def value(made: Callable[[Any, Value], Value], code: int) -> int:
        const = Value.cast(made(of, Const(code, of.width)))
        return evaluate(const)

    ranked = sorted(codes, key=lambda code: value(rank, code))
    numbers = [of.decode(code) for code in ranked]
    assert numbers == sorted(numbers)
    larger = sorted(codes, key=lambda code: value(magnitude, code))
    assert [abs(of.decode(code)) for code in larger] == sorted(abs(number) for number in numbers)
    if not fmt.endswith(".3") and not fmt.startswith("ufxp"):
        assert all(of.decode(value(negated, code)) == -of.decode(code) for code in codes)
    else:
        with pytest.raises(ValueError, match="is not symmetric"):
            negated(of, Const(1, of.width))


def evaluate(value: Value) -> int:
    """Evaluate an expression of constants."""
    from amaranth.sim import Simulator

    results = []

    async def drive(context: Any) -> None:
        results.append(context.get(value))

    simulator = Simulator(Module())
    simulator.add_testbench(drive)
    simulator.run()
    return int(results[0])


def test_proofs_are_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    first = found("commutes", "mul e2m1").verdict
    monkeypatch.setattr(Question, "answer", lambda *_: pytest.fail("asked again"))
    assert found("commutes", "mul e2m1").verdict == first


@pytest.mark.slow
def test_proof_timeout_is_reported_and_retried() -> None:
    claim = Claim("commutes", asked("mul fp16"))
    began = time.monotonic()
    (finding,) = examine([claim], limit=0.2)
    assert time.monotonic() - began < 60
    assert (finding.verdict.status, finding.verdict.witness) == (UNFINISHED, None)
    question = claim.miter().question(f"{claim.kind} {claim.unit}")
    assert question.known(0.2) == finding.verdict
    assert question.known(0.3) is None
    assert question.answer(0.2).status == UNFINISHED


def test_invalid_witness_is_detected() -> None:
    miter = Claim("commutes", asked("mul e2m1")).miter()
    from amaranth.back import rtlil

    rtlil.convert(miter, ports=[*miter.free.values(), miter.bad])
    with pytest.raises(ToolError, match="ABC and Amaranth's simulator disagree"):
        simulated(miter, {"a": 1, "b": 2})


def test_claims_cover_all_kinds_for_every_family() -> None:
    for fmt in ("e5m2", "e4m3fn", "posit8", "fxp4.4"):
        kinds = {claim.kind for claim in claims("all", fmt)}
        # Units that the name `all` has are without random sources.
        missing = set(KINDS) - kinds - {"period", "chance"}
        assert missing <= {"symmetric", "lazy is eager", "speed is area", "loop is area"}
        assert missing == {"loop is area"} or fmt in ("posit8", "fxp4.4")
    assert {claim.asked.spec.form.unit for claim in claims("fma")} == {"fma"}
    with pytest.raises(ValueError, match=r"no claims about quire.* mul, add"):
        claims("quire")


def test_claims_take_options_of_the_short_form() -> None:
    found = claims("mac", "e2m1", acc="e3m2", pipeline=2)
    assert {str(claim.asked.spec) for claim in found} == {"mac e2m1*e2m1+e3m2.rn"}
    assert {claim.asked.build.pipeline for claim in found if claim.kind == "pipelined"} == {2}
    assert {claim.asked.build.pipeline for claim in found if claim.kind == "DSP is LUT"} == {0}


def test_formal_command_prints_and_writes_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both = [Claim("commutes", asked("mul e2m1")), Claim("valid", asked("mul e2m1"))]
    monkeypatch.setattr(claims_module, "claims", lambda unit, fmt, **options: both)
    answer = CliRunner().invoke(formal, ["mul", "e2m1", "-o", str(tmp_path)])
    assert answer.exit_code == 0
    assert "| commutes | mul e2m1*e2m1.rn | proved    |" in answer.stdout
    assert "- 2 proved, 0 refuted, 0 not finished" in answer.stdout
    assert {path.name for path in tmp_path.glob("formal.*")} == {"formal.md", "formal.csv", "formal.tex"}
    packed(lambda o, r, code: Mux(code == o.nan_code, o.nan_code | 1 << o.width - 1, code))(monkeypatch)
    answer = CliRunner().invoke(formal, ["mul", "e2m1"])
    assert answer.exit_code == 1
    assert "valid of mul e2m1*e2m1.rn is refuted\nmul_e2m1_e2m1_e2m1_rn\n" in answer.stdout
    monkeypatch.undo()
    answer = CliRunner().invoke(formal, ["quire"])
    assert answer.exit_code == 2


def test_verdicts_are_stored_atomically(tmp_path: Path) -> None:
    found("valid", "mul e2m1")
    (path,) = tmp_path.glob("build/cache/formal/valid*/value.json")
    assert Verdict(**json.loads(path.read_text())).status == PROVED


def test_examine_ends_its_tools_when_closed() -> None:
    running = examine([Claim("commutes", asked(f"mul {fmt}")) for fmt in ("e2m1", "fp16", "bf16")])
    next(running)
    began = time.monotonic()
    running.close()  # type: ignore[attr-defined]  # a generator
    assert time.monotonic() - began < 10


UNDEFINED = """
module \\top
  wire input 1 \\i
  wire output 2 \\bad
  connect \\bad 1'x
end
"""


def test_undefined_bits_may_have_any_value() -> None:
    assert Question("undefined", UNDEFINED).answer(10).status == REFUTED
