"""Options, errors and output that the commands of all rooms share."""

import json
import os
import re
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
from click.shell_completion import CompletionItem

from .errors import CheckError, ToolError
from .jobs import JobPool
from .paths import build_root, kind_of, machine_errors, replacing_folder
from .progress import heartbeat

if TYPE_CHECKING:
    from .report import Report


SECTIONS = {"": "Options", "unit": "Options of units", "hardware": "Options of hardware"}
"""Titles of the options in the help, by the section of an option; those of the command itself come first."""

_JSON = "halfulp.json"
"""Key of the context for results as JSON."""


class Command(click.Command):
    """Command whose help has its own options first; an option with the attribute ``section`` is of another section."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options by section."""
        rows: dict[str, list[tuple[str, str]]] = {section: [] for section in SECTIONS}
        for parameter in self.get_params(ctx):
            if isinstance(parameter, click.Option) and (record := parameter.get_help_record(ctx)) is not None:
                rows[getattr(parameter, "section", "")].append(record)
        for section, title in SECTIONS.items():
            if rows[section]:
                with formatter.section(title):
                    formatter.write_dl(rows[section])


class Refused(click.ClickException):
    """Invalid request; exit code 2."""

    exit_code = 2


def run(command: click.Command, name: str = "halfulp") -> NoReturn:
    """Run a command with the arguments of the program, print its errors, and exit with its exit code."""
    try:
        # Not command(), which prints an empty line on Ctrl-C.
        with (
            _no_lost_interrupts(),
            heartbeat(" ".join(sys.argv[1:2])),
            command.make_context(name, sys.argv[1:]) as context,
        ):
            command.invoke(context)
        code = 0
    except click.exceptions.Exit as end:
        code = end.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        code = 2
    except click.ClickException as error:
        click.echo(f"halfulp: {_sentence(error)}", err=True)
        code = error.exit_code
    except (CheckError, ToolError) as error:
        click.echo(f"halfulp: {error}", err=True)
        code = error.exit_code
    except MemoryError as error:
        click.echo(f"halfulp: the request takes too much memory: {error}", err=True)
        code = ToolError.exit_code
    except (KeyboardInterrupt, click.Abort):
        # Amaranth warns of components that were not elaborated.
        warnings.simplefilter("ignore")
        click.echo("halfulp: stopped", err=True)
        code = 130
    except BrokenPipeError:
        # The reader of the output, such as head, has closed the pipe.
        sys.stderr.close()
        code = 0
    sys.exit(code)


_INSTEAD = {
    **dict.fromkeys(("--fmt", "--format", "--unit"), "unit and format are arguments, as in mac e5m2"),
    **dict.fromkeys(("--stages", "--latency"), "--pipeline gives the number of register stages"),
    "--limit": "--seconds is the time limit of a proof",
    "--results": "--table is the table to which the result is added",
    "--measure": "--synth synthesises the kernel",
}
"""Explanations of absent options, in place of the most similar names, for commands with the options they name."""


def _sentence(error: click.ClickException) -> str:
    """Return the message of an error; for an option or an argument it names the help of the command."""
    text = error.format_message()
    if isinstance(error, click.BadParameter) and error.param is not None:
        kind = error.param.type
        if isinstance(kind, (click.types.IntParamType, click.types.FloatParamType)):
            text = text.replace(f"is not a valid {kind.name}.", f"is no {_numbers(kind)}.")
    if not isinstance(error, (click.NoSuchOption, click.MissingParameter)) or error.ctx is None:
        return text
    if isinstance(error, click.NoSuchOption) and (instead := _INSTEAD.get(error.option_name)):
        known = {name for parameter in error.ctx.command.params for name in parameter.opts}
        if known.issuperset(re.findall(r"--[a-z]+", instead)):
            text = f"No such option '{error.option_name}'; {instead}"
    return f"{' '.join(text.split()).rstrip('.')}; see {error.ctx.command_path} --help"


def _numbers(kind: click.ParamType) -> str:
    """Return the numbers of a type in words, for messages about text that is no number."""
    word = "whole number" if isinstance(kind, click.types.IntParamType) else "number"
    low, high = (getattr(kind, name, None) for name in ("min", "max"))
    if high is not None:
        return f"{word} from {low} to {high}"
    return word if low is None else f"{word} of at least {low}"


@contextmanager
def _no_lost_interrupts() -> Iterator[None]:
    """Interrupt the program again after a Ctrl-C in a destructor, where Python ignores exceptions."""
    before = sys.unraisablehook

    def again(ignored: "sys.UnraisableHookArgs") -> None:
        if ignored.exc_type is KeyboardInterrupt:
            threading.Timer(0.01, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT)).start()
        else:
            before(ignored)

    sys.unraisablehook = again
    try:
        yield
    finally:
        sys.unraisablehook = before


