"""Accuracy in many number formats, compared with Arbitor (Jiang et al., USENIX ATC 2023)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any

import pandas as pd

from halfulp.hdl.formats import Fixed
from halfulp.hdl.specs.pieces import Piece
from halfulp.hdl.specs.segments import Segments
from halfulp.tools.jobs import JobPool
from halfulp.tools.report import Report
from halfulp.tools.tables import Table

from .trainings import CHANGED, FLOAT, NETWORKS, QUICK, Case, Effort, Figures, lowest, number_formats, segments, trained

EXPONENTS, MANTISSAS = (4, 5, 6, 8), tuple(range(1, 9))
"""Bits of the floats."""

POSITS, ES = (8, 9, 11, 13), (1, 2, 3)
"""Widths of posits, and their es."""

SPARSITY = {
    "1:2": (94.07, 82.11),
    "1:4": (93.64, 78.78),
    "1:8": (92.99, 75.45),
    "2:4": (94.09, 82.94),
    "2:8": (93.59, 80.72),
    "4:8": (94.19, 82.94),
}
"""Published accuracy of ResNet-18 on CIFAR-10 and of a transformer on FordA (Tables 2b and 2c)."""

PRUNED = ("update", "weights")

LOWEST = {
    "resnet": ("ResNet-18", "e6m6", "e6m2"),
    "transformer": ("Transformer", "e6m4", ""),
    "graph": ("GNN", "e6m3", "e6m2"),
    "translation": ("CRNN", "e6m6", "e6m1"),
    "recurrent": ("CRNN", "e6m6", "e6m1"),
}
"""Published network, and lowest formats with the accuracy of FP32: all operations, and with reductions in FP32."""

PUBLISHED_FP32 = {"resnet": 93.78, "transformer": 87.24, "graph": 84.06, "translation": 87.25, "recurrent": 87.25}

FUNCTIONS = {("tanh", "sigmoid"): "both", ("sigmoid",): "sigmoid", ("tanh",): "tanh"}
SEGMENTS = (3, 2, 1)
"""Segments on each side of zero."""

TOTAL = (3, 2)
"""Segments in total: a line with both ends, and one with the upper end only."""

SLOPE = Fraction(23, 32)
"""Slope of the line of tanh, with nearly the smallest error between two ends."""

PUBLISHED_PIECES = {("both", 3): 88.12, ("sigmoid", 2): 82.26, ("tanh", 2): 84.92, ("both", 2): 70.95}
"""Published accuracy of CRNN with sigmoid and tanh of so many pieces."""


def everything(fmt: str) -> str:
    """Return the policy that computes all operations in a format, without wider accumulators."""
    return f"{fmt}*{fmt}={fmt}.rn+{fmt}.rn, elementwise={fmt}.rn, optimizer={fmt}.rn"


def with_reductions(fmt: str) -> str:
    """Return the policy that computes products, sums and normalisations in FP32, of operands in a format."""
    return f"{fmt}*{fmt}+fp32.rn, elementwise={fmt}.rn, reductions=fp32.rn, normalisation=fp32.rn, optimizer={fmt}.rn"


POLICIES = {"all": everything, "reductions in FP32": with_reductions}
"""Two ways of emulation."""

ROWS = (("all", True, EXPONENTS), ("all", False, EXPONENTS[:-1]), ("reductions in FP32", True, EXPONENTS[:-1]))
"""Way of each part of the table of floats, if its formats have subnormals, and their exponent bits."""

OTHERS = (1, 2, 4, 6)
"""Mantissa bits of the networks that are no residual network."""

OPTIMIZERS = {
    "nearest, as published": "{}.rn",
    "stochastic, 10 random bits": "{}.sr10",
    "FP32": "fp32.rn",
}
"""Roundings of parameters and optimiser of the graph network, with the format in place of {}."""

FASTER = 3.0
"""Learning rate of more trainings of the graph network, ten times that of the others."""

LARGE_STEPS = {"all": (2, 3, 4, 6), "reductions in FP32": OTHERS}
"""Mantissa bits of the trainings with this rate."""

AT_LOWEST = (
    *(("resnet", "all", 6), ("resnet", "reductions in FP32", 2), ("transformer", "all", 4)),
    *(("translation", "reductions in FP32", 1), ("recurrent", "reductions in FP32", 1)),
)
"""Networks and published lowest formats, of 6 exponent bits, that are trained with their optimiser in FP32 too."""

LONGER = 3
"""Factor of the epochs of more trainings of these networks."""

LOST = 2
"""Mantissa bits whose share of changed weights is measured."""

PRUNED_NETWORKS, WITH_SEGMENTS = ("resnet", "transformer"), ("translation", "recurrent")
"""Networks of the tables of sparsity and of line segments, as published: ResNet-18 and a transformer; CRNN."""


def case(network: str, policy: str) -> Case:
    """Return the case of an emulated program."""
    return Case(network, (("*", policy),), emulate=True)


def float_case(exponent: int, mantissa: int, way: str, *, network: str = "resnet", subnormals: bool = True) -> Case:
    """Return the case of a float."""
    return case(network, POLICIES[way](f"e{exponent}m{mantissa}{'' if subnormals else '-ftz'}"))


def optimizer_case(mantissa: int, rounding: str) -> Case:
    """Return the case of the graph network with another rounding of parameters and optimiser."""
    fmt = f"e6m{mantissa}"
    policy = with_reductions(fmt).replace(f"optimizer={fmt}.rn", f"optimizer={OPTIMIZERS[rounding].format(fmt)}")
    return case("graph", policy)


def large_steps(mantissa: int | None, way: str = "all") -> Case:
    """Return the case of the graph network with large steps; None for FP32."""
    known = Case("graph") if mantissa is None else float_case(6, mantissa, way, network="graph")
    return replace(known, settings=(("rate", FASTER),))


def single_optimizer(network: str, way: str, mantissa: int) -> Case:
    """Return the case of a float with parameters and optimiser in FP32."""
    fmt = f"e6m{mantissa}"
    return case(network, POLICIES[way](fmt).replace(f"optimizer={fmt}.rn", "optimizer=fp32.rn"))


def longer(known: Case) -> Case:
    """Return a case with more epochs."""
    return replace(known, settings=(("epochs", LONGER * NETWORKS[known.network][1]),))


def posit_case(width: int, es: int) -> Case:
    """Return the case of a posit."""
    return case("resnet", everything(f"posit{width}e{es}"))


def mantissas(network: str) -> tuple[int, ...]:
    """Return the mantissa bits of a network's floats."""
    return MANTISSAS if network == "resnet" else OTHERS


