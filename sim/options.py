"""Command-line options that describe a unit."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from .request import OPTIONS, Request

Function = TypeVar("Function", bound=Callable[..., Any])

_UNIT_OPTIONS = (
    click.option("--acc", metavar="FMT", help="accumulator format, or exact (mac, accumulate)"),
    click.option("--product", metavar="FMT.ROUND", help="rounded product, such as e5m2.rz (mac); exact by default"),
    click.option(
        "--round", "rounding", metavar="MODE", help="rn ra rz ru rd ro exact or srN; rn by default, sr3 for sru"
    ),
    click.option("--lanes", metavar="N", type=int, help="numbers at once (sru); 1 by default"),
    click.option("--sharing", metavar="HOW", help="lanes have sources of their own, or share one rotated (sru)"),
    click.option("--increment/--no-increment", default=None, help="add carries to floors, or give them apart (sru)"),
    click.option("--stochastic", metavar="HOW", help="stochastic rounding of sums, lazy or eager; lazy by default"),
    click.option("--dsp/--no-dsp", default=None, help="leave products to DSP blocks, where they are long enough"),
    click.option("--random", metavar="SOURCE", help="source of random words: lfsrN or plateauN; ports by default"),
    click.option("--random-seed", "random_seed", metavar="N", type=int, help="state of that source after reset"),
    click.option("--saturate", is_flag=True, help="overflow gives the largest finite number"),
    click.option("--pipeline", default=0, metavar="N", type=click.IntRange(0), help="register stages; 0 by default"),
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


def unit_options(function: Function) -> Function:
    """The options that say which unit is meant."""
    for option in reversed(_UNIT_OPTIONS):
        function = option(function)
    return function


def wanted(unit: str, fmt: str, options: dict[str, Any]) -> list[Request]:
    """One request, or for `all` one for each unit that takes such operands, with those of the options that it has."""
    if unit != "all":
        return [Request(unit, fmt, **options)]
    from halfulp.hdl.formats import Rounding, parse
    from halfulp.units.catalogue import CATALOGUE

    given = options["rounding"]
    own = {key: value for key, value in options.items() if key in OPTIONS and value is not None}
    common = {key: value for key, value in options.items() if key not in OPTIONS}
    return [
        Request(row.name, fmt, **common, **row.meant(own))
        for row in CATALOGUE.values()
        if row.takes(parse(fmt), Rounding.parse(row.rounding if given is None else given))
    ]


@click.command()
@click.argument("unit")
@click.argument("fmt")
@unit_options
def _asked(unit: str, fmt: str, **options: Any) -> Request:
    return Request(unit, fmt, **options)


def read_request(words: Sequence[str]) -> Request:
    """What such words of a command line ask for.

    Raises
    ------
    ValueError
        If they are none.
    """
    try:
        request: Request = _asked.main(list(words), standalone_mode=False)
    except click.ClickException as error:
        raise ValueError(error.format_message()) from None
    return request
