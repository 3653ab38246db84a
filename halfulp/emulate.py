"""The command `halfulp emulate`."""

import importlib.util
import runpy
import sys
import traceback
from pathlib import Path
from types import TracebackType
from typing import Any

import click

from halfulp.options import MAC_TEXTS
from halfulp.tools.commands import Parsed, Refused, requests
from halfulp.tools.errors import CheckError, ToolError

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--mac", metavar="MAC", type=Parsed(words=MAC_TEXTS), help="MAC or policy of all operations")
@click.option(
    "--policy", "file", metavar="FILE", type=_FILE, help="TOML file of policies by module, operation and phase"
)
@click.option(
    "--import",
    "imports",
    metavar="FILE",
    multiple=True,
    help="file or module that registers formats or operators",
)
@click.option("-m", "is_module", is_flag=True, help="PROGRAM is a module, as for python -m")
@click.option("--strict", is_flag=True, help="stop at an operation in torch's own arithmetic")
@click.option("--values", is_flag=True, help="count zeros, infinities and NaN among the results")
@click.option("--seed", default=0, type=click.IntRange(0, (1 << 63) - 1), metavar="N", help="random seed; default: 0")
@click.option("-o", "--output", metavar="FILE.json", type=_FILE, help="file for the report")
@click.argument("program")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def emulate(
    mac: str | None,
    file: Path | None,
    imports: tuple[str, ...],
    is_module: bool,
    strict: bool,
    values: bool,
    seed: int,
    output: Path | None,
    program: str,
    arguments: tuple[str, ...],
) -> None:
    """Run an unmodified torch program in the arithmetic of a policy.

    PROGRAM is a Python file, or a module with -m; ARGUMENTS are its own. The report lists every operation with its
    place and arithmetic, those that torch computed itself with the reason, and where numbers left torch as arrays of
    numpy or as numbers of Python. It is printed to standard error when the program ends, also if it fails or is
    interrupted. The exit code is that of the program, and 2 if the policy cannot be applied to an operation.
    """
    with requests():
        own = _file_of(program, is_module)
        if repeated := next((name for name in imports if own and own == _file_of_import(name)), None):
            raise Refused(
                f"--import {repeated} is the program, which would run twice; expected a file that only registers "
                "formats and operators"
            )
        from halfulp.golden.nn.cast import PolicyError
        from halfulp.golden.nn.policy_file import rules
        from halfulp.golden.program import emulate as context
        from halfulp.golden.program.site import outside
        from halfulp.tools.imports import module_of

        if (file is None) == (mac is None):
            raise ValueError(f"give the arithmetic by --mac MAC or by --policy FILE{_misplaced(program, arguments)}")
        for name in imports:
            module_of(name)
        policy: Any = mac if file is None else rules(file)
        run = context(policy, strict=strict, seed=seed, values=values)
    if output is not None and not output.resolve().parent.is_dir():
        raise Refused(f"there is no folder {output.parent} for the report {output.name}")
    sys.argv = [program, *arguments]
    if not is_module:
        sys.path.insert(0, str(Path(program).resolve().parent))
    failure: Exception | None = None
    try:
        with run:
            if is_module:
                runpy.run_module(program, run_name="__main__", alter_sys=True)
            else:
                runpy.run_path(program, run_name="__main__")
    except Exception as error:  # whatever the program raises, as Python itself reports it
        failure = error
    finally:
        report = run.report()
        click.echo(str(report), err=True)
        if output is not None:
            report.write(output)
            click.echo(f"halfulp: wrote {output}", err=True)
    if isinstance(failure, PolicyError):
        lines = (f"{Path(path).name}:{line}" for path, line in _lines(failure.__traceback__) if outside(path))
        raise Refused(f"{next(lines, program)}: {failure}")
    if isinstance(failure, (CheckError, ToolError)):
        raise failure
    if failure is not None:
        # Below the table, so that it is in view.
        traceback.print_exception(type(failure), failure, _of_program(failure.__traceback__))
        raise click.exceptions.Exit(1)


def _misplaced(program: str, arguments: tuple[str, ...]) -> str:
    """Return a hint if an option of the arithmetic is among the arguments of the program."""
    names = (word.partition("=")[0] for word in arguments)
    option = next((name for name in names if name in ("--mac", "--policy")), None)
    return f"; options after PROGRAM belong to it, so write {option} before {program}" if option else ""


def _file_of(program: str, is_module: bool) -> Path | None:
    """Return the file of a program; raise `Refused` if it is not there."""
    if not is_module:
        if not Path(program).is_file():
            raise Refused(f"there is no file {program}; with -m a module is run")
        return Path(program).resolve()
    if (folder := str(Path.cwd())) not in sys.path:
        # As for python -m; an installed program has its own folder there.
        sys.path.insert(0, folder)
    try:
        module = importlib.util.find_spec(program)
    except (ImportError, ValueError):
        module = None
    if module is None:
        raise Refused(f"there is no module {program}; without -m a file is run")
    return None if module.origin is None else Path(module.origin)


def _file_of_import(name: str) -> Path | None:
    """Return the file of an import, or None if it is not there, which `module_of` refuses."""
    try:
        return _file_of(name, is_module=not name.endswith(".py"))
    except Refused:
        return None


def _lines(trace: TracebackType | None) -> list[tuple[str, int]]:
    """Return the files and lines of a traceback, the innermost one first."""
    return [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(trace)][::-1]


def _of_program(trace: TracebackType | None) -> TracebackType | None:
    """Return the part of a traceback that begins in the program."""
    ours = (__file__, runpy.__file__, "<frozen runpy>")
    while trace is not None and trace.tb_frame.f_code.co_filename in ours:
        trace = trace.tb_next
    return trace
