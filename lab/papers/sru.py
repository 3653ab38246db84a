"""Report of stochastic rounding units, compared with Chang et al. (DATE 2023, Table IV)."""

import itertools
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import pandas as pd

from halfulp.boards.targets import TARGETS
from halfulp.fpga.synth.measure import Cost, Module, measure_modules, module_of
from halfulp.hdl.formats import Fixed, stochastic
from halfulp.hdl.formats.source import Plateau, Stream, parse_source
from halfulp.implementation import Implementation, short
from halfulp.tools.jobs import LOCAL, JobPool
from halfulp.tools.progress import Progress, silent
from halfulp.tools.tables import Table

TARGET = TARGETS["vu9p"]
"""Device of the published figures and ours."""

UNITS, LANES = 4096, 64
"""Units of the published design, and lanes of a bank that share one source."""

WHOLES = {"VU9P": TARGET.lut, "DarkFPGA": 678_716}
"""LUT of the device, and of the published accelerator that holds the 4096 units."""

RESULT_BITS = 8
"""Width of a result."""


@dataclass(frozen=True)
class SruSource:
    """Row of the published table: a random source and the width of the operands.

    Parameters
    ----------
    label : str
        Common name of the source.
    source : str
    discarded : int
        Number of discarded bits.
    published_lut, published_ff : int
        Figures of 4096 units; 0 if they are not published.
    bits : int
        Width of the random word; 0 for all that the source gives, at most ``discarded``.
    """

    label: str
    source: str
    discarded: int
    published_lut: int = 0
    published_ff: int = 0
    bits: int = 0

    @property
    def word(self) -> int:
        """Width of the random word."""
        return self.bits or min(parse_source(self.source).full_bits, self.discarded)

    def asked(self, *, increment: bool, lanes: int = 1, saturate: bool = False) -> Implementation:
        """Return a unit, or several lanes that share a source."""
        width = RESULT_BITS + self.discarded
        return short(
            "sru",
            str(Fixed(width, 0)),
            to=str(Fixed(width, -self.discarded, overflow="saturate" if saturate else "wrap")),
            rounding=str(stochastic(self.word)),
            random=self.source,
            lanes=lanes,
            sharing="own" if lanes == 1 else "rotated",
            increment=increment,
        )

    def unit(self, **kind: Any) -> Module:
        """Return the Verilog of a unit, with the parameters of `asked`."""
        # Without register stages, `en` and `valid` have the same effect.
        return module_of(self.asked(**kind), tied={"en": 1})


ROWS = (
    SruSource("32-bit LFSR", "lfsr32", 32, 217_088, 270_336),
    SruSource("24-bit LFSR", "lfsr24", 24, 159_744, 204_800),
    SruSource("16-bit LFSR", "lfsr16", 16, 110_592, 139_264),
    SruSource("8-bit LFSR", "lfsr8", 8, 61_440, 73_728),
    SruSource("8-bit plateau", "plateau8", 8, 61_440, 73_728),
    SruSource("3-bit plateau", "plateau3", 8, 16_384, 32_768),
)
"""Published table; a random word of more than 8 bits has the same number of discarded bits."""

CROPPED = (
    *(replace(row, discarded=8) for row in ROWS),
    SruSource("3-bit plateau, repeated to 6", "plateau3-rep", 8, 15 * UNITS),
    SruSource("3-bit plateau, repeated to 8", "plateau3-rep", 8, 15 * UNITS, bits=8),
    SruSource("3 bits, naive", "naive3", 8),
    SruSource("3-bit LFSR", "lfsr3", 8),
)
"""Rows that round 16 bits to 8; the levels of repeated words are published as a table, of which only LUT are known."""


def row_of(source: str, rows: tuple[SruSource, ...] = ROWS) -> SruSource:
    """Return the row of a source."""
    return next(row for row in rows if row.source == source)


