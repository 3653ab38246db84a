"""Accuracy in many number formats, compared with Arbitor (Jiang et al., USENIX ATC 2023)."""

from collections.abc import Iterator
from typing import Any

import pandas as pd

from halfulp.tools.report import Report
from halfulp.tools.tables import Table

from .trainings import FLOAT, Case, Figures, changed, lowest, number_formats, segments

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

PUBLISHED_PIECES = {("both", 3): 88.12, ("sigmoid", 2): 82.26, ("tanh", 2): 84.92, ("both", 2): 70.95}
"""Published accuracy of CRNN with sigmoid and tanh of so many pieces."""


def everything(fmt: str) -> str:
    """Return the policy that computes all operations in a format, without wider accumulators."""
    return f"{fmt}*{fmt}={fmt}.rn+{fmt}.rn, elementwise={fmt}.rn, optimizer={fmt}.rn"


def with_reductions(fmt: str) -> str:
    """Return the policy that computes products, sums and normalisations in FP32, of operands in a format."""
    return f"{fmt}*{fmt}+fp32.rn, elementwise={fmt}.rn, reductions=fp32.rn, normalisation=fp32.rn, optimizer={fmt}.rn"


WAYS = {"all": everything, "reductions in FP32": with_reductions}
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

LOST = 2
"""Mantissa bits whose share of changed weights is measured."""

PRUNED_NETWORKS, WITH_SEGMENTS = ("resnet", "transformer"), ("translation", "recurrent")
"""Networks of the tables of sparsity and of line segments, as published: ResNet-18 and a transformer; CRNN."""


def case(network: str, policy: str) -> Case:
    """Return the case of an emulated program."""
    return Case(network, (("*", policy),), emulate=True)


def float_case(exponent: int, mantissa: int, way: str, *, network: str = "resnet", subnormals: bool = True) -> Case:
    """Return the case of a float."""
    return case(network, WAYS[way](f"e{exponent}m{mantissa}{'' if subnormals else '-ftz'}"))


def optimizer_case(mantissa: int, rounding: str) -> Case:
    """Return the case of the graph network with another rounding of parameters and optimiser."""
    fmt = f"e6m{mantissa}"
    policy = with_reductions(fmt).replace(f"optimizer={fmt}.rn", f"optimizer={OPTIMIZERS[rounding].format(fmt)}")
    return case("graph", policy)


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


def cases() -> Iterator[Case]:
    """Yield all cases of the report."""
    yield from map(Case, LOWEST)
    for way, subnormals, exponents in ROWS:
        for exponent in exponents:
            yield from (float_case(exponent, mantissa, way, subnormals=subnormals) for mantissa in MANTISSAS)
    for way in WAYS:
        for network in LOWEST:
            yield from (float_case(6, mantissa, way, network=network) for mantissa in mantissas(network))
    yield from (optimizer_case(mantissa, rounding) for rounding in OPTIMIZERS for mantissa in OTHERS)
    yield from (posit_case(width, es) for width in POSITS for es in ES)
    for text in SPARSITY:
        yield from (sparse_case(network, text, part) for network in PRUNED_NETWORKS for part in PRUNED)
    for network in WITH_SEGMENTS:
        yield from (segments_case(network, functions, pieces) for functions in FUNCTIONS for pieces in SEGMENTS)


def measured() -> dict[str, Any]:
    """Return the figures of the report that are no accuracies: the share of weights that a step changes."""
    return {"changed": {rounding: changed(optimizer_case(LOST, rounding)) for rounding in OPTIMIZERS}}