def sparse_case(network: str, text: str, part: str) -> Case:
    """Return the case of an N:M pattern; all arithmetic is that of torch."""
    return Case(network, (("*", f"{FLOAT}, {part}={text}"),))


def segments_case(network: str, functions: tuple[str, ...], pieces: int) -> Case:
    """Return the case of functions as line segments; all other arithmetic is that of torch."""
    return Case(network, activations=tuple(segments(name, pieces) for name in functions))


def total_text(function: str, count: int) -> str:
    """Return the text of segments that are counted in total, of sigmoid or tanh."""
    # A sigmoid is (1 + tanh(x / 2)) / 2.
    half = Fraction(1, 2) if function == "sigmoid" else Fraction(1)
    slope, centre = SLOPE * half**2, 1 - half
    low = Piece(Fraction(-8), slope, centre)
    end = Fraction(round(4096 / SLOPE / half), 4096)
    pieces = [low, Piece(end, Fraction(0), Fraction(1))]
    if count == TOTAL[0]:
        pieces = [Piece(Fraction(-8), Fraction(0), 2 * centre - 1), replace(low, start=-end), pieces[1]]
    fmt, coefficients = Fixed(4, 12), Fixed(2, 10)
    return Segments(function, fmt, fmt, coefficients, coefficients, tuple(pieces)).text


def total_case(network: str, functions: tuple[str, ...], count: int) -> Case:
    """Return the case of functions as so many line segments in total."""
    return Case(network, activations=tuple((name, total_text(name, count)) for name in functions))


