"""Options of all commands: one meaning for each name, results as JSON, and completion in shells."""

import ast
import json
import re
import shlex
from collections import defaultdict
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete

from halfulp.cli import COMPLETE, REPORTS, WITHOUT_JSON, cli
from halfulp.hdl.formats import parse
from halfulp.units.catalogue import CATALOGUE, CatalogueRow
from tests.program import Program, every_command, refused
from tests.settings import ROOT

COMMANDS = dict(every_command())
"""Every command by its words."""

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
    words = ("vectors", "mul e2m1fn", "--vectors", 2, "--clock", 50, "--target")
    assert halfulp(*words, "ecp5-85k") == halfulp(*words, "ecp5")
    assert "unknown target 'vu8p'" in refused(halfulp(*words, "vu8p"), 2)


# Results as JSON ----------------------------------------------------------------------------------------------------

STUDY = """
title = "Small"
macs = ["e2m1fn*e2m1fn+e3m2fn.rn"]
targets = ["ecp5-85k"]
[dots]
distributions = ["normal"]
lengths = [4]
count = 8
"""
"""Small study."""

CHEAP = {
    "sim": "'mul e2m1fn' --vectors 20",
    "save": "'mul e2m1fn' --vector 1,2",
    "vectors": "'mul e2m1fn' -o mul.txt",
    "check": "'mul e2m1fn' --results given.txt",
    "formal": "'mul e2m1fn' --seconds 5",
    "emit": "'mul e2m1fn'",
    "synth": "'mul e2m1fn' --target ecp5-85k",
    "signoff": "mul --compare -o signoff",
    "doctor": "",
    "list": "units",
}
"""Arguments of commands that take seconds."""

DEAR = {
    "tile": "-o tile",
    "stats sru": "--rounds 64 -o stats",
    "faults": "'mul e2m1fn' --stuck-at 4 -o faults",
    "sweep": "'mul e2m1fn'",
    "uvm": "'mul e2m1fn' --vectors 20",
    "coverage": "'mul e2m1fn' -o coverage",
    "mutate": "'mul e2m1fn' -n 4",
    "choose": "'mul e2m1fn' --clock 100 --stages 0..1 -o choose",
    "train": "lenet5 --mac fp32 --limit 8 --epochs 1 -o runs --table runs.csv",
    "match": "lenet5 --model published -o match",
    "report study": "",
    "report clocks": "'mul e5m2' --stages 2 --count 0 -o clocks",
    "report composed": "-o composed",
    "report pwl": "exp --pieces 2 --target ecp5 -o pwl",
    "report peers": "given.v --top given -o peers",
    "report tiles": "--largest 1 -o tiles",
    "report steps": "-o steps",
}
"""Arguments of commands that take longer."""

OTHERS = {
    "bench": "minutes",
    "cost": "an hour; test_cost_prints_rows_as_json",
    **{f"report {name}": "minutes to hours" for name in REPORTS if f"report {name}" not in DEAR},
}
"""Commands that take too long for a test, with the reason; their output has the same functions."""


@pytest.mark.parametrize("words", [*CHEAP, *(pytest.param(words, marks=pytest.mark.slow) for words in DEAR)])
def test_standard_output_with_json_is_json(
    halfulp: Program, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HALFULP_REGRESSIONS", str(tmp_path))
    Path("given.txt").write_text("1 2 0\n")
    Path("given.v").write_text("module given(input a, output b); assign b = ~a; endmodule\n")
    Path("study.toml").write_text(STUDY)
    given = {**CHEAP, **DEAR}[words]
    line = f"{words} {given}".replace("report study", "report study.toml -o study")
    code, out, err = halfulp(*shlex.split(line), "--json")
    assert code in (0, 1), err
    results = [json.loads(text) for text in out.splitlines()]
    assert results
    assert all(isinstance(result, dict) and result for result in results)
    for file in (file for result in results for file in result.get("files", ())):
        assert (Path(file["path"]).is_file(), bool(file["kind"])) == (True, True), file


def test_every_command_takes_json() -> None:
    takes = {name for name, command in COMMANDS.items() if any("--json" in option.opts for option in command.params)}
    assert takes == {*COMMANDS} - {*WITHOUT_JSON}
    assert {*COMMANDS} | {"report study"} == {*CHEAP, *DEAR, *OTHERS, *WITHOUT_JSON}


def test_commands_print_results_by_the_functions_that_know_json() -> None:
    found = []
    for path in [
        *ROOT.glob("*/cli.py"),
        *ROOT.glob("*/*/cli.py"),
        *ROOT.glob("lab/bench/*.py"),
        ROOT / "halfulp" / "doctor.py",
    ]:
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call) and ast.unparse(call.func) in ("click.echo", "click.secho", "print"):
                if not {"err", "file"} & {word.arg for word in call.keywords}:
                    found.append(f"{path}:{call.lineno}")
    assert found == []


