"""Reference of all commands, made from the same objects as their help.

sphinx-click shows neither the sections of the options nor the options that commands share once, so that each of the
commands for a unit would repeat forty options.
"""

import re
from collections.abc import Iterator, Mapping

import click

from halfulp.cli import GROUPS, cli
from halfulp.tools.commands import SECTIONS

SHARED = {section: title for section, title in SECTIONS.items() if section}
"""Titles of the options that commands share, by their section."""

Row = tuple[str, str]
"""Names of an option with the values that it takes, and its help."""

INTRODUCTION = (
    "This page has all commands with their options, from the same code as `halfulp COMMAND --help`. UNIT is a [spec "
    'string](grammar.md), such as `"mac e5m2*e5m2+e6m5.sr10"`, or the name of a [unit](../units.md) with a format and '
    "[options of units](#options-of-units). Exit codes: 0 success, 1 a check failed, 2 the request is invalid, 3 a "
    "tool or the machine failed, 130 after Ctrl-C."
)


def contexts(group: click.Group, parent: click.Context) -> Iterator[click.Context]:
    """Yield a context for each command of a group, and after a group for its own commands."""
    for name in group.list_commands(parent):
        command = group.get_command(parent, name)
        assert command is not None
        context = click.Context(command, info_name=name, parent=parent)
        yield context
        if isinstance(command, click.Group):
            yield from contexts(command, context)


def page() -> Iterator[str]:
    """Yield the lines of the page."""
    root = click.Context(cli, info_name="halfulp")
    commands = {context.command_path.partition(" ")[2]: context for context in contexts(cli, root)}
    shared: dict[str, dict[str, Row]] = {section: {} for section in SHARED}
    for context in commands.values():
        for section, rows in shared.items():
            rows |= _options(context, section)
    yield from ("# Commands", "", INTRODUCTION, "")
    groups = {**GROUPS, "Look up": [name for name in cli.commands if name in commands]}
    for title, names in groups.items():
        links = (f"[`{name}`](#halfulp-{name}): {_first(commands[name].command)}" for name in names)
        yield from (f"- {title}", *(f"  - {link}" for link in links))
    for title, names in groups.items():
        yield from ("", f"## {title}")
        for name in names:
            members = [path for path in commands if path == name or path.startswith(f"{name} ")]
            for path in members:
                yield from _command(commands[path], shared)
    for section, rows in shared.items():
        yield from ("", f"## {SHARED[section]}", "", *_table(rows))


def _first(command: click.Command) -> str:
    return (command.help or "").partition("\n")[0]


def _command(context: click.Context, shared: Mapping[str, Mapping[str, Row]]) -> Iterator[str]:
    """Yield the section of a command: help, usage, example and options."""
    command = context.command
    yield from ("", f"### {context.command_path}", "", *_paragraphs(command.help or ""))
    usage = command.get_usage(context).removeprefix("Usage: ")
    yield from ("```text", " ".join(usage.split()), "```", "")
    if command.epilog:
        yield from ("Example:", "", "```sh", command.epilog.splitlines()[-1].strip(), "```", "")
    own = _options(context, "")
    yield from _table(own)
    links = [
        f"[{title.lower()}]({_anchor(title)}){_exception(shared[section], given, own)}"
        for section, title in SHARED.items()
        if (given := _options(context, section))
    ]
    if links:
        yield ""
        yield f"It also takes {' and '.join(links)}."


def _exception(all_rows: Mapping[str, Row], given: Mapping[str, Row], own: Mapping[str, Row]) -> str:
    """Return the words about shared options that a command lacks or has with a meaning of its own."""
    other = [f"`{name}`" for name in all_rows if name not in given and name in own]
    lacking = [f"`{name}`" for name in all_rows if name not in given and name not in own]
    texts = [f"{' and '.join(other)} in the table above"] if other else []
    texts += [f"without {' and '.join(lacking)}"] if lacking else []
    return f" ({'; '.join(texts)})" if texts else ""


def _anchor(title: str) -> str:
    return f"#{title.lower().replace(' ', '-')}"


def _options(context: click.Context, section: str) -> dict[str, Row]:
    """Return the visible options of a section by their first name."""
    return {
        option.opts[-1]: record
        for option in context.command.params
        if isinstance(option, click.Option)
        and getattr(option, "section", "") == section
        and (record := option.get_help_record(context)) is not None
    }


def _table(rows: Mapping[str, Row]) -> Iterator[str]:
    if rows:
        yield from ("| option | meaning |", "|---|---|")
        yield from (f"| `{names}` | {_escaped(text)} |" for names, text in rows.values())


def _paragraphs(text: str) -> Iterator[str]:
    """Yield paragraphs of a help text as Markdown; those that click does not wrap stay as they are."""
    for paragraph in text.strip().split("\n\n"):
        if paragraph.startswith("\b"):
            yield from ("```text", *paragraph.splitlines()[1:], "```", "")
        else:
            yield from (_escaped(" ".join(paragraph.split())), "")


def _escaped(text: str) -> str:
    """Return a text whose characters have no meaning in Markdown, beside code in backquotes."""
    return re.sub(r"`[^`]*`|[*_<$\[\]|\\]", lambda match: match[0] if len(match[0]) > 1 else f"\\{match[0]}", text)
