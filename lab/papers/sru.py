"""Report of stochastic rounding units, compared with Chang et al. (DATE 2023, Table IV)."""

import itertools
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from halfulp.boards.targets import TARGETS
from halfulp.fpga.synth.measure import Cost, Module, measure_modules, module_of
from halfulp.hdl.formats import Fixed, stochastic
from halfulp.hdl.formats.source import Plateau, parse_source
from halfulp.implementation import short
from halfulp.tools.jobs import LOCAL, JobPool
from halfulp.tools.progress import Progress, silent
from halfulp.tools.tables import Table

TARGET = TARGETS["vu9p"]
"""Device of the published figures and ours."""

UNITS, LANES = 4096, 64
"""Units of the published design, and lanes of a bank that share one source."""

RESULT_BITS = 8
"""Width of a result."""


@dataclass(frozen=True)
class Row:
    """Row of the published table: a random source and the width of the operands.

    Parameters
    ----------
    label : str
        Common name of the source.
    source : str
    discarded : int
        Number of discarded bits.
    published_lut, published_ff : int
        Figures of 4096 units.
    """

    label: str
    source: str
    discarded: int
    published_lut: int
    published_ff: int

    def unit(self, *, increment: bool, lanes: int = 1, saturate: bool = False) -> Module:
        """Return the Verilog of a unit, or of several lanes that share a source."""
        width = RESULT_BITS + self.discarded
        unit = short(
            "sru",
            str(Fixed(width, 0)),
            to=str(Fixed(width, -self.discarded, overflow="saturate" if saturate else "wrap")),
            rounding=str(stochastic(min(parse_source(self.source).width, self.discarded))),
            random=self.source,
            lanes=lanes,
            sharing="own" if lanes == 1 else "rotated",
            increment=increment,
        )
        # Without register stages, `en` and `valid` have the same effect.
        return module_of(unit, tied={"en": 1})


ROWS = (
    Row("32-bit LFSR", "lfsr32", 32, 217_088, 270_336),
    Row("24-bit LFSR", "lfsr24", 24, 159_744, 204_800),
    Row("16-bit LFSR", "lfsr16", 16, 110_592, 139_264),
    Row("8-bit LFSR", "lfsr8", 8, 61_440, 73_728),
    Row("8-bit plateau", "plateau8", 8, 61_440, 73_728),
    Row("3-bit plateau", "plateau3", 8, 16_384, 32_768),
)
"""Published table; a random word of more than 8 bits has the same number of discarded bits."""

CROPPED = tuple(replace(row, discarded=8) for row in ROWS if row.discarded > 8)
"""Rows with random words of more than 8 bits that round 16 bits to 8."""


def row_of(source: str, rows: tuple[Row, ...] = ROWS) -> Row:
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

Costs = dict[tuple[Row, str], Cost]
"""Measured costs by row and kind."""


def study(progress: Progress = silent, pool: JobPool = LOCAL) -> Costs:
    """Measure all units of the tables."""
    keys = [*itertools.product((*ROWS, *CROPPED), ("decision", "whole")), *((row, "bank") for row in ROWS)]
    keys += [(row_of("plateau3"), kind) for kind in ("whole bank", "saturating")]
    progress.total("synthesis", len(keys))
    costs = measure_modules((row.unit(**KINDS[kind]) for row, kind in keys), TARGET, progress, pool=pool)
    return dict(zip(keys, costs, strict=True))


def tables(found: Costs) -> dict[str, Table]:
    """Return the tables of one unit, of 4096 units and of long words on 16 bits, by file names."""
    banks = {row: found[row, "bank"] for row in ROWS}
    own = pd.DataFrame(
        [_unit(found, row) | {"bank LUT": bank.lut / LANES, "bank FF": bank.ff / LANES} for row, bank in banks.items()]
    )
    cropped = pd.DataFrame([_unit(found, row) for row in CROPPED])
    many = [_array(found, row) for row in ROWS]
    return {
        "sru": Table(
            "Stochastic rounding units",
            own,
            {"bank LUT": ".2f", "bank FF": ".4f"},
            [*_counted(found), *_ratios(found)],
        ),
        "sru-4096": Table(
            f"{UNITS} stochastic rounding units",
            pd.DataFrame(many),
            {name: ",d" for name in many[0] if "LUT" in name or "FF" in name},
            _shares(found),
        ),
        "sru-cropped": Table("Stochastic rounding units with words longer than the discarded bits", cropped),
    }


def _head(row: Row, units: int) -> dict[str, Any]:
    return {
        "source": row.label,
        "discarded": row.discarded,
        "published LUT": row.published_lut * units // UNITS,
        "published FF": row.published_ff * units // UNITS,
    }


def _unit(found: Costs, row: Row) -> dict[str, Any]:
    decision, whole = found[row, "decision"], found[row, "whole"]
    return _head(row, 1) | {
        "LUT": decision.lut,
        "FF": decision.ff,
        "CARRY8": decision.carry,
        "LUT +1": whole.lut,
        "CARRY8 +1": whole.carry,
    }


def _array(found: Costs, row: Row) -> dict[str, Any]:
    decision, bank = found[row, "decision"], found[row, "bank"]
    return _head(row, UNITS) | {
        "LUT": decision.lut * UNITS,
        "FF": decision.ff * UNITS,
        "LUT +1": found[row, "whole"].lut * UNITS,
        "bank LUT": bank.lut * (UNITS // LANES),
        "bank FF": bank.ff * (UNITS // LANES),
    }


def _counted(found: Costs) -> list[str]:
    """Return notes on the figures of one unit."""
    plateau, saturating = Plateau(3), found[row_of("plateau3"), "saturating"]
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


def _ratios(found: Costs) -> list[str]:
    """Return notes with the LUT ratios of a 24-bit LFSR unit to a 3-bit plateau unit, one per way of counting."""
    row, plateau = row_of("lfsr24"), row_of("plateau3")
    long, short, unit = (
        {kind: found[one, kind].lut for kind in ("decision", "whole")}
        for one in (row, row_of("lfsr24", CROPPED), plateau)
    )
    bank, whole_bank = found[plateau, "bank"].lut / LANES, found[plateau, "whole bank"].lut / LANES
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


def _shares(found: Costs) -> list[str]:
    """Return notes on the figures of 4096 units and their share of the device."""
    long, plateau = row_of("lfsr24"), row_of("plateau3")

    def share(lut: int) -> str:
        return f"{100 * lut / TARGET.lut:.2g} %"

    return [
        f"LUT, FF and LUT +1: {UNITS} times those of one unit. Bank: {UNITS // LANES} times those of a bank "
        f"of {LANES}. The table of one unit explains the counts.",
        f"Of the {TARGET.lut:,} LUT of the {TARGET.name.upper()} ({TARGET.part}; {TARGET.source}), 24-bit LFSR units "
        f"take {share(found[long, 'decision'].lut * UNITS)}, published {share(long.published_lut)}; 3-bit plateau "
        f"units in banks {share(found[plateau, 'bank'].lut * (UNITS // LANES))}, published "
        f"{share(plateau.published_lut)}.",
    ]


def _over(dividend: float, divisor: float) -> str:
    return f"{dividend:.4g} / {divisor:.4g} = {dividend / divisor:.4g}"