KINDS: dict[str, dict[str, Any]] = {
    "decision": {"increment": False},
    "whole": {"increment": True},
    "bank": {"increment": False, "lanes": LANES},
    "whole bank": {"increment": True, "lanes": LANES},
    "saturating": {"increment": True, "saturate": True},
}
"""Measured units per row: source and carry decision, the same with increment, banks of both, and saturation."""

Costs = dict[tuple[SruSource, str], Cost]
"""Measured costs by row and kind."""


def study(progress: Progress = silent, pool: JobPool = LOCAL) -> Costs:
    """Measure all units of the tables."""
    every = dict.fromkeys((*ROWS, *CROPPED))
    keys = [*itertools.product(every, ("decision", "whole")), *((row, "bank") for row in ROWS)]
    keys += [(row_of("plateau3"), kind) for kind in ("whole bank", "saturating")]
    progress.total("synthesis", len(keys))
    costs = measure_modules((row.unit(**KINDS[kind]) for row, kind in keys), TARGET, progress, pool=pool)
    return dict(zip(keys, costs, strict=True))


def tables(costs: Costs) -> dict[str, Table]:
    """Return the tables of one unit, of 4096 units and of long words on 16 bits, by file names."""
    banks = {row: costs[row, "bank"] for row in ROWS}
    own = pd.DataFrame(
        [_unit(costs, row) | {"bank LUT": bank.lut / LANES, "bank FF": bank.ff / LANES} for row, bank in banks.items()]
    )
    cropped = pd.DataFrame([_unit(costs, row) | _errors(row) for row in CROPPED])
    many = [_array(costs, row) for row in ROWS]
    return {
        "sru": Table(
            "Stochastic rounding units",
            own,
            {"bank LUT": ".2f", "bank FF": ".4f"},
            [*_counted(costs), *_ratios(costs)],
        ),
        "sru-4096": Table(
            f"{UNITS} stochastic rounding units",
            pd.DataFrame(many),
            {name: ".1f" if "%" in name else ",d" for name in many[0] if "source" not in name},
            _shares(),
        ),
        "sru-cropped": Table(
            "Stochastic rounding units of 16 bits to 8",
            cropped,
            {"published LUT": ".0f", "published FF": ".0f", "mean error": "+.4f", "largest error": "+.4f"},
            [_LEVELS],
        ),
    }


def _head(row: SruSource, units: int) -> dict[str, Any]:
    return {
        "source": row.label,
        "discarded": row.discarded,
        "published LUT": row.published_lut * units // UNITS or None,
        "published FF": row.published_ff * units // UNITS or None,
    }


def _unit(costs: Costs, row: SruSource) -> dict[str, Any]:
    decision, whole = costs[row, "decision"], costs[row, "whole"]
    return _head(row, 1) | {
        "LUT": decision.lut,
        "FF": decision.ff,
        "CARRY8": decision.carry,
        "LUT +1": whole.lut,
        "CARRY8 +1": whole.carry,
    }


def _errors(row: SruSource) -> dict[str, Any]:
    """Return the mean and the largest error of the chance of rounding up, over all discarded parts of a row."""
    stream = Stream(parse_source(row.source), 1)
    parts = [Fraction(part, 1 << row.discarded) for part in range(1 << row.discarded)]
    errors = [stream.chance_of_up(part, row.word) - part for part in parts]
    return {
        "mean error": float(sum(errors) / len(errors)),
        "largest error": float(max(errors, key=abs)),
    }


_LEVELS = (
    "Errors: chance of rounding up minus the discarded part, in units of the last place, over all 256 parts of 8 bits; "
    "their mean is the drift of a sum of many rounded numbers. Words of 3 bits stand for i / 8; a plateau source whose "
    "words are repeated gives i / 7, as published with a table, of which only LUT are known."
)


