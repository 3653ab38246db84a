"""Sums of products into posits whose range is shorter or longer than that of the sums."""

import pytest

from halfulp.hdl.specs import DotSpec
from tests.every_unit import rounded, rtl_mismatches

MODES = ("rn", "ra", "rh", "rz", "ru", "rd", "ro", "sr3")


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "dot2 posit4e1*posit4e1=posit4e0",
        "dot2 posit4e1*posit4e1",
        "dot2 posit4e1*posit4e1=posit8",
        "dot2 e2m1*e2m1=posit4e0",
    ],
)
def test_rtl_matches_golden(text):
    """All operands in all rounding modes: results beyond both ends of the range, and ties of both signs."""
    specs = [rounded(DotSpec.parse(text), mode) for mode in MODES]
    checks, failed = rtl_mismatches({spec: spec for spec in specs}, most_bits=16, count=1 << 14)
    assert not failed
    assert checks
