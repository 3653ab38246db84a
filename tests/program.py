"""The program in a process of its own, and its answers."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from halfulp.cli import cli

PROGRAM = [sys.executable, "-m", "halfulp"]


def every_command(group: click.Group = cli, *words: str) -> Iterator[tuple[str, click.Command]]:
    """Yield every command, those of groups included, with its words."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from every_command(command, *words, name)
        else:
            yield " ".join((*words, name)), command


def environment(**changes: str) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)} | changes


Answer = tuple[int, str, str]
"""Exit code, standard output and standard error."""

Program = Callable[..., Answer]


def process(*words: str, env: dict[str, str] | None = None, **options: Any) -> Answer:
    """Run the program in a separate process."""
    done = subprocess.run(
        [*PROGRAM, *words], capture_output=True, text=True, timeout=240, env=env or environment(), **options
    )
    return done.returncode, done.stdout, done.stderr


def refused(answer: Answer, code: int) -> str:
    """Check that standard error is one sentence, and return it."""
    assert answer[:2] == (code, ""), answer
    lines = answer[2].strip().split("\n")
    assert len(lines) == 1, lines
    assert lines[0].startswith("halfulp: ")
    return lines[0].removeprefix("halfulp: ")


def leftovers(build: Path) -> list[str]:
    """Return unfinished folders and files, and the folders of runs."""
    hidden = [str(path) for path in build.rglob(".*")] if build.is_dir() else []
    runs = list(map(str, (build / "runs").iterdir())) if (build / "runs").is_dir() else []
    return hidden + runs
