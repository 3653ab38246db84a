"""Options of all commands: one meaning for each name."""

import shlex
from collections import defaultdict
from collections.abc import Iterator

import click
import pytest

from halfulp.cli import cli
from tests.program import Program, refused


def commands(group: click.Group = cli, *words: str) -> Iterator[tuple[str, click.Command]]:
    """Yield every command, those of groups included, with its words."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, *words, name)
        else:
            yield " ".join((*words, name)), command


COMMANDS = dict(commands())

SEVERAL_KINDS = {
    "--output": "a file or a folder, as the command writes",
    "--pieces": "report pwl compares several numbers of pieces",
    "--results": "vectors of a unit as lines or numpy archive, or a table of runs",
    "--stages": "choose tries a range, and report clocks all up to a number",
}
"""Options whose values differ between commands, with the reason."""


def test_option_has_one_kind_of_value_in_all_commands() -> None:
    kinds = defaultdict(set)
    for command in COMMANDS.values():
        for option in command.params:
            if isinstance(option, click.Option):
                kinds[max(option.opts, key=len)].add((option.is_flag, option.metavar))
    assert {name for name, found in kinds.items() if len(found) > 1} == {*SEVERAL_KINDS}


@pytest.mark.parametrize(
    ("words", "instead"),
    [
        ("formal mul --limit 9", "--seconds is the time limit of a proof"),
        ("train lenet5 --results runs.csv", "--table is the table to which"),
        ("tile --measure -o folder", "--synth synthesises the kernel"),
        ("report accuracy --limit 4", "No such option '--limit'"),
    ],
)
def test_renamed_option_is_refused_with_its_name(halfulp: Program, words: str, instead: str) -> None:
    sentence = refused(halfulp(*shlex.split(words)), 2)
    assert instead in sentence
    assert ("; see halfulp " in sentence, "--seconds" in sentence) == (True, "formal" in words)


def test_target_is_a_device_or_its_family_in_all_commands(halfulp: Program) -> None:
    for name, command in COMMANDS.items():
        for option in command.params:
            if "--target" in option.opts:
                for device in ("ecp5-85k", "ecp5"):
                    value = option.type.convert(device, option, None)
                    assert getattr(value, "name", value) == ("ecp5" if isinstance(value, str) else "ecp5-85k"), name
    emitted = [halfulp("emit", "mul e4m3", "--clock", "200", "--target", target)[1] for target in ("ecp5-85k", "ecp5")]
    assert emitted[0] == emitted[1]
    assert halfulp("vectors", "mul e2m1fn", "--clock", "200", "--target", "vu9p")[0] == 0
    assert "unknown target 'vu8p'" in refused(halfulp("sim", "mul e4m3", "--clock", "200", "--target", "vu8p"), 2)
