"""Command-line arguments of a unit: its text, or the short form with a name, a format and options."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import click

from halfulp.boards.targets import DEVICES, target_of
from halfulp.hdl.formats.catalogue import BLOCK_NAMES, NAMED
from halfulp.hdl.formats.rounding import MODES, PORTS
from halfulp.hdl.formats.source import SHARINGS
from halfulp.hdl.specs import COMPOSED, UNITS, pwl
from halfulp.hdl.specs.build import GOALS, MAX_ITERATIONS, MAX_PIPELINE, STOCHASTIC, STRUCTURES
from halfulp.hdl.specs.dot import EXACT, SEQUENTIAL
from halfulp.hdl.specs.function import FUNCTIONS
from halfulp.hdl.specs.grammar import continuations
from halfulp.tools.commands import Parsed

from .implementation import BUILD, DEFAULT_FORMAT

Function = TypeVar("Function", bound=Callable[..., Any])

_STAGES, _STEPS = click.IntRange(0, MAX_PIPELINE), click.IntRange(0, MAX_ITERATIONS)

FORMAT = Parsed(words=(*NAMED, *BLOCK_NAMES))
"""Type of the text of a format."""

UNIT = Parsed(words=partial(continuations, units=UNITS | COMPOSED, first=("all", *UNITS, *COMPOSED)))
"""Type of a unit's name or text."""

MAC_TEXTS = partial(continuations, units=UNITS, first=(*NAMED, *BLOCK_NAMES, *UNITS))
"""Texts of multiply-accumulates that a shell completes."""

GOAL = Parsed(words=GOALS)
"""Type of the goal of a build."""

_TYPES = {
    "acc": Parsed(words=(*NAMED, "exact")),
    "rounding": Parsed(words=(*MODES, "exact", *PORTS, "faithful")),
    "sharing": Parsed(words=SHARINGS),
    "stochastic": Parsed(words=STOCHASTIC),
    "goal": GOAL,
    "order": Parsed(words=(EXACT, SEQUENTIAL)),
    "fn": Parsed(words=dict.fromkeys((*pwl.FUNCTIONS, *FUNCTIONS))),
    "measure": Parsed(words=pwl.MEASURES),
    "breakpoints": Parsed(words=pwl.BREAKPOINTS),
    "slopes": Parsed(words=pwl.SLOPES),
    "structure": Parsed(words=STRUCTURES),
}
"""Types of options of units whose values a shell completes; those of all formats are added."""

# Descriptions with other operands than a, b and c name them.
_FURTHER_OPERANDS = dict.fromkeys(name for cls in UNITS.values() for name in cls.OPERANDS if name not in "abc")


def _operand(name: str) -> Callable[[Function], Function]:
    """Return the option of an operand's format."""
    units = ", ".join(unit for unit, cls in UNITS.items() if name in cls.OPERANDS)
    return click.option(f"--{name}", metavar="FMT", help=f"format of {name} ({units})")