def _array(costs: Costs, row: SruSource) -> dict[str, Any]:
    decision, bank = costs[row, "decision"], costs[row, "bank"]
    return _head(row, UNITS) | {
        "LUT": decision.lut * UNITS,
        "FF": decision.ff * UNITS,
        "LUT +1": costs[row, "whole"].lut * UNITS,
        "bank LUT": bank.lut * (UNITS // LANES),
        "bank FF": bank.ff * (UNITS // LANES),
        **{f"published % of {name}": 100 * row.published_lut / lut for name, lut in WHOLES.items()},
        **{f"% of {name}": 100 * decision.lut * UNITS / lut for name, lut in WHOLES.items()},
    }


def _counted(costs: Costs) -> list[str]:
    """Return notes on the figures of one unit."""
    plateau, saturating = Plateau(3), costs[row_of("plateau3"), "saturating"]
    return [
        "Published: Chang et al., DATE 2023, Table IV, figures of 4096 units divided by 4096, on a VU9P; 16 bits "
        "cropped to 8, after place and route by Vitis 2020.1.",
        f"Own: {Cost.origin(TARGET)}. This Yosys maps with ABC9, with and without -abc9.",
        "LUT is the sum of LUT1 to LUT6; no two share a table with two outputs. Two CARRY4 count as one CARRY8. "
        "Tables that only feed a bit to a carry chain are not counted; an increment has up to 8 of them.",
        "LUT, FF and CARRY8: source and carry decision; the floor needs only wires (increment=False). +1: with the "
        "increment of the 8 bits, which wraps; FF are the same.",
        "FF hold the state of the source; operands and results are not registered. The clock enable of the source is "
        "the port valid; en is 1.",
        f"Bank: source and carry decision per unit, for {LANES} units that share one source by rotations, and a "
        f"plateau source by complements too. A 3-bit plateau has {2 * plateau.width} such forms, so some units of a "
        "bank use the same words.",
        "Discarded: the publication discards 8 of 16 bits, and 8 bits of a longer word decide. Here a longer word "
        "decides over the same number of discarded bits, because the published LUT grow with the word. Another table "
        "has the variant with 8 discarded bits.",
        f"With a result that saturates, a unit of a 3-bit plateau with +1 has {saturating.lut} LUT and "
        f"{saturating.carry} CARRY8.",
    ]


def _ratios(costs: Costs) -> list[str]:
    """Return notes with the LUT ratios of a 24-bit LFSR unit to a 3-bit plateau unit, one per way of counting."""
    row, plateau = row_of("lfsr24"), row_of("plateau3")
    long, short, unit = (
        {kind: costs[source, kind].lut for kind in ("decision", "whole")}
        for source in (row, row_of("lfsr24", CROPPED), plateau)
    )
    bank, whole_bank = costs[plateau, "bank"].lut / LANES, costs[plateau, "whole bank"].lut / LANES
    return [
        "LUT of a 24-bit LFSR unit over those of a 3-bit plateau unit: published "
        f"{_over(row.published_lut // UNITS, plateau.published_lut // UNITS)}; own, over a unit of the bank "
        f"{_over(long['decision'], bank)}, over a unit with a source of its own "
        f"{_over(long['decision'], unit['decision'])}.",
        f"With +1: over a unit of the bank {_over(long['whole'], whole_bank)}, over one with a source of its own "
        f"{_over(long['whole'], unit['whole'])}.",
        f"With 8 discarded bits for the 24-bit word: over a unit of the bank {_over(short['decision'], bank)}, over "
        f"one with a source of its own {_over(short['decision'], unit['decision'])}; with +1 "
        f"{_over(short['whole'], whole_bank)} and {_over(short['whole'], unit['whole'])}.",
    ]


def _shares() -> list[str]:
    """Return notes on the figures of 4096 units and their shares."""
    return [
        f"LUT, FF and LUT +1: {UNITS} times those of one unit. Bank: {UNITS // LANES} times those of a bank "
        f"of {LANES}. The table of one unit explains the counts.",
        f"Shares: LUT over the {TARGET.lut:,} of the {TARGET.name.upper()} ({TARGET.part}; {TARGET.source}), and over "
        f"the {WHOLES['DarkFPGA']:,} of DarkFPGA, the published accelerator.",
    ]


def _over(dividend: float, divisor: float) -> str:
    return f"{dividend:.4g} / {divisor:.4g} = {dividend / divisor:.4g}"