@dataclass(frozen=True)
class Floats:
    """Trainings of a network in floats with 6 exponent bits: ``cases`` by way and mantissa bits, and in FP32."""

    name: str
    network: str
    fp32: Case
    cases: dict[str, dict[int, Case]]


def floats() -> Iterator[Floats]:
    """Yield the trainings of each network, and those of the graph network with large steps."""
    for network in LOWEST:
        own = {way: {m: float_case(6, m, way, network=network) for m in mantissas(network)} for way in POLICIES}
        yield Floats(network, network, Case(network), own)
    own = {way: {m: large_steps(m, way) for m in bits} for way, bits in LARGE_STEPS.items()}
    yield Floats(f"graph, learning rate {FASTER:g}", "graph", large_steps(None), own)


def cases() -> Iterator[Case]:
    """Yield all cases of the report."""
    for way, subnormals, exponents in ROWS:
        for exponent in exponents:
            yield from (float_case(exponent, mantissa, way, subnormals=subnormals) for mantissa in MANTISSAS)
    for row in floats():
        yield row.fp32
        for own in row.cases.values():
            yield from own.values()
    yield from (optimizer_case(mantissa, rounding) for rounding in OPTIMIZERS for mantissa in OTHERS)
    yield from (posit_case(width, es) for width in POSITS for es in ES)
    for text in SPARSITY:
        yield from (sparse_case(network, text, part) for network in PRUNED_NETWORKS for part in PRUNED)
    for network in WITH_SEGMENTS:
        yield from (segments_case(network, functions, pieces) for functions in FUNCTIONS for pieces in SEGMENTS)
        yield from (total_case(network, functions, count) for functions in FUNCTIONS for count in TOTAL)
    for network, way, mantissa in AT_LOWEST:
        single = single_optimizer(network, way, mantissa)
        yield from (single, longer(single), longer(Case(network)))


def most_seeds(case: Case) -> int | None:
    """Return 1 for trainings that explain a difference; None for others."""
    return 1 if case.settings or case in [single_optimizer(*row) for row in AT_LOWEST] else None


def measured(*, quick: bool, pool: JobPool) -> dict[str, Callable[[], Any]]:
    """Return the functions that measure the figures of the report that are no accuracies, by name."""
    return {"changed": partial(changes, quick, pool), "segments": segment_errors}


def changes(quick: bool, pool: JobPool) -> dict[str, float]:
    """Return the share of weights that the last step changes, for each rounding of updates."""
    own = {rounding: optimizer_case(LOST, rounding) for rounding in OPTIMIZERS}
    found = trained(dict.fromkeys(own.values(), QUICK if quick else Effort(seeds=(0,))), CHANGED, pool=pool)
    return {rounding: found[case][0] for rounding, case in own.items()}


def segment_errors() -> dict[str, dict[str, float]]:
    """Return the largest error of sigmoid and tanh for each number of segments, over all numbers of fxp4.12."""
    import torch

    from halfulp import golden

    codes = torch.arange(1 << 16)
    x = golden.decode(codes, "fxp4.12")
    errors: dict[str, dict[str, float]] = {}
    for name, exact in (("tanh", x.tanh()), ("sigmoid", x.sigmoid())):
        texts = {_each_side(count): segments(name, count)[1] for count in SEGMENTS}
        texts |= {_in_total(count): total_text(name, count) for count in TOTAL}
        for count, text in texts.items():
            values = golden.decode(golden.pwl(codes, table=Segments.read(text)), "fxp4.12")
            errors.setdefault(name, {})[count] = (values - exact).abs().max().item()
    return errors


def _each_side(count: int) -> str:
    return f"{count} segment{'s' * (count > 1)}"


def _in_total(count: int) -> str:
    return f"{count} in total"


def report(figures: Figures) -> Report:
    """Return the report: its tables and the record."""
    tables = {
        "arbitor-floats": _floats(figures),
        "arbitor-networks": _networks(figures),
        "arbitor-lowest": _lowest(figures),
        "arbitor-at-lowest": _at_lowest(figures),
        "arbitor-optimizer": _optimizer(figures),
        "arbitor-posits": _posits(figures),
        "arbitor-sparsity": _sparsity(figures),
        "arbitor-segments": _segments(figures),
        "arbitor-segment-errors": _segment_errors(figures),
    }
    return Report(tables=tables, records={"arbitor.json": figures.json()})


