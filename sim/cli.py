"""The command line.

Exit codes: 0 all is well, 1 the thing checked is wrong, 2 the request is wrong, 3 a tool or the machine failed; 130
after Ctrl-C. What is heavy is imported where it is used, so that help and refusals come at once.
"""

import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click

from .errors import CheckError, ToolError
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
    click.option(
        "--stochastic", metavar="HOW", help="stochastic rounding of sums, lazy or eager; the smaller by default"
    ),
    click.option("--dsp/--no-dsp", default=None, help="leave products to DSP blocks, where they are long enough"),
    click.option("--random", metavar="SOURCE", help="source of random words: lfsrN or plateauN; ports by default"),
    click.option("--random-seed", "random_seed", metavar="N", type=int, help="state of that source after reset"),
    click.option("--saturate", is_flag=True, help="overflow gives the largest finite number"),
    click.option("--pipeline", default=0, metavar="N", type=click.IntRange(0), help="register cuts; 0 by default"),
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


class Refused(click.ClickException):
    """A request that cannot be met: one sentence, exit code 2."""

    exit_code = 2

    def show(self, file: Any = None) -> None:
        """Print the sentence."""
        click.echo(f"halfulp: {self.message}", err=True)


@contextmanager
def requests() -> Iterator[None]:
    """Turn what a unit or a format says of its parameters into a refusal."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise Refused(str(error)) from error


class Commands(click.Group):
    """The commands of this room, and those that other rooms add as entry points ``halfulp.commands``."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all commands."""
        return sorted({*super().list_commands(ctx), *entry_points(group="halfulp.commands").names})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name, whose room is loaded for it."""
        if (own := super().get_command(ctx, cmd_name)) is not None:
            return own
        added = entry_points(group="halfulp.commands", name=cmd_name)
        command: click.Command | None = next((entry.load() for entry in added), None)
        return command


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="halfulp")
def cli() -> None:
    """Arithmetic units in RTL, bit-exact against a golden model."""


@cli.command()
@click.argument("unit")
@click.argument("fmt", default="e5m2")
@unit_options
@click.option("--seed", default=0, metavar="N", type=click.IntRange(0), help="of everything random; 0 by default")
@click.option("--vectors", metavar="N", type=click.IntRange(1), help="most independent vectors")
@click.option("--vector", metavar="CODES", help="run one vector, such as 0x3c,0x40,0x001")
@click.option("--wave", is_flag=True, help="leave a waveform with decoded numbers")
def sim(unit: str, fmt: str, seed: int, vectors: int | None, vector: str | None, wave: bool, **options: Any) -> None:
    """Check UNIT in FMT (e5m2 by default) against the golden model; UNIT `all` checks the catalogue.

    The results are also left as JUnit XML, in results/ of the build folder (build, or HALFULP_BUILD).
    """
    from .bench import run
    from .ports import Ports
    from .progress import Bar
    from .report import summary
    from .request import read_vector

    with requests():
        if unit == "all" and vector is not None:
            raise ValueError("--vector goes with one unit, not with all of them")
        units = [request.build() for request in wanted(unit, fmt, options)]
        chosen = None if vector is None else read_vector(vector, Ports.of(units[0].inputs))
    passed = True
    for built in units:
        with Bar(built.name) as bar:
            result = run(built, seed=seed, limit=vectors, vector=chosen, wave=wave, progress=bar)
        if chosen is not None:
            result.notes += _told(built, chosen)
        click.echo(summary(result))
        passed = passed and result.passed
    sys.exit(0 if passed else 1)


@cli.command()
@click.argument("unit")
@click.argument("fmt", default="e5m2")
@unit_options
@click.option(
    "--vector", required=True, metavar="CODES", help="such as 0x3c,0x40,0x001; steps from reset by semicolons"
)
@click.option("--why", default="found by hand", metavar="TEXT", help="one line; found by hand unless told otherwise")
def keep(unit: str, fmt: str, vector: str, why: str, **options: Any) -> None:
    """Keep a vector of UNIT in FMT, to be run before all others from now on.

    With codes for load and clear, too, it is a step from reset of a unit with an accumulator, and semicolons part
    several. Results are those of the golden model and of exact arithmetic, which have to agree. Files are in
    tests/regressions, or in the folder HALFULP_REGRESSIONS.
    """
    from . import regressions
    from .ports import Ports

    with requests():
        built = replace(Request(unit, fmt, **options), random=None, random_seed=None).build()
        steps = regressions.parse_steps(vector, Ports.of(built.inputs))
        kept = regressions.judged(built, steps, why)
        path, new = regressions.keep(built, kept)
    click.echo(kept.text(built))
    click.echo(f"halfulp: {path} {'has it now' if new else 'had it'}", err=True)


@cli.command()
@click.argument("unit")
@click.argument("fmt", default="e5m2")
@unit_options
@click.option("--seed", default=0, metavar="N", type=click.IntRange(0), help="of random words; 0 by default")
@click.option("--vectors", metavar="N", type=click.IntRange(1), help="sample N vectors instead of taking all")
@click.option("--restart", is_flag=True, help="start over instead of going on where an earlier run stopped")
def sweep(unit: str, fmt: str, seed: int, vectors: int | None, restart: bool, **options: Any) -> None:
    """Compare UNIT in FMT with the golden model on every input there is."""
    from .progress import Bar
    from .report import summary
    from .sweep import Interrupted, job
    from .sweep import sweep as run

    with requests():
        built = Request(unit, fmt, **options).build()
        job(built, seed=seed, limit=vectors)
    try:
        with Bar(built.name) as bar:
            result = run(built, seed=seed, limit=vectors, restart=restart, progress=bar)
    except Interrupted as stop:
        click.echo(f"halfulp: stopped; {stop}", err=True)
        sys.exit(130)
    click.echo(summary(result))
    sys.exit(0 if result.passed else 1)


@cli.command(name="list")
@click.argument("what")
def list_(what: str) -> None:
    """Say which formats, units or targets there are."""
    from . import listing

    own = {"formats": listing.formats, "units": listing.units}
    added = entry_points(group="halfulp.lists")
    if what not in own and what not in added.names:
        raise Refused(f"there is no list of {what}; there are {', '.join(sorted({*own, *added.names}))}")
    lines = own[what] if what in own else added[what].load()
    click.echo("\n".join(lines()))


@cli.group()
def stats() -> None:
    """Statistics of rounding, as a table and plots."""


@stats.command()
@click.option(
    "--random",
    "texts",
    metavar="SOURCE",
    multiple=True,
    help="lfsrN, naiveN (the same), plateauN, or with fewer bits lfsrN.srM; several times for several sources",
)
@click.option("--rounds", metavar="N", type=click.IntRange(1), help="of each fraction; a period or 2^17 by default")
@click.option(
    "-o",
    "--output",
    metavar="FOLDER",
    type=click.Path(file_okay=False, path_type=Path),
    help="where the files go; reports/ of the build folder by default",
)
def sru(texts: tuple[str, ...], rounds: int | None, output: Path | None) -> None:
    """How often stochastic rounding goes up, for each random source: measured, by the source's law, and ideally.

    The tables are printed as Markdown and left, with a plot, as Markdown, CSV, LaTeX, PNG and SVG.
    """
    from .paths import build_root, machine_errors
    from .progress import Bar
    from .stats import SOURCES, Rounder, fractions_table, measure, sources_table

    with requests():
        rounders = [Rounder.parse(text) for text in dict.fromkeys(texts or SOURCES)]
    folder = output or build_root() / "reports"
    # What is no place for files is told before the work.
    with machine_errors(str(folder)):
        folder.mkdir(parents=True, exist_ok=True)
    with Bar("stats sru") as bar:
        measurements = [measure(rounder, rounds, bar) for rounder in rounders]
    # matplotlib takes long to load.
    from .plots import chances, write

    files = []
    for stem, table in (
        ("stats-sru-fractions", fractions_table(measurements)),
        ("stats-sru", sources_table(measurements)),
    ):
        click.echo(table.markdown())
        files += table.write(folder, stem)
    files += write(chances([measurement.count for measurement in measurements]), folder, "stats-sru")
    for file in files:
        click.echo(f"halfulp: wrote {file}", err=True)


@cli.command()
def bench() -> None:
    """Measure how fast golden model, compiled loop and cocotb are, against each other in this run, and matrix products
    against those of torch in FP32."""
    from .speed import products, table

    click.echo("\n".join([*table(), "", *products()]))


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


def _told(unit: Any, codes: dict[str, int]) -> list[str]:
    """The one vector that was asked for, with the result that is expected."""
    import numpy as np

    from .exact_text import line, shown
    from .expect import expected
    from .ports import Ports

    want = expected(unit, {name: np.array([code], dtype=np.uint64) for name, code in codes.items()})
    lines = shown(unit, Ports.of(unit.inputs), codes)
    return lines + [line(port, int(want[port.name][0]), "expected") for port in Ports.of(unit.outputs)]


def _end(signum: int, frame: Any) -> NoReturn:
    """Treat a request to end like Ctrl-C, so that nothing is left behind."""
    raise KeyboardInterrupt


def main() -> None:
    """Run the program."""
    signal.signal(signal.SIGTERM, _end)
    try:
        # Not cli(): it would print an empty line of its own on Ctrl-C.
        with cli.make_context("halfulp", sys.argv[1:]) as context:
            cli.invoke(context)
        code = 0
    except click.exceptions.Exit as end:
        code = end.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        code = 2
    except click.UsageError as error:
        click.echo(f"halfulp: {error.format_message()}", err=True)
        code = 2
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except CheckError as error:
        click.echo(f"halfulp: {error}", err=True)
        code = 1
    except ToolError as error:
        click.echo(f"halfulp: {error}", err=True)
        code = 3
    except (KeyboardInterrupt, click.Abort):
        # Amaranth would warn of a unit that was just being made.
        warnings.simplefilter("ignore")
        click.echo("halfulp: stopped", err=True)
        code = 130
    except BrokenPipeError:
        # The reader of our output, such as head, has seen enough.
        sys.stderr.close()
        code = 0
    sys.exit(code)


if __name__ == "__main__":
    main()
