"""Accuracy with gradients of 8 bits and cheap random sources, compared with Chang et al. (DATE 2023, Table I)."""

import math
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pandas as pd

from halfulp.tools.jobs import JobPool
from halfulp.tools.report import Report
from halfulp.tools.tables import Table
from halfulp.tools.threads import threads

from .trainings import Case, Figures, number_formats

SCALE = " scale=tensor.pow2.current"
"""Scale of each tensor, a power of two that follows its largest magnitude."""

INPUTS = {"FP32": "", "16 bits": "fxp8.8>", "11 bits": "fxp8.3>"}
"""Inputs of rounding units: exact, and fixed point with 8 fraction bits as published, or as many as a random word."""

FLOAT, NEAREST, LONG, SHORT = "float", "nearest", "LFSR, 24 bits", "LFSR, 3 bits"
NAIVE, PLATEAU, REPEATED = "naive, 3 bits", "plateau, 3 bits", "plateau, 3 bits repeated"

ROUNDINGS = {
    NEAREST: "rn",
    LONG: "sr24@lfsr24",
    SHORT: "sr3@lfsr3",
    NAIVE: "sr3@naive3",
    PLATEAU: "sr3@plateau3",
    REPEATED: "sr8@plateau3-rep",
}
"""Roundings of the gradients."""

RANDOM = (LONG, SHORT, NAIVE, PLATEAU, REPEATED)
"""Stochastic roundings."""

AS_PUBLISHED = (REPEATED, "16 bits")
"""Words and inputs of the published trainings."""

PUBLISHED = {
    "ResNet-18": {FLOAT: 71.10, NAIVE: 69.07, PLATEAU: 70.91},
    "ResNet-50": {FLOAT: 77.59, NAIVE: 76.03, PLATEAU: 77.56},
    "VOC2012, first network": {FLOAT: 76.04, PLATEAU: 76.19},
    "VOC2012, second network": {FLOAT: 71.10, PLATEAU: 70.40},
    "VOC2012, third network": {FLOAT: 76.49, PLATEAU: 76.70},
    "BERT": {FLOAT: 82.77, PLATEAU: 82.39},
}
"""Published: accuracy on ImageNet (Table I), mean intersection over union (Table II), average over GLUE (Table III)."""

NETWORKS = ("resnet", "transformer")

LARGEST = (2**-9, 2**-3, 0.5, 1, 8)
"""Ends of the ranges of magnitudes in the table of errors, in units of the last place."""

POINTS, REPEATS = 128, 14 * 15
"""Numbers in each range, and roundings of each: whole periods of the sources of 3 bits, 7, 14 and 15 words."""


def case(network: str, name: str, before: str) -> Case:
    """Return the case of a cell: tensors of 8 bits, and gradients rounded by a source."""
    if name == FLOAT:
        return Case(network)
    gradients = f"{before if '@' in ROUNDINGS[name] else ''}int8.{ROUNDINGS[name]}{SCALE}"
    casts = f"weights=int8.rn{SCALE}, activations=int8.rn{SCALE}, gradients={gradients}"
    return Case(network, (("*", f"int8*int8+fp32.rn, {casts}"),))


def cases() -> Iterator[Case]:
    """Yield all cases of the report."""
    for network in NETWORKS:
        yield from (case(network, name, before) for before in INPUTS.values() for name in (FLOAT, *ROUNDINGS))


def measured(*, quick: bool, pool: JobPool) -> dict[str, Callable[[], Any]]:
    """Return the functions that measure the figures of the report that are no accuracies, by name; all take seconds."""
    return {"errors": errors}


@threads(1)
def errors() -> dict[str, Any]:
    """Return the mean errors of roundings, which need no training: by input, rounding, range and sign."""
    import torch

    from halfulp.golden.nn import Cast

    errors_by_input: dict[str, Any] = {}
    for name, before in INPUTS.items():
        for rounding in RANDOM:
            cast = Cast.parse(f"{before}int8.{ROUNDINGS[rounding]}")
            means = errors_by_input.setdefault(name, {}).setdefault(rounding, [])
            for low, high in pairwise((0, *LARGEST)):
                values = low + (high - low) * (torch.arange(POINTS, dtype=torch.float64) + 0.5) / POINTS
                for signed in (values, -values):
                    given = signed.repeat_interleave(REPEATS)
                    means.append(float((cast.real(given, 1) - given).mean()))
    return errors_by_input


