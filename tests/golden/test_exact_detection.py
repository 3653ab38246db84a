"""Deliberate mistakes in the golden model: the comparison with the exact model detects each."""

import dataclasses
import random
import sys

import pytest
import torch

from halfulp import golden
from halfulp.golden import exact, operation
from halfulp.hdl.formats import (
    E2M1FN,
    E5M2,
    FP32,
    INT8,
    POSIT8,
    RD,
    RN,
    RZ,
    Rounding,
    parse,
)
from halfulp.hdl.specs import MacSpec
from tests.golden_against_exact import INT8_WRAP, STEPS, differences, dots, every, read_register, steps, times


@pytest.mark.parametrize(
    ("damage", "rounding"),
    [
        (lambda decision: decision | {"sticky": torch.zeros_like(decision["sticky"])}, "rn"),
        (lambda decision: decision | {"last": torch.ones_like(decision["last"])}, "rn"),
        (lambda decision: decision | {"negative": ~decision["negative"]}, "rd"),
        (lambda decision: decision | {"seen": decision["seen"] ^ 1}, "sr3"),
        (lambda decision: decision | {"last": decision["last"] ^ 1}, "ro"),
    ],
    ids=["lost sticky", "ties up", "sign", "random bit", "odd"],
)
@pytest.mark.parametrize("family", ["floating", "fixed", "posit"])
def test_wrong_rounding_decision_is_detected(family, damage, rounding, monkeypatch):
    rounding = Rounding.parse(rounding)
    if family == "fixed" and rounding == RD:
        # The floor is already rounded down; of the directed modes only toward zero depends on the sign.
        rounding = RZ
    module = golden.round if family == "posit" else getattr(golden, family)
    right = module.round_up
    monkeypatch.setattr(module, "round_up", lambda mode, **decision: right(mode, **damage(decision)))
    o = {"floating": parse("e2m0"), "fixed": parse("fxp6.-1"), "posit": parse("posit5e1")}[family]
    columns, words = every([E2M1FN, E2M1FN], rounding)
    _, wrong = differences("mul", columns, words, a=E2M1FN, b=E2M1FN, o=o, rounding=rounding)
    assert wrong


def test_lost_carry_guard_is_detected(monkeypatch):
    monkeypatch.setattr(golden.register, "guarded", lambda held, quire: held)
    a, o = parse("posit3e0"), parse("posit4e0")
    columns, _ = every([a, a, o], RN, subtract=True)
    _, wrong = differences("quire", columns, a=a, b=a, o=o, carry=1)
    assert wrong


def test_lost_sign_of_zero_is_detected(monkeypatch):
    monkeypatch.setattr(golden.register, "cancelled_sign", lambda signs, rounding: signs.all(-1))
    one, minus_one = E5M2.encode(1), E5M2.encode(-1)
    assert dots([[one, minus_one]], [[one, one]], a=E5M2, b=E5M2, o=E5M2, rounding=RD)


def test_lost_nan_of_register_is_detected(monkeypatch):
    right = golden.register.add

    def forgetful(x, y):
        return dataclasses.replace(right(x, y), nan=x.nan & y.nan)

    monkeypatch.setattr(golden.register, "add", forgetful)
    columns, _ = every([parse("posit3"), parse("posit4")], RN)
    parameters = {"a": parse("posit3"), "acc": "exact", "o": parse("posit4")}
    assert differences("accumulate", columns, **parameters)[1]


def test_register_rounded_every_step_is_detected():
    """A quire that continued from its rounded reading would be an accumulator in the result format."""
    spec = MacSpec.parse("posit8*posit8+exact=posit8.rn")
    xs, ys, starts, loads, clears = steps(random.Random(5), spec.a, spec.b, spec.o)
    products = [times(spec.a.decode(x), spec.b.decode(y)) for x, y in zip(xs, ys, strict=True)]
    expected, _ = read_register(spec, products, starts, loads, clears, None)
    code, rounded = 0, []
    for index in range(STEPS):
        base = starts[index] if loads[index] else 0 if clears[index] else code
        code = exact.mac(xs[index], ys[index], base, a=POSIT8, b=POSIT8, acc="exact")
        rounded.append(code)
    assert rounded != expected


def test_unsaturated_product_is_detected(monkeypatch):
    module = sys.modules["halfulp.golden.mac"]
    right = module.rounded

    def wrong(spec, term, word, rounding, o):
        return right(dataclasses.replace(spec, saturate=False), term, word, rounding, o)

    monkeypatch.setattr(module, "rounded", wrong)
    codes = [torch.tensor(code) for code in (100, 100, 0)]
    parameters = {"a": INT8, "b": INT8, "acc": FP32, "product": INT8_WRAP, "product_rounding": RN, "saturate": True}
    assert int(golden.mac(*codes, **parameters)) != exact.mac(100, 100, 0, **parameters)


def test_lost_borrow_is_detected(monkeypatch):
    """Without a borrow for the dropped tail, a difference is too large by one last place."""
    right = golden.wide.Wide.minus
    monkeypatch.setattr(golden.wide.Wide, "minus", lambda x, y, borrow: right(x, y, torch.zeros_like(borrow)))
    fmt, rounding = parse("e3m1-finite"), Rounding.parse("sr3")
    columns, words = every([fmt, fmt], rounding, subtract=True)
    _, wrong = differences("add", columns, words, a=fmt, b=fmt, o=fmt, rounding=rounding)
    assert wrong


@pytest.mark.parametrize(
    "damage",
    [
        lambda raw: {"sign": raw.sign & ~raw.zero},
        lambda raw: {"exponent": raw.exponent + 1},
        lambda raw: {"nan": raw.nan & ~raw.inf},
        lambda raw: {"inf": raw.inf & raw.sign},
    ],
    ids=["sign of zero", "exponent", "nan of inf - inf", "inf"],
)
def test_wrong_raw_number_is_detected(damage, monkeypatch):
    fmt = parse("e2m1")
    right = operation.rounded
    monkeypatch.setattr(
        operation, "rounded", lambda spec, raw, random: right(spec, dataclasses.replace(raw, **damage(raw)), random)
    )
    columns, _ = every([fmt, fmt], RN, subtract=True)
    _, wrong = differences("add", columns, a=fmt, b=fmt, o=fmt)
    assert wrong
