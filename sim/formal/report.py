"""A table of what is proved."""

from collections import Counter
from collections.abc import Sequence

import pandas as pd

from halfulp.tools.tables import Table

from .claims import KINDS, Finding
from .prove import PROVED, REFUTED, UNFINISHED


def table(findings: Sequence[Finding]) -> Table:
    """Claims and verdicts, in their order."""
    frame = pd.DataFrame(
        [
            {
                "claim": finding.claim.kind,
                "unit": finding.claim.unit,
                "verdict": finding.verdict.status,
                "seconds": finding.verdict.seconds,
            }
            for finding in findings
        ],
        columns=["claim", "unit", "verdict", "seconds"],
    )
    counts = Counter(finding.verdict.status for finding in findings)
    kinds = dict.fromkeys(finding.claim.kind for finding in findings)
    return Table(
        "What is proved, for all inputs",
        frame,
        {"seconds": ".1f"},
        [
            ", ".join(f"{counts[status]} {status}" for status in (PROVED, REFUTED, UNFINISHED))
            + f", in {sum(finding.verdict.seconds for finding in findings):.0f} seconds of ABC, when they were asked.",
            *(f"{kind}: {KINDS[kind].says}." for kind in kinds),
        ],
    )