_UNIT_OPTIONS = (
    click.option("--acc", metavar="FMT", help="accumulator format, or exact (units with accumulators)"),
    click.option("--product", metavar="FMT.MODE", help="rounded product, such as e5m2.rz (mac); default: exact"),
    click.option("--round", "rounding", metavar="MODE", help=f"rn (default) {' '.join(MODES[1:])} exact srN port"),
    click.option("--lanes", metavar="N", type=int, help="parallel lanes (sru); default: 1"),
    click.option("--sharing", metavar="KIND", help="random sources: own or rotated (sru); default: own"),
    click.option("--increment", flag_value=True, default=None, hidden=True),
    click.option("--no-increment", "increment", flag_value=False, default=None, help="output the rounding carry (sru)"),
    click.option("--stochastic", metavar="KIND", help="lazy or eager stochastic rounding; default: lazy"),
    click.option("--goal", metavar="GOAL", help="area (default), speed, or loop: short loops of sums"),
    click.option("--dsp/--no-dsp", default=None, help="map products to DSP blocks"),
    click.option("--random", metavar="SOURCE", help="lfsrN, naiveN, plateauN[-rep]; default: input ports"),
    click.option("--random-seed", metavar="N", type=int, help="reset state of that source; default: 1"),
    click.option("--saturate", flag_value="sat", default=None, help="round overflows to the largest finite number"),
    click.option("--satfinite", "saturate", flag_value="satfinite", default=None, help="the same for infinities too"),
    click.option("--flags", flag_value="after", default=None, help="output exception flags"),
    click.option(
        "--flags-before",
        "flags",
        flag_value="before",
        default=None,
        help="flags, tininess before rounding",
    ),
    click.option("--pipeline", metavar="N", type=_STAGES, help="number of register stages; default: 0"),
    click.option("--iterations", metavar="N", type=_STEPS, help="steps in a cycle of an iterative unit"),
    click.option("--reset-less", is_flag=True, default=None, help="omit the reset of register stages"),
    click.option("--b", metavar="FMT", help="format of the second operand; default: like the first"),
    click.option("--c", metavar="FMT", help="third operand (fma) or start value (dots)"),
    *map(_operand, _FURTHER_OPERANDS),
    click.option("--to", metavar="FMT", help="result format"),
    click.option("--k", metavar="N", type=int, help="number of products (dots); default: 4, or a block"),
    click.option("--order", metavar="ORDER", help="exact (default), sequential, alignedF.trunc or .floor"),
    click.option("--sparsity", metavar="N:M", help="stored weights (sparsedot, sparsemac); default: 2:4"),
    click.option("--fn", metavar="NAME", help="function; default: exp, tanh for pwl"),
    click.option("--pieces", metavar="N", type=int, help="number of line segments (pwl); default: 8"),
    click.option("--error", metavar="N", type=float, help="maximum error, met with the fewest pieces (pwl)"),
    click.option("--measure", metavar="UNIT", help="unit of errors: ulp or absolute (pwl)"),
    click.option("--breakpoints", metavar="KIND", help="free, uniform or power (pwl); default: free"),
    click.option("--slopes", metavar="KIND", help="any, or pow2: sums of powers of two (pwl); default: any"),
    click.option("--terms", metavar="N", type=int, help="maximum number of powers of two in a slope (pwl)"),
    click.option("--structure", metavar="KIND", help="comparators, address or table (pwl)"),
    click.option("--carry", metavar="N", type=int, help="carry guard bits of exact accumulators; default: 31"),
    click.option("--interleave", metavar="N", type=int, help="number of interleaved sums (accumulators); default: 1"),
)

_CLOCK_OPTIONS = {
    "clock": click.option("--clock", metavar="MHZ", type=float, help="take as few register stages as meet a clock"),
    "target": click.option(
        "--target",
        type=Parsed(lambda text: target_of(text).family.name, DEVICES),
        metavar="NAME",
        help="device or family whose delays place register stages",
    ),
}
"""Options of a unit that some commands have with a meaning for their tools too."""


def unit_options(function: Function, **unit: Any) -> Function:
    """Add the arguments UNIT (with click attributes such as ``default``) and FMT, and the options of a unit.

    A command that declares ``--clock`` or ``--target`` itself keeps its own.
    """
    own = {parameter.name for parameter in getattr(function, "__click_params__", ())}
    options = [*_UNIT_OPTIONS, *(option for name, option in _CLOCK_OPTIONS.items() if name not in own)]
    default = "" if "default" in unit else f" (default: {DEFAULT_FORMAT})"
    text = f'UNIT is a name, with FMT{default} and options, or a text such as "mac e5m2*e5m2+e6m5.sr10".'
    function.__doc__ = f"{inspect.cleandoc(function.__doc__ or '')}\n\n{text}"
    arguments = (
        click.argument("unit", type=UNIT, **unit),
        click.argument("fmt", type=FORMAT, required=False),
    )
    for option in reversed((*arguments, *options)):
        function = option(function)
        added: Any = function.__click_params__[-1]  # type: ignore[attr-defined]  # click puts it there
        added.type = FORMAT if added.metavar == "FMT" else added.type
        added.type = _TYPES.get(added.name, added.type)
        added.section = "hardware" if added.name in BUILD or added.name in _CLOCK_OPTIONS else "unit"
    return function