def report(figures: Figures) -> Report:
    """Return the report: its tables and the record."""
    tables = {"esru-accuracy": _accuracy(figures), "esru-order": _order(figures), "esru-errors": _errors(figures)}
    return Report(tables=tables, records={"esru.json": figures.json()})


def _accuracy(figures: Figures) -> Table:
    rows: list[dict[str, Any]] = []
    for network, published in PUBLISHED.items():
        cells: dict[str, Any] = {"network": f"{network}, published", "input": ""}
        for name in (FLOAT, *ROUNDINGS):
            cells |= {name: published.get(name), f"{name}, s.d.": None}
        rows.append(cells)
    for network in NETWORKS:
        for given, before in INPUTS.items():
            cells = {"network": network, "input": given}
            for name in (FLOAT, *ROUNDINGS):
                cells |= figures.cells(case(network, name, before), name)
            rows.append(cells)
    notes = [
        "Weights, activations and gradients are integers of 8 bits with a scale for each tensor, and sums are in FP32; "
        "gradients are rounded with random words of the source, by one unit for each tensor. Float: all in FP32. "
        "Published: ImageNet (ResNet), VOC2012 and GLUE (BERT). The published plateau words stand for i/7, by a table; "
        "the words of the published area, as ours without repetition, for i/8.",
        "Input: number format of the scaled gradients before the unit rounds them to 8 bits: FP32; fixed point of 16 "
        "bits, as published; or of 11 bits, with as many fraction bits as a random word.",
        *figures.notes,
    ]
    return Table("Accuracy with gradients of 8 bits", pd.DataFrame(rows), number_formats(rows), notes)


def _order(figures: Figures) -> Table:
    """Compare the order of plateau and naive words with that of the publication."""
    rows: list[dict[str, Any]] = []
    for words in (PLATEAU, REPEATED):
        for given, before in INPUTS.items():
            cells: dict[str, Any] = {"words": words, "input": given}
            for network in NETWORKS:
                cells[network] = figures.gain(case(network, words, before), case(network, NAIVE, before))
            same = (words, given) == AS_PUBLISHED
            for network, published in PUBLISHED.items():
                if NAIVE in published:
                    cells[f"{network}, published"] = published[PLATEAU] - published[NAIVE] if same else None
            rows.append(cells)
    notes = [
        "Accuracy minus that of naive words with the same input, in points. Published words are sevenths, made by a "
        "table, with inputs of 16 bits; compare them with our repeated words.",
        "A word of 3 bits above zeros loses the bits below the third, as the table of mean errors shows; a repeated "
        "word stands for the published levels and is right on average.",
        *figures.notes,
    ]
    return Table("Plateau words minus naive words", pd.DataFrame(rows), number_formats(rows), notes)


def _errors(figures: Figures) -> Table:
    rows = []
    for given, roundings in figures.more["errors"].items():
        for rounding, errors in roundings.items():
            cells: dict[str, Any] = {"input": given, "gradients": rounding}
            for place, (low, high) in enumerate(pairwise((0, *LARGEST))):
                span = f"{_fraction(low)} to {_fraction(high)}"
                cells |= {f"+{span}": errors[2 * place], f"-({span})": errors[2 * place + 1]}
            rows.append(cells)
    notes = [
        "Mean of the rounded value minus the exact value, both in units of the last place of the 8 bits, for values "
        "that are uniform in a range, and for their negatives.",
        "A unit with 3 random bits above zeros ignores bits below the first three fraction bits. If all numbers have "
        "such bits, the words of an LFSR, whose mean is 4/8, are right on average, and plateau words, whose mean is "
        "3.5/8, are too small by 1/16: tiny negative numbers become -1 once in 14 times, and tiny positive ones never "
        "1. If numbers have three fraction bits, plateau words are right on average, and those of an LFSR too large by "
        "1/16. Naive words, whose mean is 3.73/8, are between them. Repeated plateau words stand for sevenths, the "
        "published levels, and are right on average for all numbers.",
        figures.notes[-1],
    ]
    formats = {name: "+.3f" for name in rows[0] if name not in ("input", "gradients")}
    return Table("Mean error of gradients of 8 bits", pd.DataFrame(rows), formats, notes)


def _fraction(value: float) -> str:
    return f"1/{1 / value:g}" if 0 < value < 1 else f"{math.floor(value)}"
