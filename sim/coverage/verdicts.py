"""Verdicts on the bins of a unit: hit, proved to be out of reach, or open."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import nan
from typing import Any

import numpy as np
import pandas as pd

from halfulp.tools.progress import Progress, silent
from halfulp.tools.tables import Table

from . import proofs
from .bins import Counts, Group
from .collect import Coverage
from .reach import Flags, Reach

HIT, EXCLUDED, OPEN, REFUTED = "hit", "out of reach", "open", "hit, though proved to be out of reach"

SHOWN = 20
"""Bins of a verdict that are named; a table in a file has all."""

WIDE = 24
"""Patches side by side in the panel of a group of one axis."""


@dataclass(frozen=True)
class Finding:
    """Verdicts on the bins of a group.

    Attributes
    ----------
    counts : array
        Hits of each.
    excluded : array of bool
        Bins that are proved to be out of reach.
    proof : str
        Sets of inputs that were enumerated for that.
    """

    group: Group
    counts: Counts
    excluded: Flags
    proof: str

    def verdicts(self) -> list[str]:
        """Verdict of each bin."""
        hit = self.counts > 0
        return np.select([hit & self.excluded, hit, self.excluded], [REFUTED, HIT, EXCLUDED], OPEN).tolist()

    def bins(self, verdict: str) -> list[str]:
        """Names of the bins of a verdict."""
        return [self.group.label(index) for index, own in enumerate(self.verdicts()) if own == verdict]


@dataclass(frozen=True)
class Verdicts:
    """Coverage of a unit with its proofs.

    Attributes
    ----------
    title : str
        Name of the unit.
    vectors, cycles : int
        Numbers of counted vectors and clock cycles.
    findings : tuple of Finding
        One for each group.
    """

    title: str
    vectors: int
    cycles: int
    findings: tuple[Finding, ...]

    @classmethod
    def of(cls, coverage: Coverage, progress: Progress = silent) -> "Verdicts":
        """Verdicts of a coverage, with proofs for the bins that were not hit."""
        known = proofs.of(coverage, progress)
        found = []
        for name, group in coverage.groups.items():
            # Handshakes depend on the bench or the design around a unit: none of their bins is out of reach.
            one = known.get(name, Reach(np.zeros(group.size, dtype=bool), ""))
            found.append(Finding(group, coverage.counts[name].copy(), one.excluded, one.proof))
        return cls(coverage.unit.name, coverage.vectors, coverage.cycles, tuple(found))

    def count(self, verdict: str) -> int:
        """Bins of a verdict."""
        return sum(finding.verdicts().count(verdict) for finding in self.findings)

    @property
    def closed(self) -> bool:
        """True if every bin was hit or is proved to be out of reach, and none is both."""
        return self.vectors > 0 and not self.count(OPEN) and not self.count(REFUTED)

    def table(self) -> Table:
        """Groups, a row each."""
        frame = pd.DataFrame(
            [
                {
                    "group": finding.group.name,
                    "bins": finding.group.size,
                    HIT: int((finding.counts > 0).sum()),
                    "min hits": float(hit.min()) if (hit := finding.counts[finding.counts > 0]).size else nan,
                    EXCLUDED: finding.verdicts().count(EXCLUDED),
                    OPEN: finding.verdicts().count(OPEN) + finding.verdicts().count(REFUTED),
                    "proof": finding.proof if finding.excluded.any() else "",
                }
                for finding in self.findings
            ]
        )
        sums = ", ".join(f"{self.count(verdict):,} {verdict}" for verdict in (HIT, EXCLUDED, OPEN))
        return Table(
            f"Coverage of {self.title}",
            frame,
            {"min hits": ",.0f"},
            [
                f"{sums}, of {sum(finding.group.size for finding in self.findings):,} bins; "
                f"{self.vectors:,} vectors, {self.cycles:,} clock cycles of handshakes.",
                "min hits: smallest number of hits of a bin that was hit.",
                "proof: cases that were enumerated to show that a bin is out of reach.",
            ],
        )

    def bins_table(self) -> Table:
        """Every bin."""
        rows = [
            {"group": finding.group.name, "bin": label, "hits": int(hits), "verdict": verdict, "proof": proof}
            for finding in self.findings
            for label, hits, verdict in zip(finding.group.labels(), finding.counts, finding.verdicts(), strict=True)
            for proof in [finding.proof if verdict in (EXCLUDED, REFUTED) else ""]
        ]
        return Table(f"Bins of {self.title}", pd.DataFrame(rows), {"hits": ","})

    def lines(self) -> Iterator[str]:
        """Bins that are not hit, by name and verdict: first those that are wrong."""
        for verdict in (REFUTED, OPEN, EXCLUDED):
            for finding in self.findings:
                names = finding.bins(verdict)
                more = [f"and {len(names) - SHOWN:,} more"] if len(names) > SHOWN else []
                if names:
                    yield f"{verdict}: {finding.group.name}: {'; '.join(names[:SHOWN] + more)}"

    def plot(self) -> Any:
        """Draw a panel for each group, with a patch for each bin."""
        # matplotlib takes long to load.
        from halfulp.tools.plots import Heat, plot_heats

        def panel(finding: Finding) -> Heat:
            size, shape, verdicts = finding.group.size, finding.group.shape, np.array(finding.verdicts())
            columns = min(shape[-1] if len(shape) > 1 else size, WIDE)

            def rows(values: "np.ndarray", rest: object) -> "np.ndarray":
                return np.append(values, np.full(-size % columns, rest, dtype=values.dtype)).reshape(-1, columns)

            excluded, wrong = verdicts == EXCLUDED, (verdicts == OPEN) | (verdicts == REFUTED)
            return Heat(finding.group.name, rows(finding.counts, 0), rows(excluded, True), rows(wrong, False))

        return plot_heats([panel(finding) for finding in self.findings])
