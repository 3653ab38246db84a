"""Coverage as a picture: a panel for each group, a patch for each bin."""

from typing import Any

import numpy as np

from halfulp.tools.plots import Heat, plot_heats

from .verdicts import EXCLUDED, HIT, Finding, Verdicts

WIDE = 24
"""Patches side by side in a group of one axis."""


def plot_coverage(verdicts: Verdicts) -> Any:
    """Draw the verdicts and counts of all groups."""
    return plot_heats([_panel(finding) for finding in verdicts.findings])


def _panel(finding: Finding) -> Heat:
    shape = finding.group.shape
    columns = min(shape[-1] if len(shape) > 1 else finding.group.size, WIDE)
    missing = -finding.group.size % columns
    verdicts = np.array(finding.verdicts())

    def filled(values: "np.ndarray", rest: object) -> "np.ndarray":
        return np.concatenate([values, np.full(missing, rest, dtype=values.dtype)]).reshape(-1, columns)

    wrong = (verdicts != HIT) & (verdicts != EXCLUDED)
    return Heat(finding.group.name, filled(finding.counts, 0), filled(verdicts == EXCLUDED, True), filled(wrong, False))
