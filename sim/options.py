"""Command-line arguments that describe a unit: its text, or the short form with a name, a format and options."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from halfulp.hdl.formats.rounding import MODES

Function = TypeVar("Function", bound=Callable[..., Any])

_UNIT_OPTIONS = (
    click.option("--acc", metavar="FMT", help="accumulator format, or exact (mac, accumulate)"),
    click.option("--product", metavar="FMT.ROUND", help="rounded product, such as e5m2.rz (mac); exact by default"),
    click.option(
        "--round", "rounding", metavar="MODE", help=f"{' '.join(MODES)} exact or srN; default: rn, sr3 for sru"
    ),
    click.option("--lanes", metavar="N", type=int, help="numbers at once (sru); 1 by default"),
    click.option("--sharing", metavar="HOW", help="lanes have sources of their own, or share one rotated (sru)"),
    click.option("--increment/--no-increment", default=None, help="add carries to floors, or give them apart (sru)"),
    click.option("--stochastic", metavar="HOW", help="stochastic rounding of sums, lazy or eager; lazy by default"),
    click.option("--dsp/--no-dsp", default=None, help="products for DSP blocks, where they are long enough"),
    click.option("--random", metavar="SOURCE", help="source of random words: lfsrN or plateauN; ports by default"),
    click.option("--random-seed", "random_seed", metavar="N", type=int, help="state of that source after reset"),
    click.option("--saturate", is_flag=True, default=None, help="overflow gives the largest finite number"),
    click.option("--pipeline", metavar="N", type=click.IntRange(0), help="register stages; 0 by default"),
    click.option("--reset-less", is_flag=True, default=None, help="register stages without reset"),
    click.option("--b", metavar="FMT", help="format of the second operand; that of the first by default"),
    click.option("--c", metavar="FMT", help="format of the third operand (fma), or of a start value (dot)"),
    click.option("--to", metavar="FMT", help="result format"),
    click.option("--k", metavar="N", type=int, help="pairs (dot); 4 by default"),
    click.option("--order", metavar="ORDER", help="exact or sequential (dot); exact by default"),
    click.option("--fn", metavar="NAME", help="function, or a file of its segments (pwl); tanh by default"),
    click.option("--pieces", metavar="N", type=int, help="line segments (pwl); 8 by default"),
    click.option("--error", metavar="ULP", type=float, help="largest error: few pieces, or a small unit (pwl)"),
    click.option("--breakpoints", metavar="WHERE", help="free, uniform or power (pwl); free by default"),
    click.option("--slopes", metavar="WHICH", help="any, or pow2: sums of powers of two (pwl); any by default"),
    click.option("--terms", metavar="N", type=int, help="most powers of two in a slope (pwl)"),
    click.option("--structure", metavar="HOW", help="comparators, address or table (pwl); the smallest by default"),
    click.option("--carry", metavar="N", type=int, help="carry guard of an exact accumulator, in bits; 31 by default"),
)


def unit_options(function: Function, **unit: Any) -> Function:
    """The arguments UNIT (with attributes such as ``default``) and FMT, and the options that describe a unit."""
    for option in reversed((click.argument("unit", **unit), click.argument("fmt", required=False), *_UNIT_OPTIONS)):
        function = option(function)
    return function
