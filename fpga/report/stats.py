"""Statistics of stochastic rounding: measured, exact and ideal frequency of rounding up per random source."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING

import pandas as pd

from halfulp.hdl.formats import Rounding, stochastic
from halfulp.hdl.formats.rounding import MAX_RANDOM_BITS
from halfulp.hdl.formats.source import Stream, check_source, parse_source
from halfulp.sim.reference import CHUNK
from halfulp.tools.plots import Chances, plot_chances
from halfulp.tools.progress import Progress, silent
from halfulp.tools.report import Report
from halfulp.tools.tables import Table
from halfulp.tools.threads import threads

if TYPE_CHECKING:
    from torch import Tensor

SOURCES = ("lfsr3", "naive3", "plateau3", "plateau3-rep", "lfsr8", "lfsr16", "lfsr24")
"""Default sources."""

FRACTION_BITS = 8
"""Width of the rounded fractions."""

SHOWN = 8
"""Rows per source in the table of fractions: the eighths."""

LONGEST = 1 << 17
"""Maximum number of words per fraction; a source with a shorter period is measured over one period."""

MEAN_ROUNDS = 1 << 20
"""Number of fractions, uniform in 0 to 1, for a mean bias; each takes one word."""

_DOTTED = 16  # rounders with at most this many distinct fractions have dots in plots
_MEAN_BITS = MAX_RANDOM_BITS + 16  # bits of the fractions of a mean bias, more than any rounder uses
_BATCH = 1 << 10  # words per batch; means of batches are nearly independent


@dataclass(frozen=True)
class Rounder:
    """Random source with a stochastic rounding that uses its words; ValueError if they do not match.

    Parameters
    ----------
    name : str
        Name of the source.
    stream : Stream
        Words of the source after reset.
    rounding : Rounding
        Stochastic rounding.
    """

    name: str
    stream: Stream
    rounding: Rounding

    def __post_init__(self) -> None:
        if not self.rounding.bits:
            raise ValueError(f"{self.name} needs stochastic rounding, sr1 to sr{MAX_RANDOM_BITS}, not {self.rounding}")
        check_source(self.stream.source, [self.rounding.bits])

    @classmethod
    def parse(cls, text: str) -> "Rounder":
        """Parse a text such as ``plateau3`` or ``lfsr24.sr8``.

        By default the rounding uses all bits of the source, up to its maximum.
        """
        name, dot, rounding = text.partition(".")
        source = parse_source(name)
        widest = stochastic(min(source.full_bits, MAX_RANDOM_BITS))
        return cls(name, Stream(source, seed=1), Rounding.parse(rounding) if dot else widest)

    def probability(self, fraction: Fraction) -> Fraction:
        """Return the exact probability of rounding a fraction up, over a whole period."""
        return self.stream.chance_of_up(fraction, self.rounding.bits)

    @property
    def mean_probability(self) -> Fraction:
        """Mean of `probability` over all fractions."""
        return self.stream.mean_chance_of_up(self.rounding.bits)

    def covers(self, rounds: int) -> bool:
        """Return True if ``rounds`` words are whole periods."""
        return rounds % self.stream.source.period == 0

    def words(self, first: int, count: int) -> "Tensor":
        """Return ``count`` random words, starting at index ``first``."""
        from halfulp.golden.random import of_stream

        start = self.stream.source.jump(self.stream.seed, first)
        return of_stream(replace(self.stream, seed=start), count, self.rounding.bits)

    def up(self, codes: "Tensor", fraction_bits: int, words: "Tensor") -> "Tensor":
        """Round codes * 2^-fraction_bits with the golden model; 1 for up, 0 for down."""
        from halfulp import golden

        return golden.convert(codes, a=f"ufxp0.{fraction_bits}", o="ufxp1.0", rounding=self.rounding, random=words)

    @property
    def steps(self) -> int:
        """Number of distinct fractions; the rounding drops further bits."""
        return self.stream.steps(self.rounding.bits)


@dataclass(frozen=True)
class Count:
    """Counts of rounding up, per fraction.

    Parameters
    ----------
    rounder : Rounder
    rounds : int
        Number of roundings per fraction.
    ups : sequence of int
        Number of roundings up of each of the n fractions 0, 1/n, 2/n ...
    bias, bias_error : float
        Mean rounding error of fractions of many bits, in units of the last place, and its standard error.
    """

    rounder: Rounder
    rounds: int
    ups: Sequence[int]
    bias: float = math.nan
    bias_error: float = math.nan

    @property
    def whole(self) -> bool:
        """True if the counts are over whole periods and therefore exact."""
        return self.rounder.covers(self.rounds)

    @property
    def fractions(self) -> list[Fraction]:
        """Rounded fractions, in units of the last place."""
        return [Fraction(index, len(self.ups)) for index in range(len(self.ups))]

    @property
    def measured(self) -> list[Fraction]:
        """Measured frequency of rounding up, per fraction."""
        return [Fraction(up, self.rounds) for up in self.ups]

    @property
    def errors(self) -> list[Fraction]:
        """Difference of each measured frequency from the ideal, the fraction itself."""
        return [share - fraction for share, fraction in zip(self.measured, self.fractions, strict=True)]

    def plotted(self) -> Chances:
        """Return the panel for `plot_chances`."""
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
        """Exact probability of rounding up over a whole period of the source, per fraction."""
        return [self.rounder.probability(fraction) for fraction in self.fractions]

    def chi_square(self) -> tuple[float, int]:
        """Return the chi-square statistic of the counts against exact probabilities P, and its degrees of freedom.

        The statistic is the sum over fractions of (ups - rounds * P)^2 / (rounds * P * (1 - P)). A fraction with P of 0
        or 1 has no freedom, and a wrong count of such a fraction makes the sum infinite.
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
        """Return the probability of a chi-square statistic at least as large as that of the counts."""
        import torch

        total, freedom = self.chi_square()
        if total in (0, math.inf):
            return float(total == 0)
        halves = torch.tensor([freedom / 2, total / 2], dtype=torch.float64)
        return float(torch.special.gammaincc(*halves))


