"""Reference of commands: it has every command, and every option that the help of the command has."""

import re

import click
import pytest

from halfulp.cli import LISTS, REPORTS, cli
from tests.docs.test_pages import page_module

reference = page_module("command_reference")
ROOT = click.Context(cli, info_name="halfulp")
CONTEXTS = {context.command_path: context for context in reference.contexts(cli, ROOT)}
SECTIONS = dict(
    part.partition("\n")[::2] for part in re.split(r"^##+ ", "\n".join(reference.page()), flags=re.MULTILINE)[1:]
)


def helped(context):
    """Return the help of an option by its names, as the help of a command prints them."""
    formatter = click.HelpFormatter(width=1000)
    context.command.format_options(context, formatter)
    rows = re.findall(r"^  (-.*?)  +(\S.*)$", formatter.getvalue(), re.MULTILINE)
    return {names: text for names, text in rows if "--help" not in names}


def rows_of(section):
    """Return the help of an option by its names, in a table of the page."""
    return {
        names: text.replace("\\", "") for names, text in re.findall(r"^\| `(-.*?)` \| (.*) \|$", section, re.MULTILINE)
    }


def test_reference_has_every_command():
    assert {f"halfulp {name}" for name in cli.list_commands(ROOT)} <= set(CONTEXTS)
    assert {f"halfulp report {name}" for name in REPORTS} <= set(CONTEXTS)
    assert set(CONTEXTS) <= set(SECTIONS)


@pytest.mark.parametrize("path", CONTEXTS)
def test_reference_has_the_options_of_a_command(path):
    section = SECTIONS[path]
    shared = {names: text for title in reference.SHARED.values() for names, text in rows_of(SECTIONS[title]).items()}
    given = helped(CONTEXTS[path])
    own, more = rows_of(section), dict(given)
    for names, text in own.items():
        assert more.pop(names) == text
    assert {names: shared[names] for names in more} == more
    # A command takes all shared options, or the page names those that differ.
    differing = {names.split()[0] for names in shared if given.get(names) != shared[names]} if more else set()
    assert differing == set(re.findall(r"`(--\S+)`", section.partition("It also takes")[2]))


@pytest.mark.parametrize("path", CONTEXTS)
def test_reference_has_usage_and_example(path):
    assert f"```text\n{path} [OPTIONS]" in SECTIONS[path]
    context = CONTEXTS[path]
    if context.command.epilog:
        assert re.search(rf"```sh\n{path} ?", SECTIONS[path])


def test_links_within_the_reference_lead_to_sections():
    anchors = {"#" + title.lower().replace(" ", "-") for title in SECTIONS}
    links = set(re.findall(r"\]\((#[^)]*)\)", "\n".join(reference.page())))
    assert links - anchors == set()
    assert len(links) > len(LISTS)