def _floats(figures: Figures) -> Table:
    rows = []
    for way, subnormals, exponents in ROWS:
        for exponent in exponents:
            cells: dict[str, Any] = {"operations": way, "subnormals": "yes" if subnormals else "no"}
            cells["exponent bits"] = str(exponent)
            own = [float_case(exponent, mantissa, way, subnormals=subnormals) for mantissa in MANTISSAS]
            cells |= {f"m = {mantissa}": figures.cell(case) for mantissa, case in zip(MANTISSAS, own, strict=True)}
            rows.append(cells | {"seeds": figures.seeds(own)})
    pairs = [[float_case(6, mantissa, "all", subnormals=kind) for kind in (False, True)] for mantissa in MANTISSAS]
    same = all(figures.cell(flushed) == figures.cell(subnormal) for flushed, subnormal in pairs)
    notes = [
        "Residual network; m: mantissa bits. All: every operation, parameters and gradients are in the format, and "
        "products are rounded too; reductions in FP32: products, convolutions, sums and whole normalisations are in "
        f"FP32, of operands in the format. FP32: {figures.mean(Case('resnet')):.2f}.",
        "Published: without subnormals ResNet-18 loses 1.46 points in 6 exponent bits, and regains them in e6m8."
        + " The accuracies with 6 exponent bits are the same with and without subnormals here, because numbers of the "
        "small network do not reach the subnormal range, below 2^-30." * same,
        *figures.notes,
    ]
    return Table("Accuracy over exponent and mantissa bits", pd.DataFrame(rows), number_formats(rows), notes)


def _networks(figures: Figures) -> Table:
    rows = []
    for way in POLICIES:
        for row in floats():
            own = row.cases[way]
            cells: dict[str, Any] = {"operations": way, "network": row.name, "FP32": figures.cell(row.fp32)}
            cells |= {f"m = {m}": figures.cell(own[m]) if m in own else None for m in MANTISSAS}
            rows.append(cells | {"seeds": figures.seeds(list(own.values()))})
    notes = ["Floats with 6 exponent bits and m mantissa bits; ways as in the table before.", *figures.notes]
    return Table("Accuracy over mantissa bits, by network", pd.DataFrame(rows), number_formats(rows), notes)


def _lowest(figures: Figures) -> Table:
    rows = []
    for row in floats():
        name, *published = LOWEST[row.network]
        cells: dict[str, Any] = {"network": row.name, "published network": name}
        cells |= {"FP32, published": PUBLISHED_FP32[row.network], "FP32": figures.cell(row.fp32)}
        for (way, own), theirs in zip(row.cases.items(), published, strict=True):
            named = [(f"e6m{mantissa}", case) for mantissa, case in own.items()]
            cells |= {f"{way}, published": theirs, way: lowest(figures, named, row.fp32)}
        rows.append(cells)
    notes = [
        "Format with 6 exponent bits and the fewest mantissa bits whose mean accuracy is within one point of FP32, of "
        f"m = {MANTISSAS[0]} to {MANTISSAS[-1]} (resnet) or {', '.join(map(str, OTHERS))} (others). Published networks "
        "are larger, on CIFAR-10, FordA, Cora and eng-fra. Ours train for 60 steps (resnet, graph) to 208, with "
        "parameters and optimiser in the format. Steps of these short runs are small, and their rounding needs more "
        "mantissa bits than the publication's: in larger steps the graph network (one seed) has the published formats "
        "within one mantissa bit, and the next table has the causes for the other networks.",
        *figures.notes,
    ]
    return Table("Lowest formats with the accuracy of FP32", pd.DataFrame(rows), number_formats(rows), notes)


