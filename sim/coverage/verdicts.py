"""Verdicts on the bins of a unit: hit, proved unreachable, or open."""

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

HIT, EXCLUDED, OPEN, REFUTED = "hit", "unreachable", "open", "hit despite a proof"

SHOWN = 20
"""Maximum number of named bins per verdict; the table of bins names all."""

WIDE = 24
"""Maximum number of patches per row in the panel of a group with one axis."""


@dataclass(frozen=True)
class Finding:
    """Verdicts on the bins of a group.

    Attributes
    ----------
    counts : array
        Hit counts of the bins.
    excluded : array of bool
        Bins that are proved unreachable.
    proof : str
        Enumerated set of cases.
    """

    group: Group
    counts: Counts
    excluded: Flags
    proof: str

    def verdicts(self) -> list[str]:
        """Return the verdict of each bin."""
        hit = self.counts > 0
        return np.select([hit & self.excluded, hit, self.excluded], [REFUTED, HIT, EXCLUDED], OPEN).tolist()

    def bins(self, verdict: str) -> list[str]:
        """Return the names of the bins with this verdict."""
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
        Verdicts of each group.
    """

    title: str
    vectors: int
    cycles: int
    findings: tuple[Finding, ...]

    @classmethod
    def of(cls, coverage: Coverage, progress: Progress = silent) -> "Verdicts":
        """Return the verdicts of a coverage, with proofs for the bins without hits."""
        known = proofs.of(coverage, progress)
        findings = []
        for name, group in coverage.groups.items():
            # Handshakes depend on the environment of a unit, so their bins have no proofs.
            reach = known.get(name, Reach(np.zeros(group.size, dtype=bool), ""))
            findings.append(Finding(group, coverage.counts[name].copy(), reach.excluded, reach.proof))
        return cls(coverage.unit.name, coverage.vectors, coverage.cycles, tuple(findings))

    def count(self, verdict: str) -> int:
        """Return the number of bins with this verdict."""
        return sum(finding.verdicts().count(verdict) for finding in self.findings)

    @property
    def closed(self) -> bool:
        """True if every bin is either hit or proved unreachable, and no proof is refuted."""
        return self.vectors > 0 and not self.count(OPEN) and not self.count(REFUTED)

    def table(self) -> Table:
        """Return the table with one row per group."""
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
                "proof: cases that were enumerated to prove a bin unreachable.",
            ],
        )

    def bins_table(self) -> Table:
        """Return the table of all bins."""
        rows = [
            {"group": finding.group.name, "bin": label, "hits": int(hits), "verdict": verdict, "proof": proof}
            for finding in self.findings
            for label, hits, verdict in zip(finding.group.labels(), finding.counts, finding.verdicts(), strict=True)
            for proof in [finding.proof if verdict in (EXCLUDED, REFUTED) else ""]
        ]
        return Table(f"Bins of {self.title}", pd.DataFrame(rows), {"hits": ","})

    def lines(self) -> Iterator[str]:
        """Yield the names of bins by verdict and group: refuted, open and unreachable ones."""
        for verdict in (REFUTED, OPEN, EXCLUDED):
            for finding in self.findings:
                names = finding.bins(verdict)
                more = [f"and {len(names) - SHOWN:,} more"] if len(names) > SHOWN else []
                if names:
                    yield f"{verdict}: {finding.group.name}: {'; '.join(names[:SHOWN] + more)}"

    def plot(self) -> Any:
        """Draw one panel per group, with one patch per bin."""
        # matplotlib takes long to load.
        from halfulp.tools.plots import Heat, plot_heats

        def panel(finding: Finding) -> Heat:
            size, shape, verdicts = finding.group.size, finding.group.shape, np.array(finding.verdicts())
            columns = min(shape[-1] if len(shape) > 1 else size, WIDE)

            def rows(values: "np.ndarray", rest: object) -> "np.ndarray":
                return np.append(values, np.full(-size % columns, rest, dtype=values.dtype)).reshape(-1, columns)

            excluded, wrong = verdicts == EXCLUDED, (verdicts == OPEN) | (verdicts == REFUTED)
            return Heat(finding.group.name, rows(finding.counts, 0), rows(excluded, True), rows(wrong, False))

        return plot_heats([panel(finding) for finding in self.findings], title=self.title)