def test_files_of_emit_have_kinds(halfulp: Program, tmp_path: Path) -> None:
    def kinds(*words: str) -> dict[str, str]:
        code, out, err = halfulp("emit", "mul e2m1fn", *words, "--json")
        assert code == 0, err
        result = json.loads(out)
        assert result["units"] == ["mul e2m1fn*e2m1fn.rn"]
        return {Path(file["path"]).name: file["kind"] for file in result["files"]}

    assert kinds("-o", str(tmp_path / "mul.v")) == {"mul.v": "verilog"}
    flow = kinds("--flow", "vivado", "--target", "vu9p", "-o", str(tmp_path / "flow"))
    assert {*flow.values()} == {"verilog", "tcl", "constraints"}
    package = kinds("--package", "-o", str(tmp_path / "package"))
    manifest = json.loads((tmp_path / "package" / "manifest.json").read_text())
    assert {Path(file["path"]).name: file["kind"] for file in manifest["files"]}.items() <= package.items()


# Completion in a shell ----------------------------------------------------------------------------------------------


def completed(*words: str) -> list[str]:
    """Return the values that a shell completes for the last word."""
    completion = ShellComplete(cli, {}, "halfulp", COMPLETE)
    return [item.value for item in completion.get_completions(list(words[:-1]), words[-1])]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("sim mac --round f", {"faithful"}),
        ("sim mac --acc ex", {"exact"}),
        ("sim mul --to e4m3fn", {"e4m3fn", "e4m3fnuz"}),
        ("sim fma --c tf", {"tf32"}),
        ("sim pwl --fn si", {"sigmoid", "silu", "sin"}),
        ("sim mac --goal l", {"loop"}),
        ("sim pwl --structure a", {"address"}),
        ("emit mul e5m2 --target ecp5", {"ecp5", "ecp5-85k"}),
        ("synth mul --target a", {"asic", "artix100t", "aws_f1"}),
        ("tile --target ecp5", {"ecp5", "ecp5-85k"}),
        ("tile --board u5", {"u55c"}),
        ("train nano", {"nanogpt"}),
        ("match g", {"gru"}),
        ("match gru --mac 'bf16*bf16+fp1'", {"bf16*bf16+fp16"}),
        ("sim 'mac e5m2*e4m3fnu'", {"mac e5m2*e4m3fnuz"}),
        ("sim 'mul e5'", {"mul e5m2", "mul e5m2fnuz"}),
        ("sim 'mac e5m2*e5m2+ex'", {"mac e5m2*e5m2+exact"}),
        ("sim 'mul e5m2*e5m2=fp16.rh'", {f"mul e5m2*e5m2=fp16.{mode}" for mode in ("rh", "rhu", "rhd")}),
        ("sim 'mac e5m2*e5m2+exact c'", {"mac e5m2*e5m2+exact carry="}),
        ("sim 'e5m2*tf'", {"e5m2*tf32"}),
        ("report pwl sof", {"softplus"}),
    ],
)
def test_values_of_options_and_texts_are_completed(words: str, expected: set[str]) -> None:
    assert {*completed(*shlex.split(words))} == expected


def test_networks_and_boards_that_are_completed_are_all() -> None:
    from halfulp.boards.catalogue import BOARDS
    from halfulp.fpga.match.workload import EXAMPLES
    from halfulp.lab.train.networks import NETWORKS

    assert {*completed("match", "")} == {*EXAMPLES}
    assert {*completed("train", "")} == {*NETWORKS}
    assert {*completed("match", "gru", "--board", "")} == {*BOARDS}


@pytest.mark.parametrize("row", CATALOGUE.values(), ids=lambda row: row.name)
def test_every_word_of_a_text_is_completed(row: CatalogueRow) -> None:
    """Each format and rounding of a text is among the completions of its beginning."""
    text = row.spec.filled(parse("e5m2")).text if row.spec.takes(parse("e5m2"), None) else ""
    for word in re.finditer(r"(?<=[*+/=>, ])e5m2|(?<=\.)r\w+", text):
        assert text[: word.end()] in completed("sim", text[: word.start()])