def _at_lowest(figures: Figures) -> Table:
    rows = []
    near: list[str] = []
    far: list[str] = []
    for network, way, mantissa in AT_LOWEST:
        rounded, single = float_case(6, mantissa, way, network=network), single_optimizer(network, way, mantissa)
        cells: dict[str, Any] = {"network": network, "operations": way, "published lowest": f"e6m{mantissa}"}
        cells |= {"FP32": figures.mean(Case(network)), "optimiser in the format": figures.cell(rounded)}
        cells |= {"optimiser in FP32": figures.cell(single), "minus FP32": figures.gain(single, Case(network))}
        long, reference = longer(single), longer(Case(network))
        cells |= {f"{LONGER} times the epochs": figures.cell(long), "FP32, as many": figures.cell(reference)}
        rows.append(cells | {"minus FP32, as many": (gain := figures.gain(long, reference))})
        if gain is not None:
            (near if gain >= -1 else far).append(f"{network} ({way})")
    within, beyond = (", ".join(names) or "none" for names in (near, far))
    notes = [
        "Accuracy in the published lowest formats. Optimiser in FP32: parameters and their updates too, one seed; then "
        f"the same with {LONGER} times the epochs. Minus FP32: against FP32 with the same seed; the column FP32 is a "
        "mean of all seeds. The gain by an optimiser in FP32 is the loss by rounded updates; the gain by more epochs "
        f"is the loss by few steps (60 to 208). With both, the "
        f"loss against FP32 is at most one point in {within}, and larger in {beyond}.",
        *figures.notes,
    ]
    return Table("Accuracy in the published lowest formats", pd.DataFrame(rows), number_formats(rows), notes)


def _optimizer(figures: Figures) -> Table:
    rows = []
    for rounding in OPTIMIZERS:
        own = {mantissa: optimizer_case(mantissa, rounding) for mantissa in OTHERS}
        cells: dict[str, Any] = {"parameters and optimiser": rounding}
        cells |= {f"m = {mantissa}": figures.cell(case) for mantissa, case in own.items()}
        share = figures.more.get("changed", {}).get(rounding)
        rows.append(cells | {f"changed, m = {LOST}": None if share is None else 100 * share})
    way = "reductions in FP32"
    faster: dict[str, Any] = {"parameters and optimiser": f"nearest, learning rate {FASTER:g}"}
    rows.append(faster | {f"m = {mantissa}": figures.cell(large_steps(mantissa, way)) for mantissa in OTHERS})
    notes = [
        "Graph network with 6 exponent bits and reductions in FP32. Changed: percent of the parameters that the last "
        f"step changes, with the first seed. FP32: {figures.mean(Case('graph')):.2f}, and "
        f"{figures.mean(large_steps(None)):.2f} with the larger rate (one seed).",
        "No gradient vanishes, but with a learning rate of 0.3 a step is about one percent of a weight, and half of a "
        f"last place of m = {LOST} is 7 to 12.5 percent, so that rounding to nearest keeps the weight. Stochastic "
        f"rounding keeps the step on average, and with a learning rate of {FASTER:g} steps are large enough for "
        "rounding to nearest: the accuracy in few mantissa bits is a matter of the size of the steps, and the "
        "publication's networks have other ones.",
        *figures.notes,
    ]
    return Table(
        "Accuracy of the graph network over the rounding of updates", pd.DataFrame(rows), number_formats(rows), notes
    )


def _posits(figures: Figures) -> Table:
    rows: list[dict[str, Any]] = [
        {"width": str(width)}
        | {f"es = {es}": figures.cell(posit_case(width, es)) for es in ES}
        | {"seeds": figures.seeds([posit_case(width, es) for es in ES])}
        for width in POSITS
    ]
    notes = [
        "Residual network, every operation in a posit P(n, es). FP32: "
        f"{figures.mean(Case('resnet')):.2f}. Published lowest posits with the accuracy of FP32: P(13,3), P(11,3) "
        "and P(9,2), of three networks; we do not know which one belongs to ResNet-18.",
        "Parameters and updates are rounded to the posit too; the table 'Accuracy in the published lowest formats' "
        "compares trainings with rounded updates with those whose updates are in FP32.",
        *figures.notes,
    ]
    return Table("Accuracy with posits", pd.DataFrame(rows), number_formats(rows), notes)


