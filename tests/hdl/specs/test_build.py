"""`Build`: its fields, its suffix in names, and errors for fields without effect on a unit."""

import re

import pytest

from halfulp.hdl.specs import Build
from halfulp.units import Add, Compare, Convert, Dot, Mac, Mul, Quire, Sru
from halfulp.units.systolic import Chain, Grid
from tests.short_form import build

SMALL = {"a": "e5m2", "b": "e5m2", "o": "e5m2"}


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (Build(), ""),
        (Build(pipeline=3), "p3"),
        (Build(dsp=True, stochastic="eager", pipeline=1), "eager_dsp_p1"),
        (Build(structure="address"), "address"),
        (Build(pipeline=2, reset_less=True), "p2_reset_less"),
        (Build(clock=300), "c300_xcup"),
        (Build(clock=133.5, target="ecp5", dsp=True), "dsp_c133.5_ecp5"),
        (Build(pipeline=2, target="xc7"), "p2_xc7"),
        (Build(pipeline=2, target="ecp5"), "p2"),
    ],
)
def test_build_prints_as_a_suffix(made: Build, text: str) -> None:
    assert str(made) == text


@pytest.mark.parametrize(
    ("field", "value", "error", "word"),
    [
        ("pipeline", -1, ValueError, "range"),
        ("pipeline", 65, ValueError, "range"),
        ("pipeline", True, TypeError, "int"),
        ("clock", 0, ValueError, "positive"),
        ("clock", float("nan"), ValueError, "positive"),
        ("clock", "300", TypeError, "number"),
        ("clock", True, TypeError, "number"),
        ("target", "vu9p", ValueError, "xcup"),
        ("target", 5, TypeError, "string"),
        ("dsp", 1, TypeError, "bool"),
        ("reset_less", 1, TypeError, "bool"),
        ("stochastic", "soon", ValueError, "eager"),
        ("stochastic", 1, TypeError, "string"),
        ("structure", "auto", ValueError, "comparators"),
    ],
)
def test_build_rejects_fields_out_of_range(field: str, value: object, error: type[Exception], word: str) -> None:
    with pytest.raises(error, match=word):
        Build(**{field: value})  # type: ignore[arg-type]  # the wrong type


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: Convert(a="e5m2", o="fp16", build=Build(dsp=True)), "dsp"),
        (lambda: Add(**SMALL, build=Build(dsp=True)), "dsp"),
        (lambda: Compare(**SMALL, build=Build(structure="table")), "structure"),
        (lambda: Mul(**SMALL, rounding="sr3", build=Build(stochastic="lazy")), "stochastic"),
        (lambda: Mac(a="e5m2", b="e5m2", acc="e6m5", build=Build(stochastic="lazy")), "stochastic"),
        (lambda: Mac(a="e5m2", b="e5m2", acc="exact", rounding="sr3", build=Build(stochastic="lazy")), "stochastic"),
        (lambda: Add(a="int8", b="int8", o="fp16", rounding="sr3", build=Build(stochastic="lazy")), "stochastic"),
        (lambda: Dot(k=2, **SMALL, rounding="sr3", build=Build(stochastic="eager")), "stochastic"),
        (lambda: Quire(**SMALL, rounding="sr3", build=Build(stochastic="eager")), "stochastic"),
        (lambda: Sru(a="int16", o="int8", build=Build(dsp=True)), "dsp"),
        (lambda: Chain(mac="e5m2*e5m2+exact=fp32.rn", n=1, m=1, build=Build(goal="loop")), "goal"),
        (lambda: Chain(mac="posit8*posit8+exact=posit8.rn", n=1, m=1, build=Build(goal="speed")), "goal"),
        (lambda: Grid(mac="e5m2*e5m2=e5m2.rn+e6m5.rn", n=1, m=1, build=Build(goal="speed")), "goal"),
        (lambda: build("pwl", "fxp3.2", fn="relu", pieces=1, dsp=True), "dsp"),
        (lambda: Mul(**SMALL, build=Build(target="xcup")), "target"),
        (lambda: Chain(mac="e5m2*e5m2+e6m5.rn", n=1, m=1, build=Build(target="xcup")), "target"),
    ],
)
def test_unit_rejects_field_without_effect(make: object, field: str) -> None:
    with pytest.raises(ValueError, match=re.escape("has no effect on")) as refusal:
        make()  # type: ignore[operator]  # a function
    assert str(refusal.value).startswith(field)


def test_build_rejects_both_pipeline_and_clock() -> None:
    with pytest.raises(ValueError, match="not both"):
        Build(pipeline=1, clock=100)


def test_build_without_its_default_target_is_the_same() -> None:
    assert Build(clock=300, target="xcup") == Build(clock=300) != Build(clock=300, target="xc7")
    assert Build(pipeline=2, target="ecp5") == Build(pipeline=2) != Build(pipeline=2, target="xc7")


def test_unit_rejects_non_build() -> None:
    with pytest.raises(TypeError, match="Build"):
        Mul(**SMALL, build=3)  # type: ignore[arg-type]  # the wrong type


def test_default_structure_changes_neither_build_nor_name() -> None:
    sums = {**SMALL, "rounding": "sr3"}
    assert Add(**sums, build=Build(stochastic="lazy")).build == Build()
    assert Add(**sums, build=Build(stochastic="lazy")).name == Add(**sums).name
    assert Add(**sums, build=Build(stochastic="eager", pipeline=2)).name == "add_e5m2_e5m2_e5m2_sr3_eager_p2"


@pytest.mark.slow
def test_eager_is_accepted_where_adder_supports_it() -> None:
    """The check builds no hardware; a wrong check would trigger an assertion of the adder."""
    names = ["e2m1", "e2m1fn", "e3m0fn", "e3m2", "e3m2-ftz", "e5m2", "e4m3-ftz", "e6m5", "fp16"]
    granted = 0
    for a in names:
        for b in names[::3]:
            for acc in names:
                for product in (None, "e3m2"):
                    more = {} if product is None else {"product": product, "product_rounding": "rn"}
                    try:
                        unit = Mac(a=a, b=b, acc=acc, rounding="sr3", build=Build(stochastic="eager"), **more)
                    except ValueError:
                        continue
                    unit.elaborate(None)
                    granted += 1
    assert granted > 40
