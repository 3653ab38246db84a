"""Claims about random sources: kinds of sources that have them, with proofs."""

import pytest

from halfulp.implementation import Implementation
from halfulp.sim.formal.claims import claims, examine
from halfulp.sim.formal.prove import PROVED
from halfulp.sim.formal.sources import provable
from halfulp.sim.signoff import cases


@pytest.mark.parametrize("kind", ["lfsr", "plateau", "plateau-rep", "naive"])
def test_sources_of_signoff_are_proved(kind, own_build):
    narrow, wide = cases(["sru"])["sru", kind]
    assert not provable(wide)
    # The word of an LFSR is its register, which has another name inside the unit.
    wanted = [claim for claim in claims(str(narrow)) if claim.kind in ("pipelined", "period", "chance")]
    assert [finding.verdict.status for finding in examine(wanted)] == [PROVED] * 3


def test_sources_of_other_units_have_a_period_alone():
    assert provable(Implementation.parse("mac e5m2*e5m2+e6m5.sr3@lfsr3")) == ["period"]
    assert provable(Implementation.parse("mac e5m2*e5m2+e6m5.sr3")) == []


def test_source_of_an_exact_unit_has_no_register():
    assert provable(Implementation.parse("logb fxp2.2.sr2@lfsr5")) == []


def test_period_of_a_unit_with_an_accumulator_is_that_of_its_source():
    (claim,) = [claim for claim in claims("mac e2m1*e2m1+e3m2.sr3@lfsr3") if claim.kind == "period"]
    (finding,) = examine([claim])
    assert finding.verdict.status == PROVED