def _sparsity(figures: Figures) -> Table:
    rows = []
    published: dict[str, tuple[float, float]] = {"dense": (PUBLISHED_FP32["resnet"], PUBLISHED_FP32["transformer"])}
    for text, theirs in (published | SPARSITY).items():
        cells: dict[str, Any] = {"pattern": text}
        for network, figure in zip(PRUNED_NETWORKS, theirs, strict=True):
            cells[f"{LOWEST[network][0]}, published"] = figure
            for part in PRUNED:
                case = Case(network) if text == "dense" else sparse_case(network, text, part)
                cells[f"{network}, {part}"] = figures.mean(case)
        rows.append(cells)
    notes = [
        "N of M consecutive numbers stay. Update: the optimiser changes only the N kept weights, as published; "
        "weights: the products read pruned weights, and all weights are updated. All arithmetic is FP32. The loss of "
        "the published transformer lies between ours with pruned updates and, except for 4:8, with pruned weights.",
        *figures.notes,
    ]
    return Table("Accuracy with N:M sparsity", pd.DataFrame(rows), number_formats(rows), notes)


def _segments(figures: Figures) -> Table:
    rows = []
    for network in WITH_SEGMENTS:
        for functions, name in FUNCTIONS.items():
            cells: dict[str, Any] = {"network": network, "function": name}
            cells |= {f"{count} pieces, published": PUBLISHED_PIECES.get((name, count)) for count in (3, 2)}
            own = {count: segments_case(network, functions, count) for count in SEGMENTS}
            cells |= {_each_side(count): figures.cell(case) for count, case in own.items()}
            totals = {count: total_case(network, functions, count) for count in TOTAL}
            rows.append(cells | {_in_total(count): figures.cell(case) for count, case in totals.items()})
    exact = " and ".join(f"{figures.mean(Case(network)):.2f} ({network})" for network in WITH_SEGMENTS)
    notes = [
        "Segments on each side of zero in fxp4.12, and saturation; in total: a line between both ends, and a line with "
        "the upper end only. All other arithmetic is FP32. "
        f"FP32: {exact}; published, CRNN: {PUBLISHED_FP32['translation']}.",
        _counted(figures),
        *figures.notes,
    ]
    return Table("Accuracy with sigmoid and tanh of line segments", pd.DataFrame(rows), number_formats(rows), notes)


def _counted(figures: Figures) -> str:
    """Compare the loss of both functions with that of the publication, for pieces in total and on each side."""
    both = next(iter(FUNCTIONS))

    def lost(network: str, case: Case) -> float:
        return -(figures.gain(case, Case(network)) or 0.0)

    three, two, other = (
        lost(network, total_case(network, both, count))
        for network, count in ((WITH_SEGMENTS[0], 3), (WITH_SEGMENTS[0], 2), (WITH_SEGMENTS[1], 2))
    )
    each = max(lost(WITH_SEGMENTS[0], segments_case(WITH_SEGMENTS[0], both, count)) for count in SEGMENTS)
    published = PUBLISHED_FP32[WITH_SEGMENTS[0]] - PUBLISHED_PIECES["both", 2]
    return (
        f"If the publication counts pieces in total, translation agrees: three pieces of both functions lose "
        f"{three:.2f} points and two {two:.2f}, published 0 and {published:.2f}, because two pieces lack one end of "
        f"the range. Segments on each side, whose errors are in the next table, lose at most {each:.2f} there. "
        f"recurrent loses {max(0.0, other):.2f} with two in total, so the loss depends on the network."
    )


def _segment_errors(figures: Figures) -> Table:
    rows = [{"function": name} | errors for name, errors in figures.more["segments"].items()]
    notes = [
        "Largest error over all numbers of fxp4.12. Two in total have one end only, so that their error is that of a "
        "line at the other end of the range.",
        figures.notes[-1],
    ]
    return Table(
        "Errors of sigmoid and tanh of line segments", pd.DataFrame(rows), number_formats(rows, digits=4), notes
    )