def report(figures: Figures) -> Report:
    """Return the report: its tables and the record."""
    tables = {
        "arbitor-floats": _floats(figures),
        "arbitor-networks": _networks(figures),
        "arbitor-lowest": _lowest(figures),
        "arbitor-optimizer": _optimizer(figures),
        "arbitor-posits": _posits(figures),
        "arbitor-sparsity": _sparsity(figures),
        "arbitor-segments": _segments(figures),
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
    pairs = [[float_case(6, mantissa, "all", subnormals=kind) for kind in (False, True)] for mantissa in MANTISSAS[2:]]
    losses = [-gain for flushed, subnormal in pairs if (gain := figures.gain(flushed, subnormal)) is not None]
    notes = [
        "Residual network; m: mantissa bits. All: every operation, parameters and gradients are in the format, and "
        "products are rounded too; reductions in FP32: products, convolutions, sums and whole normalisations are in "
        f"FP32, of operands in the format. FP32: {figures.mean(Case('resnet')):.2f}.",
        f"Without subnormals, formats with 6 exponent bits and at least {MANTISSAS[2]} mantissa bits lose at most "
        f"{max([0.0, *losses]):.2f} points here; published: 1.46 points (ResNet-18).",
        *figures.notes,
    ]
    return Table("Accuracy over exponent and mantissa bits", pd.DataFrame(rows), number_formats(rows), notes)


def _networks(figures: Figures) -> Table:
    rows = []
    for way in WAYS:
        for network in LOWEST:
            own = {mantissa: float_case(6, mantissa, way, network=network) for mantissa in mantissas(network)}
            cells: dict[str, Any] = {"operations": way, "network": network, "FP32": figures.cell(Case(network))}
            cells |= {f"m = {m}": figures.cell(own[m]) if m in own else None for m in MANTISSAS}
            rows.append(cells | {"seeds": figures.seeds(list(own.values()))})
    notes = ["Floats with 6 exponent bits and m mantissa bits; ways as in the table before.", *figures.notes]
    return Table("Accuracy over mantissa bits, by network", pd.DataFrame(rows), number_formats(rows), notes)


def _lowest(figures: Figures) -> Table:
    rows = []
    for network, (name, *published) in LOWEST.items():
        cells: dict[str, Any] = {"network": network, "published network": name}
        cells |= {"FP32, published": PUBLISHED_FP32[network], "FP32": figures.mean(Case(network))}
        for way, theirs in zip(WAYS, published, strict=True):
            floats = [
                (f"e6m{mantissa}", float_case(6, mantissa, way, network=network)) for mantissa in mantissas(network)
            ]
            cells |= {f"{way}, published": theirs, way: lowest(figures, floats, Case(network))}
        rows.append(cells)
    notes = [
        "Format with 6 exponent bits and the fewest mantissa bits whose mean accuracy is within one point of FP32, of "
        f"m = {MANTISSAS[0]} to {MANTISSAS[-1]} (resnet) or {', '.join(map(str, OTHERS))} (others). Published networks "
        "are larger, on CIFAR-10, FordA, Cora and eng-fra. Ours train for 60 steps (resnet, graph) to 208, with "
        "parameters and optimiser in the format.",
        *figures.notes,
    ]
    return Table("Lowest formats with the accuracy of FP32", pd.DataFrame(rows), number_formats(rows), notes)


def _optimizer(figures: Figures) -> Table:
    rows = []
    for rounding in OPTIMIZERS:
        own = {mantissa: optimizer_case(mantissa, rounding) for mantissa in OTHERS}
        cells: dict[str, Any] = {"parameters and optimiser": rounding}
        cells |= {f"m = {mantissa}": figures.cell(case) for mantissa, case in own.items()}
        share = figures.more.get("changed", {}).get(rounding)
        rows.append(cells | {f"changed, m = {LOST}": None if share is None else 100 * share})
    notes = [
        "Graph network with 6 exponent bits and reductions in FP32. Changed: percent of the parameters that the last "
        f"step changes, with the first seed. FP32: {figures.mean(Case('graph')):.2f}.",
        "No gradient vanishes, but a step of rate times momentum is about one percent of a weight, and half of a last "
        f"place of m = {LOST} is 7 to 12.5 percent. So rounding to nearest keeps the weight, whatever the formats of "
        "products and sums are. Stochastic rounding keeps the step on average.",
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
        "Residual network, every operation in a posit P(n, es). Published lowest posits with the accuracy of FP32: "
        f"P(13,3), P(11,3) and P(9,2), for three networks. FP32: {figures.mean(Case('resnet')):.2f}.",
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
        "N of M consecutive numbers stay. Update: a step changes them only, as published; weights: the products read "
        "pruned weights, and all weights are updated. All arithmetic is FP32.",
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
            cells |= {f"{count} segment{'s' * (count > 1)}": figures.cell(case) for count, case in own.items()}
            rows.append(cells)
    exact = " and ".join(f"{figures.mean(Case(network)):.2f} ({network})" for network in WITH_SEGMENTS)
    notes = [
        "Segments on each side of zero in fxp4.12, and saturation; all other arithmetic is FP32. "
        f"FP32: {exact}; published, CRNN: {PUBLISHED_FP32['translation']}.",
        "One segment on each side and two saturations are four pieces in total, or three if the two segments are one "
        "line. If the publication counts so, its three pieces are our column of one segment, and its two pieces are "
        "coarser than any column of ours.",
        *figures.notes,
    ]
    return Table("Accuracy with sigmoid and tanh of line segments", pd.DataFrame(rows), number_formats(rows), notes)