@contextmanager
def requests() -> Iterator[None]:
    """Convert ValueError and TypeError to `Refused`."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise Refused(str(error)) from error


class Parsed(click.ParamType):
    """Parameter type that the function ``read`` parses; its ValueError or TypeError becomes `Refused`.

    A shell completes its values from ``words``, which is also a function of the begun text.
    """

    name = "text"

    def __init__(
        self, read: Callable[[str], Any] = str, words: Iterable[str] | Callable[[str], Iterable[str]] = ()
    ) -> None:
        self.read, self.words = read, words

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Complete a text."""
        words = self.words(incomplete) if callable(self.words) else self.words
        return [CompletionItem(word) for word in words if word.startswith(incomplete)]

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parse a text."""
        with requests():
            return self.read(value)


def _pool(ctx: click.Context, parameter: click.Parameter, address: str | None) -> JobPool:
    with requests():
        return JobPool(address)


scheduled = click.option(
    "--scheduler",
    "pool",
    metavar="ADDRESS",
    callback=_pool,
    help="Dask scheduler, tls://HOST:PORT; default: this machine",
)
"""Decorator that adds the option ``--scheduler``; the command takes the parameter ``pool``."""

_output = partial(click.option, "-o", "--output", metavar="FOLDER", type=click.Path(file_okay=False, path_type=Path))

written = _output(help="report folder; default: reports/ of the build folder")
"""Decorator that adds ``-o`` to a command that always writes a report."""

also_written = _output(help="folder for the tables as Markdown, CSV and LaTeX")
"""Decorator that adds ``-o`` to a command that prints a report and optionally writes it."""


def _as_json(ctx: click.Context, parameter: click.Parameter, chosen: bool) -> None:
    ctx.meta[_JSON] = chosen


json_option = click.option(
    "--json", is_flag=True, expose_value=False, callback=_as_json, help="print results as JSON, one object a line"
)
"""Decorator that adds ``--json`` to a command that prints by `show` and `publish`; the program adds it to all."""


def show(text: str | None, data: Any) -> None:
    """Print a result: its text, if it has one, with a coloured verdict; with ``--json`` its data on one line.

    None as data is a line for people only, which is no result.
    """
    if _is_json():
        if data is not None:
            click.echo(json.dumps(_plain(data), allow_nan=False))
        return
    if text is None:
        return
    coloured = re.sub(r"^(PASS|FAIL)$", _verdict, text, flags=re.MULTILINE)
    click.echo(coloured, color=False if os.environ.get("NO_COLOR") else None)


def _is_json() -> bool:
    context = click.get_current_context(silent=True)
    return context is not None and context.meta.get(_JSON, False)


def _verdict(match: re.Match[str]) -> str:
    return click.style(match[0], fg="green" if match[0] == "PASS" else "red", bold=True)


def _plain(value: Any) -> Any:
    """Return data in the types of JSON: objects with a text as this text, infinities and NaN as None."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, range)):
        return [_plain(item) for item in value]
    if is_dataclass(value) and type(value).__str__ is object.__str__:
        return {item.name: _plain(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, Enum):
        return value.name
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float):
        return value if value - value == 0 else None
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def new_folder(output: str) -> Path:
    """Return the absolute path of a folder; raise `Refused` unless it is new or empty."""
    folder = Path(output).resolve()
    with machine_errors(str(folder)):
        if folder.exists() and not folder.is_dir():
            raise Refused(f"{folder} is a file; -o needs a folder")
        if folder == Path.cwd() or (folder.is_dir() and any(folder.iterdir())):
            raise Refused(f"{folder} is not empty, or the current folder; -o needs a new or empty folder")
    return folder


def write_folder(folder: Path, files: Mapping[str, str]) -> list[Path]:
    """Write a folder of files atomically, and return their paths; ``files`` maps paths to texts."""
    with replacing_folder(folder) as scratch:
        for path, text in files.items():
            (scratch / path).parent.mkdir(parents=True, exist_ok=True)
            (scratch / path).write_text(text)
    return [folder / path for path in files]


def listed(files: Iterable[Path]) -> list[dict[str, Any]]:
    """Return the paths of written files with their kinds, for results as JSON."""
    return [{"path": path, "kind": kind_of(path)} for path in files]


def report_folder(output: Path | None) -> Path:
    """Create and return the folder of a report; called before the work, so that errors come first."""
    folder = output or build_root() / "reports"
    with machine_errors(str(folder)):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


def publish(
    report: "Report", folder: Path | None, lines: Iterable[str] = (), data: Mapping[str, Any] | None = None
) -> None:
    """Print the tables of a report and lines below them, or JSON with ``data``; write the files to the folder."""
    if not _is_json():
        click.echo(report.markdown(), nl=False)
        for line in lines:
            click.echo(line)
    files = report.write(folder) if folder is not None else []
    for path in files:
        click.echo(f"halfulp: wrote {path}", err=True)
    if _is_json():
        show(None, {"tables": report.rows(), **(data or {}), "files": listed(files)})
