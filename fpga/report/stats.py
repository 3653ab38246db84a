"""Statistics of stochastic rounding: how often the words of a source round up, and how often they should."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from halfulp.hdl.formats import Rounding, stochastic
from halfulp.hdl.formats.rounding import MAX_RANDOM_BITS
from halfulp.hdl.formats.source import Stream, check_source, parse_source
from halfulp.sim.reference import CHUNK
from halfulp.tools.progress import Progress, silent
from halfulp.tools.threads import one_thread

if TYPE_CHECKING:
    from torch import Tensor

    from halfulp.tools.plots import Chances
    from halfulp.tools.report import Report
    from halfulp.tools.tables import Table

SOURCES = ("naive3", "plateau3", "lfsr8", "lfsr16", "lfsr24")
"""Default sources: the plain LFSR as short as a plateau source is first."""

FRACTION_BITS = 8
"""Every multiple of 1/256 is rounded."""

SHOWN = 8
"""Rows of a source in the table of fractions: the eighths."""

LONGEST = 1 << 17
"""Sources of a longer period are measured over so many words of each fraction, the others over one whole period."""

MEAN_ROUNDS = 1 << 20
"""Fractions, uniform in 0 to 1, that a mean bias is taken over; each takes a word."""

_DOTTED = 16  # fractions that a rounder tells apart, up to which each has a dot in plots
_MEAN_BITS = MAX_RANDOM_BITS + 16  # of these fractions: more than any rounder looks at
_BATCH = 1 << 10  # of their words, whose mean depends little on the next batch's


@dataclass(frozen=True)
class Rounder:
    """A source of random words, and the stochastic rounding that they are for.

    Parameters
    ----------
    name : str
        How the source was called.
    stream : Stream
        Its words, from the state that it has after reset.
    rounding : Rounding
        A stochastic one.

    Raises
    ------
    TypeError, ValueError
        If the rounding is not stochastic, or the source has no words for it.
    """

    name: str
    stream: Stream
    rounding: Rounding

    def __post_init__(self) -> None:
        if not self.rounding.bits:
            raise ValueError(
                f"{self.name} is for stochastic rounding by sr1 to sr{MAX_RANDOM_BITS}, not {self.rounding}"
            )
        check_source(self.stream.source, [self.rounding.bits])

    @classmethod
    def parse(cls, text: str) -> "Rounder":
        """Rounder of a text such as ``plateau3`` or ``lfsr24.sr8``.

        Without a rounding it takes all bits of the source, or as many as a rounding can. ``naive3`` is ``lfsr3`` in a
        comparison with plateau sources.
        """
        name, dot, rounding = text.partition(".")
        source = parse_source(f"lfsr{name[5:]}" if name.startswith("naive") else name)
        widest = stochastic(min(source.width, MAX_RANDOM_BITS))
        return cls(name, Stream(source, seed=1), Rounding.parse(rounding) if dot else widest)

    def probability(self, fraction: Fraction) -> Fraction:
        """Exact share of results that are rounded up, over a whole period."""
        return self.stream.chance_of_up(fraction, self.rounding.bits)

    @property
    def mean_probability(self) -> Fraction:
        """Mean of that share over all fractions."""
        return self.stream.mean_chance_of_up(self.rounding.bits)

    def covers(self, rounds: int) -> bool:
        """True if so many words are whole periods."""
        return rounds % self.stream.source.period == 0

    def words(self, first: int, count: int) -> "Tensor":
        """Random words from the one numbered ``first`` on."""
        from halfulp.golden.random import of_stream

        start = self.stream.source.jump(self.stream.seed, first)
        return of_stream(replace(self.stream, seed=start), count, self.rounding.bits)

    def up(self, codes: "Tensor", fraction_bits: int, words: "Tensor") -> "Tensor":
        """1 for each of codes * 2^-fraction_bits that the golden model rounds up, 0 for the others."""
        from halfulp import golden

        return golden.convert(codes, a=f"ufxp0.{fraction_bits}", o="ufxp1.0", rounding=self.rounding, random=words)

    @property
    def steps(self) -> int:
        """Fractions that it tells apart; what others have beyond these is dropped."""
        return self.stream.steps(self.rounding.bits)


@dataclass(frozen=True)
class Count:
    """Number of times that a rounder took each fraction up.

    Parameters
    ----------
    rounder : Rounder
    rounds : int
        Times that each fraction was rounded.
    ups : sequence of int
        For the fractions 0, 1/n, 2/n ... of which there are n, how many of these times it went up.
    """

    rounder: Rounder
    rounds: int
    ups: Sequence[int]

    @property
    def whole(self) -> bool:
        """True if the counts are over whole periods, and so exact."""
        return self.rounder.covers(self.rounds)

    @property
    def fractions(self) -> list[Fraction]:
        """Rounded fractions, in units of the last place."""
        return [Fraction(index, len(self.ups)) for index in range(len(self.ups))]

    @property
    def measured(self) -> list[Fraction]:
        """Share of the rounds of each fraction that went up."""
        return [Fraction(up, self.rounds) for up in self.ups]

    @property
    def errors(self) -> list[Fraction]:
        """Distance of each share from the fraction, which is the ideal."""
        return [share - fraction for share, fraction in zip(self.measured, self.fractions, strict=True)]

    def plotted(self) -> "Chances":
        """Panel of `plot_chances`."""
        from halfulp.tools.plots import Chances

        steps = self.rounder.steps
        return Chances(
            title=f"{self.rounder.name}, {self.rounder.rounding}",
            fractions=[float(fraction) for fraction in self.fractions],
            measured=[float(share) for share in self.measured],
            errors=[float(error) for error in self.errors],
            dotted=len(self.ups) // steps if steps <= _DOTTED else None,
        )

    @property
    def exact(self) -> list[Fraction]:
        """The same over a whole period of the source."""
        return [self.rounder.probability(fraction) for fraction in self.fractions]

    def chi_square(self) -> tuple[float, int]:
        """Distance of all counts from the law, and its degrees of freedom.

        Returns
        -------
        float, int
            Sum over fractions of (ups - rounds * P)^2 / (rounds * P * (1 - P)), P the law's chance, which takes ups and
            downs together. Where the law leaves nothing to chance there is no freedom, and a count that differs is
            infinitely far off.
        """
        total, freedom = 0.0, 0
        for up, chance in zip(self.ups, self.exact, strict=True):
            off, variance = up - self.rounds * chance, self.rounds * chance * (1 - chance)
            if variance:
                total += float(off * off / variance)
                freedom += 1
            elif off:
                total = math.inf
        return total, freedom

    def p_value(self) -> float:
        """Probability of a chi-square as large as that of the counts, or larger."""
        import torch

        total, freedom = self.chi_square()
        if total in (0, math.inf):
            return float(total == 0)
        halves = torch.tensor([freedom / 2, total / 2], dtype=torch.float64)
        return float(torch.special.gammaincc(*halves))


@dataclass(frozen=True)
class Measurement:
    """Counts of a rounder, and its mean bias over fractions of many bits.

    Parameters
    ----------
    count : Count
    bias : float
        Mean of what rounding added, in units of the last place.
    bias_error : float
        Standard error of that mean.
    """

    count: Count
    bias: float
    bias_error: float


def measure(rounder: Rounder, rounds: int | None = None, progress: Progress = silent) -> Measurement:
    """Round with the golden model and count.

    Parameters
    ----------
    rounder : Rounder
    rounds : int, optional
        Of each fraction; a whole period of the source, or `LONGEST` where that is longer.
    progress : Progress
    """
    if rounds is None:
        period = rounder.stream.source.period
        rounds = period if period <= LONGEST else LONGEST
    with one_thread():
        return Measurement(count_ups(rounder, rounds, progress=progress), *mean_bias(rounder))


def count_ups(
    rounder: Rounder, rounds: int, *, fraction_bits: int = FRACTION_BITS, progress: Progress = silent
) -> Count:
    """Count how often a rounder takes each multiple of 2^-fraction_bits up.

    Over whole periods each fraction meets each word. Over a part of a period the fractions come in random order, and
    each takes the next word: neighbours in the stream of an LFSR share all bits but one, so that what one fraction made
    of a row of them would say less than as many words do.
    """
    import torch

    codes = torch.arange(1 << fraction_bits)
    order = torch.Generator().manual_seed(0)
    shared = rounder.covers(rounds)
    taken = 1 if shared else len(codes)
    block = max(CHUNK // len(codes), 1)
    progress.total(rounder.name, rounds)
    ups = torch.zeros_like(codes)
    for first in range(0, rounds, block):
        count = min(block, rounds - first)
        words = rounder.words(first * taken, count * taken)
        if not shared:
            words = words[torch.randperm(len(words), generator=order)]
        ups += rounder.up(codes, fraction_bits, words.reshape(count, taken)).sum(0)
        progress.advance(count)
    return Count(rounder, rounds, ups.tolist())


def mean_bias(rounder: Rounder) -> tuple[float, float]:
    """Mean of what rounding adds to fractions that are uniform in 0 to 1, and the standard error of that mean.

    Words next to each other in a stream are correlated, batches of many are hardly: the error is that of batches.
    """
    import torch

    codes = torch.randint(1 << _MEAN_BITS, (MEAN_ROUNDS,), generator=torch.Generator().manual_seed(0))
    added = torch.empty(MEAN_ROUNDS, dtype=torch.float64)
    for first in range(0, MEAN_ROUNDS, CHUNK):
        code = codes[first : first + CHUNK]
        up = rounder.up(code, _MEAN_BITS, rounder.words(first, len(code)))
        added[first : first + CHUNK] = up - code / 2.0**_MEAN_BITS
    batches = added.reshape(-1, _BATCH).mean(1)
    return batches.mean().item(), batches.std().item() / math.sqrt(len(batches))


def report(measurements: Sequence[Measurement], command: str) -> "Report":
    """Both tables and the plot."""
    from halfulp.tools.report import Report

    def plot() -> Any:
        from halfulp.tools.plots import plot_chances

        return plot_chances([measurement.count.plotted() for measurement in measurements])

    tables = {"stats-sru-fractions": fractions_table(measurements), "stats-sru": sources_table(measurements)}
    title = "How often stochastic rounding goes up"
    return Report(tables, {"stats-sru": plot}, title=title, made_by=command, endings=("png", "svg"))


def fractions_table(measurements: Sequence[Measurement]) -> "Table":
    """Measured and exact share of the eighths that each rounder took up."""
    import pandas as pd

    from halfulp.tools.tables import Table

    rows = []
    for count in (measurement.count for measurement in measurements):
        columns = zip(count.fractions, count.ups, count.measured, count.exact, count.errors, strict=True)
        for fraction, up, measured, exact, error in itertools.islice(columns, 0, None, len(count.ups) // SHOWN):
            rows.append(
                {
                    "source": count.rounder.name,
                    "rounding": str(count.rounder.rounding),
                    "fraction": float(fraction),
                    "rounds": count.rounds,
                    "up": up,
                    "P(up)": float(measured),
                    "law": float(exact),
                    "law, exact": str(exact),
                    "bias": float(measured - exact),
                    "error": float(error),
                }
            )
    return Table(
        title="How often stochastic rounding goes up",
        frame=pd.DataFrame(rows),
        formats={"fraction": ".3f", "rounds": ",", "up": ",", "P(up)": ".6f", "law": ".6f"}
        | dict.fromkeys(("bias", "error"), ".3g"),
        notes=[
            "fraction: what is discarded, in units of the last place; ideally P(up) equals it.",
            "law: P(up) over a whole period of the source; with N random bits, what the fraction has below its first N "
            "bits is dropped.",
            "bias: P(up) - law; error: P(up) - fraction.",
            _words(measurements),
        ],
    )


def sources_table(measurements: Sequence[Measurement]) -> "Table":
    """Each rounder as a whole: its distance from the law, and its errors against the ideal."""
    import pandas as pd

    from halfulp.tools.tables import Table

    rows = []
    for measurement in measurements:
        count, rounder = measurement.count, measurement.count.rounder
        statistic, freedom = count.chi_square()
        error, fraction = max(zip(count.errors, count.fractions, strict=True), key=lambda pair: abs(pair[0]))
        rows.append(
            {
                "source": rounder.name,
                "rounding": str(rounder.rounding),
                "rounds": count.rounds,
                "chi-square": statistic,
                "freedom": freedom,
                "p": count.p_value(),
                "law, no drop": float(rounder.mean_probability - Fraction(rounder.steps - 1, 2 * rounder.steps)),
                "law": float(rounder.mean_probability - Fraction(1, 2)),
                "mean bias": measurement.bias,
                "std error": measurement.bias_error,
                "largest error": float(error),
                "at": float(fraction),
            }
        )
    size = len(measurements[0].count.ups)
    notes = [
        f"chi-square: of ups and downs at all {size} multiples of 1/{size} against the law, with its degrees of "
        "freedom; p: how often chance alone is so far from the law, or further."
    ]
    if any(measurement.count.whole for measurement in measurements):
        notes += ["Over whole periods the counts are those of the law exactly, so that chi-square is 0 and p is 1."]
    if not all(measurement.count.whole for measurement in measurements):
        notes += [
            "Over a part of a period consecutive words of one LFSR are correlated, so that chi-square follows its "
            "distribution only nearly, though the fractions come in random order."
        ]
    notes += [
        f"mean bias: of P(up) against fractions of {_MEAN_BITS} bits, {MEAN_ROUNDS:,} of them at random, and its "
        "standard error; law: the same by the law, over all fractions; law, no drop: over those of which nothing is "
        "dropped.",
        f"largest error: of P(up) against the fraction, among the multiples of 1/{size}.",
        _words(measurements),
    ]
    return Table(
        title="Sources of stochastic rounding",
        frame=pd.DataFrame(rows),
        formats={"rounds": ",", "chi-square": ".1f", "p": ".2g", "largest error": ".3g", "at": ".4g"}
        | dict.fromkeys(("law, no drop", "law", "mean bias"), ".3g")
        | {"std error": ".2g"},
        notes=notes,
    )


def _words(measurements: Sequence[Measurement]) -> str:
    """Note on the sources measured over whole periods, and over parts of one."""
    counts = [measurement.count for measurement in measurements]
    whole = ", ".join(count.rounder.name for count in counts if count.whole)
    parts = [
        f"{count.rounds:,} of {count.rounder.name}, whose period has {count.rounder.stream.source.period:,}"
        for count in counts
        if not count.whole
    ]
    listed = "; ".join([*([f"whole periods of {whole}"] if whole else []), *parts])
    return f"Words that the golden model rounded each fraction with, from state 1 of the source on: {listed}."