@threads(1)
def measure(rounder: Rounder, rounds: int | None = None, progress: Progress = silent) -> Count:
    """Round each fraction ``rounds`` times with the golden model; default: the period, at most `LONGEST`."""
    rounds = min(rounder.stream.source.period, LONGEST) if rounds is None else rounds
    bias, error = mean_bias(rounder)
    return replace(count_ups(rounder, rounds, progress=progress), bias=bias, bias_error=error)


def count_ups(
    rounder: Rounder, rounds: int, *, fraction_bits: int = FRACTION_BITS, progress: Progress = silent
) -> Count:
    """Count the roundings up of each multiple of 2^-fraction_bits.

    Over whole periods each fraction is rounded with each word. Over a part of a period the fractions are in random
    order and each takes the next word, because consecutive words of an LFSR share all bits but one and would be a poor
    sample for one fraction.
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
    """Return the mean rounding error of uniform fractions, and its standard error.

    The standard error is that of means of batches, because consecutive words are correlated and batches hardly are.
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


def report(counts: Sequence[Count], command: str) -> Report:
    """Return the report: both tables and the plot."""
    tables = {"stats-sru-fractions": fractions_table(counts), "stats-sru": sources_table(counts)}
    title = "Probability of rounding up, by random source and rounding"
    plot = partial(plot_chances, [count.plotted() for count in counts], title=title)
    return Report(tables, {"stats-sru": plot}, title=title, made_by=command)


def fractions_table(counts: Sequence[Count]) -> Table:
    """Return a table of the measured and exact frequency of rounding up, for the eighths."""
    rows = []
    for count in counts:
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
                    "expected": float(exact),
                    "expected, exact": str(exact),
                    "bias": float(measured - exact),
                    "error": float(error),
                }
            )
    return Table(
        title="Frequency of rounding up",
        frame=pd.DataFrame(rows),
        formats={"fraction": ".3f", "rounds": ",", "up": ",", "P(up)": ".6f", "expected": ".6f"}
        | dict.fromkeys(("bias", "error"), ".3g"),
        notes=[
            "fraction: the discarded part, in units of the last place; ideally P(up) equals it.",
            "expected: P(up) over a whole period of the source; N random bits drop bits of the fraction below its "
            "first N.",
            "bias: P(up) - expected; error: P(up) - fraction.",
            _words(counts),
        ],
    )


def sources_table(counts: Sequence[Count]) -> Table:
    """Return a table with a row per rounder: chi-square against exact probabilities, errors against ideal ones."""
    rows = []
    for count in counts:
        rounder = count.rounder
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
                "bias, no drop": float(rounder.mean_probability - Fraction(rounder.steps - 1, 2 * rounder.steps)),
                "expected bias": float(rounder.mean_probability - Fraction(1, 2)),
                "mean bias": count.bias,
                "std error": count.bias_error,
                "largest error": float(error),
                "at": float(fraction),
            }
        )
    size = len(counts[0].ups)
    notes = [
        f"chi-square: of the counts at all {size} multiples of 1/{size} against the expected ones, with its degrees "
        "of freedom; p: probability of a statistic at least as large."
    ]
    if any(count.whole for count in counts):
        notes += ["Over whole periods the counts are exactly the expected ones: chi-square is 0 and p is 1."]
    if not all(count.whole for count in counts):
        notes += [
            "Over a part of a period the words of one LFSR are correlated, so chi-square follows its distribution "
            "only approximately, although the fractions are in random order."
        ]
    notes += [
        f"mean bias: mean of P(up) - fraction over {MEAN_ROUNDS:,} random fractions of {_MEAN_BITS} bits, and its "
        "standard error; expected bias: the same over all fractions and a whole period; bias, no drop: over fractions "
        "without dropped bits.",
        f"largest error: of P(up) against the fraction, among the multiples of 1/{size}.",
        _words(counts),
    ]
    return Table(
        title="Sources of stochastic rounding",
        frame=pd.DataFrame(rows),
        formats={"rounds": ",", "chi-square": ".1f", "p": ".2g", "largest error": ".3g", "at": ".4g"}
        | dict.fromkeys(("bias, no drop", "expected bias", "mean bias"), ".3g")
        | {"std error": ".2g"},
        notes=notes,
    )


def _words(counts: Sequence[Count]) -> str:
    """Return a note on the number of words per source."""
    whole = ", ".join(count.rounder.name for count in counts if count.whole)
    parts = [
        f"{count.rounds:,} of {count.rounder.name}, whose period has {count.rounder.stream.source.period:,}"
        for count in counts
        if not count.whole
    ]
    listed = "; ".join([*([f"whole periods of {whole}"] if whole else []), *parts])
    return f"Random words for each fraction in the golden model, from state 1 of the source on: {listed}."
