"""Command-line arguments that describe a unit: its text, or the short form with a name, a format and options."""

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import click

from halfulp.hdl.formats.rounding import MODES

from .implementation import DEFAULT_FORMAT

Function = TypeVar("Function", bound=Callable[..., Any])

_UNIT_OPTIONS = (
    click.option("--acc", metavar="FMT", help="accumulator format, or exact (mac, accumulate)"),
    click.option("--product", metavar="FMT.ROUND", help="rounded product, such as e5m2.rz (mac); default: exact"),
    click.option(
        "--round", "rounding", metavar="MODE", help=f"{' '.join(MODES)} exact or srN; default: rn, sr3 for sru"
    ),
    click.option("--lanes", metavar="N", type=int, help="numbers at once (sru); default: 1"),
    click.option(
        "--sharing",
        metavar="HOW",
        help="own: one random source per lane; rotated: one source for all, rotated (sru); default: own",
    ),
    click.option(
        "--increment/--no-increment",
        default=None,
        help="add the rounding carry to the truncated result, or output it as up0, up1, ... (sru)",
    ),
    click.option("--stochastic", metavar="HOW", help="stochastic rounding of sums, lazy or eager; default: lazy"),
    click.option("--dsp/--no-dsp", default=None, help="map products to DSP blocks"),
    click.option("--random", metavar="SOURCE", help="source of random words: lfsrN or plateauN; default: ports"),
    click.option("--random-seed", metavar="N", type=int, help="state of that source after reset; default: 1"),
    click.option("--saturate", is_flag=True, default=None, help="overflow gives the largest finite number"),
    click.option("--pipeline", metavar="N", type=click.IntRange(0), help="register stages; default: 0"),
    click.option("--reset-less", is_flag=True, default=None, help="register stages without reset"),
    click.option("--b", metavar="FMT", help="format of the second operand; default: that of the first"),
    click.option("--c", metavar="FMT", help="format of the third operand (fma), or of a start value (dot)"),
    click.option("--to", metavar="FMT", help="result format"),
    click.option("--k", metavar="N", type=int, help="pairs (dot); default: 4"),
    click.option("--order", metavar="ORDER", help="exact or sequential (dot); default: exact"),
    click.option("--fn", metavar="NAME", help="function, or a file of its segments (pwl); default: tanh"),
    click.option("--pieces", metavar="N", type=int, help="line segments (pwl); default: 8"),
    click.option(
        "--error",
        metavar="ULP",
        type=float,
        help="largest error in ulp; the fit uses the fewest pieces, or with --pieces the smallest unit (pwl)",
    ),
    click.option("--breakpoints", metavar="WHERE", help="free, uniform or power (pwl); default: free"),
    click.option("--slopes", metavar="WHICH", help="any, or pow2: sums of powers of two (pwl); default: any"),
    click.option("--terms", metavar="N", type=int, help="maximum number of powers of two in a slope (pwl)"),
    click.option("--structure", metavar="HOW", help="comparators, address or table (pwl); default: the smallest"),
    click.option("--carry", metavar="N", type=int, help="carry guard of an exact accumulator, in bits; default: 31"),
)


def unit_options(function: Function, **unit: Any) -> Function:
    """The arguments UNIT (with attributes such as ``default``) and FMT, and the options that describe a unit."""
    default = "" if "default" in unit else f" (default: {DEFAULT_FORMAT})"
    text = f'UNIT is a name, with FMT{default} and options, or a text such as "mac e5m2*e5m2+e6m5.sr10".'
    function.__doc__ = f"{inspect.cleandoc(function.__doc__ or '')}\n\n{text}"
    for option in reversed((click.argument("unit", **unit), click.argument("fmt", required=False), *_UNIT_OPTIONS)):
        function = option(function)
    return function
