"""Command line: errors, exit codes, and files left after an interrupt."""

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from halfulp.cli import COMMANDS, EXAMPLES, GROUPS, cli
from halfulp.hdl.formats import parse
from halfulp.hdl.formats.rounding import MODES
from halfulp.hdl.specs import COMPOSED, AddSpec, MulSpec
from halfulp.implementation import implementation, implementations
from halfulp.tools.commands import run, show
from halfulp.tools.errors import ToolError
from halfulp.tools.jobs import JobPool
from halfulp.units.catalogue import CATALOGUE
from tests.program import Program, environment, every_command, process, refused
from tests.settings import ROOT

UNITS = sum(row.spec.takes(parse("e2m1fn"), None) for row in CATALOGUE.values())
"""Number of units that accept e2m1fn."""


# Requests ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "keyword"),
    [
        ("sim mac e1m2", "1 exponent bit"),
        ("sim mac e12m2", "12 exponent bits"),
        (
            "sim mac banana",
            "banana",
        ),
        ("sim mac e5m2 --round sr0", "sr0 has 0 random bits"),
        ("sim mac e5m2 --round up", "up"),
        ("sim mul e5m2 --round exact", "result of mul e5m2*e5m2.exact"),
        ("sim mul e5m2 --acc e6m5", "no --acc"),
        ("sim mac e5m2 --acc e1m1", "e1m1 has 1 exponent bit"),
        ("sim mac e5m2 --product e5m2.foo", "foo"),
        ("sim mac e5m2 --pipeline 65", "65 is not in the range 0<=x<=64"),
        ("sim mac e5m2 --pipeline two", "'two' is no whole number from 0 to 64."),
        ("sim mac e5m2 --clock fast", "'fast' is no number."),
        ("train lenet5 --epochs 1.5", "'1.5' is no whole number of at least 1."),
        ("synth mul e5m2 --target ecp5-85k --explore 3..1", "--explore"),
        ("synth mul e5m2 --explore 0..2", "vu9p"),
        ("synth all e5m2 --target ecp5-85k --explore 0..2", "one unit"),
        ("choose mul e5m2", "--clock"),
        ("choose mul e5m2 --clock 100 --target vu9p", "vu9p"),
        ("choose mul e5m2 --clock 300", "257"),
        ("choose mul e5m2 --clock 100 --stages 0..65", "--stages"),
        ("choose mul e5m2 --clock 100 --stages 0..2 --pipeline 1", "fixes its stages"),
        ("choose mul e5m2 --clock 100 --pipeline 0 --reset-less", "reset_less"),
        ("choose mul e5m2 --clock 100 --goal speed", "goal speed has no effect"),
        ("choose all --clock 100", "one unit"),
        ("sim mac e5m2 --pipeline -1", "--pipeline"),
        ("sim mac e5m2 --vectors 0", "--vectors"),
        ("sim mac e5m2 --vector 1,2", "vector"),
        ("sim mac e5m2 --vector 1,2,0x1000", "code 0x1000"),
        ("sim mac e5m2 --vector zz", "'zz' is not a number"),
        ("sim mac e5m2 --k 8", "--random-seed"),
        ("sim mac ''", "format ''"),
        ("sim all ''", "format ''"),
        ("sim ''", "unit is empty"),
        ("sim mul int0", "int0 has 0 bits"),
        ("sim mul fxp65.0", "fxp65.0 has 65 bits"),
        ("formal all --acc e3m2", "one unit"),
        ("formal mac e2m1 --k 3", "no --k"),
        ("cost 'mul e5m2*e5m2'", "halfulp synth"),
        ("report 'mul e5m2*e5m2'", "halfulp synth"),
        ("report frobnicate", "adders"),
        ("sim all e5m2 --vector 1,2", "unit"),
        ("sim frobnicate", "frobnicate"),
        ("sim mul posit8e5", "es 5"),
        ("sim mul fxp4.-4", "0 bits"),
        ("sim mul posit8 --k 3", "no --k"),
        ("sim dot posit8 --k 0", "k 0"),
        ("sim dot posit8 --k many", "Invalid value for '--k'"),
        ("sim dot posit8 --order best", "best"),
        (
            "sim dot posit8 --vector 1,2",
            "vector",
        ),
        ("sim dot int8 --k 1 --vector 1,256", "code 256"),
        ("sim mac e5m2 --carry 3", "no carry guard"),
        ("sim accumulate int8 --to int8", "accumulator in int32"),
        ("sim mac posit8 --acc exact --carry 65", "carry"),
        ("sim quire posit8 --carry 0", "carry"),
        ("sim quire posit8 --acc posit16", "no --acc"),
        ("sim quire posit8 --round exact", "exact"),
        ("sim sru int16 --to int8 --no-increment", "saturation"),
        ("sim mul e5m2 --no-increment", "no --increment"),
        ("sim", "Missing argument 'UNIT'; see halfulp sim --help"),
        ("sim mac e5m2 --colour red", "No such option"),
        ("sweep fma fp32", "inputs"),
        ("sweep dot posit8", "inputs"),
        ("emit mac e1m2", "e1m2 has 1 exponent bit"),
        ("emit dot posit8 --k 257", "k 257"),
        ("emit mul e5m2 -o /nowhere/mul.v", "folder"),
        ("emit mul e5m2 -o /", "/ is a folder"),
        ("emit mul e5m2 mac", "--package"),
        ("emit mul e5m2 --ports clk", "clk=aclk"),
        ("emit 'mul e5m2*e5m2' 'mac e5m2*e5m2+e6m5'", "name one unit, or emit several with --package"),
        ("emit mul e5m2 --package", "-o FOLDER"),
        ("emit mul e5m2 --package -o /", "not empty"),
        ("emit mul e5m2 --package --enable low -o /nowhere/mul", "port en"),
        ("emit e5m2*e5m2+e6m5 e5m2*e5m2+e5m2 --package -o /nowhere/macs", "--name"),
        (
            "synth mac e5m2 --target vu13p",
            "vu13p",
        ),
        ("synth mac e5m2 --route", "nextpnr"),
        ("synth mac e1m2", "e1m2 has 1 exponent bit"),
        ("synth frobnicate", "frobnicate"),
        ("list colours", "colours"),
        ("frobnicate", "unknown command 'frobnicate'; halfulp --help lists them"),
        ("emt", "unknown command 'emt'; did you mean emit?"),
        ("mac e5m2", "mac is a unit, not a command; halfulp emit mac"),
        ("emit mul --fmt e5m2", "unit and format are arguments, as in mac e5m2; see halfulp emit --help"),
        ("emit mul e5m2 --stages 2", "--pipeline gives the number of register stages"),
        ("emit mul e5m2 fp16", "before 'fp16'; several need --package, and further formats an option such as --b"),
        ("emit mac mxfp4", "blockdot and blockmac"),
        ("emit mul e5m2 -o mul.vhd", "expected a name such as mul.v"),
        ("sim mull", "unknown unit 'mull'; did you mean mul?"),
        ("emit mac e5m2*e5m2+e6m5.sr10", "as one text: 'mac e5m2*e5m2+e6m5.sr10'"),
        ("emit sqrt fp16.rz", "as one text: 'sqrt fp16.rz'"),
        ("emit 'mul fp16*fp16' --round port", "omit --round, and write 'mul fp16*fp16.port'"),
        ("emit 'mul fp16*fp16' --to fp32 --saturate", "omit --saturate, and write 'mul fp16*fp16=fp32.rn.sat'"),
        ("synth mul fp16 --target ecp5-85k --pipeline 2 --clock 100", "add --route, which places and routes"),
        ("synth mul fp16 --target vu9p --pipeline 2 --clock 100", "add --flow vivado, which places and routes"),
        ("emit mul fp16 --pipeline 2 --clock 100", "add --flow vivado, which places and routes"),
        ("emit mul e5m2 --reset-less", "reset_less (--reset-less) has no effect on mul_e5m2"),
        ("synth mul e5m2 --target xcp", "xcup, xc7, ecp5 for the first device of a family"),
    ],
)
def test_cli_rejects_bad_requests(halfulp: Program, words: str, keyword: str) -> None:
    assert keyword in refused(halfulp(*shlex.split(words)), 2)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "words",
    [
        "report sru",
        "report adders",
        "report tiles",
        "report clocks",
        "report delays",
        "synth mul",
        "formal mul",
        "mutate mul",
    ],
)
def test_report_folder_is_created_before_the_work(words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def begin(pool: JobPool) -> None:
        raise AssertionError("the work has begun")

    monkeypatch.setattr(JobPool, "__enter__", begin)
    (tmp_path / "file").touch()
    result = CliRunner().invoke(cli, [*words.split(), "-o", str(tmp_path / "file" / "folder")])
    assert isinstance(result.exception, ToolError), result.exception


def test_cli_tells_too_little_memory(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    @click.command()
    def large() -> None:
        bytearray(1 << 62)

    monkeypatch.setattr(sys, "argv", ["large"])
    with pytest.raises(SystemExit) as end:
        run(large)
    assert end.value.code == 3
    assert "memory" in capsys.readouterr().err


def test_cli_does_not_import_torch_for_help_and_errors() -> None:
    code = "import sys, halfulp.sim.cli as c; c.implementation('mac').component(); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], env=environment(), check=True)
    helps = """
from click.testing import CliRunner
from halfulp.cli import COMMANDS, EXAMPLES, GROUPS, REPORTS, cli
import sys
for words in (["--help"], *([name, "--help"] for name in COMMANDS)):
    assert CliRunner().invoke(cli, words).exit_code == 0, words
    assert not {"torch", "numpy", "mpmath"} & set(sys.modules), words
"""
    subprocess.run([sys.executable, "-c", helps], env=environment(), check=True)


def test_first_results_import_no_algebra() -> None:
    code = """
import sys, torch
from halfulp import golden
golden.mul(torch.arange(4), torch.arange(4), a="e5m2", b="e5m2", o="e5m2")
golden.gemm(torch.ones(2, 3), torch.ones(3, 2), "e5m2*e5m2+e6m5.rn")
assert "sympy" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], env=environment(), check=True)


def test_cli_help_lists_commands(halfulp: Program) -> None:
    code, out, err = halfulp("--help")
    assert code == 0, err
    for command in (*COMMANDS, "list"):
        assert f"  {command} " in out
    assert halfulp()[0] == 2


def test_round_option_names_every_mode() -> None:
    commands = [cli.get_command(click.Context(cli), name) for name in COMMANDS]
    options = [option for command in commands if command for option in command.params if "--round" in option.opts]
    assert len(options) > 5
    for option in options:
        assert isinstance(option, click.Option)
        assert {*MODES, "exact", "srN"} <= {*re.findall(r"\w+", option.help or "")}


def test_help_of_every_command_fits_its_lines(halfulp: Program) -> None:
    reports = [
        ("report", name) for name in ("accuracy", "adders", "clocks", "delays", "pwl", "sru", "tiles", "study.toml")
    ]
    for words in ((), *((command,) for command in COMMANDS), *reports, ("stats", "sru"), ("list",)):
        text = halfulp(*words, "--help")[1]
        usage, _, listed = text.partition("\nOptions:\n")
        usual = r"  -|  [a-z-]+  +[A-Z]|$|[A-Z]|  Example:|    halfulp "
        assert [line for line in listed.splitlines() if not re.match(usual, line)] == [], words
        assert [line for line in listed.splitlines() if line.endswith("...") or len(line) > 79] == [], words
        assert "by default," not in text
        if re.match(r"Usage: halfulp [a-z]+ \[OPTIONS\] \[?UNIT\]? \[FMT", usage):
            assert "mac e5m2*e5m2+e6m5.sr10" in usage.replace("\n  ", " ")
    assert "{boards|formats|grammar|matrix-units|targets|units}" in re.sub(r"\n\s+", "", halfulp("list", "--help")[1])


WITH_EXAMPLE = [*dict(every_command()), "report", "stats", "report study.toml"]


@pytest.mark.parametrize("words", WITH_EXAMPLE)
def test_help_has_an_example_that_parses(
    halfulp: Program, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = halfulp(*words.split(), "--help")[1]
    program, *given = shlex.split(text.partition("Example:\n")[2])
    assert program == "halfulp"
    assert given[: len(words.split())] == words.split()
    monkeypatch.chdir(tmp_path)
    for name in given:
        if Path(name).suffix in (".txt", ".toml", ".v", ".py"):
            Path(name).touch()
    command: click.Command = cli
    context = click.Context(cli, info_name="halfulp")
    while isinstance(command, click.Group):
        _, found, given = command.resolve_command(context, given)
        assert found is not None
        command, context = found, found.make_context(found.name, list(given), parent=context)
        given = [*context._protected_args, *context.args] if isinstance(found, click.Group) else given
    if "unit" in context.params and context.params["unit"] not in (None, "all"):
        assert implementation(context.params["unit"], context.params["fmt"]).spec


def test_examples_are_those_of_commands() -> None:
    assert {*EXAMPLES} <= {*WITH_EXAMPLE, "report study"}


def test_help_has_own_options_before_those_of_units(halfulp: Program) -> None:
    titles = ("\nOptions:\n", "\nOptions of units:\n", "\nOptions of hardware:\n", "  Example:\n")
    for command, own in (
        ("sim", "--vector "),
        ("synth", "--target NAME"),
        ("emit", "--package"),
        ("check", "--results"),
    ):
        text = halfulp(command, "--help")[1]
        places = [text.index(title) for title in (titles[0], f"  {own}", *titles[1:])]
        assert places == sorted(places)
        assert text.index("  --acc ") < text.index(titles[2]) < text.index("  --pipeline ")


@pytest.mark.slow
def test_shell_completion_completes_commands_units_and_formats() -> None:
    def completed(*words: str) -> list[str]:
        line = {"COMP_WORDS": " ".join(("halfulp", *words)), "COMP_CWORD": str(len(words))}
        code, out, err = process(env=environment(_HALFULP_COMPLETE="bash_complete", **line))
        assert (code, err) == (0, ""), err
        return [line.removeprefix("plain,") for line in out.splitlines()]

    assert completed("sy") == ["synth"]
    assert {"mac", "matrix"} & {*completed("sim", "ma")} == {"mac"}
    assert completed("sim", "mac", "mxfp8") == ["mxfp8_e5m2", "mxfp8_e4m3"]
    assert "--vectors" in completed("sim", "mac", "--ve")
    code, out, _ = process(env=environment(_HALFULP_COMPLETE="bash_source"))
    assert (code, out.startswith("_halfulp_completion()")) == (0, True)


def test_json_is_one_object_a_line(halfulp: Program, tmp_path: Path) -> None:
    for what in ("boards", "formats", "grammar", "matrix-units", "targets", "units"):
        code, out, err = halfulp("list", what, "--json")
        assert (code, err, out.count("\n")) == (0, "", 1)
        assert json.loads(out)[what]
    rows = {row["name"]: row for row in json.loads(halfulp("list", "formats", "--json")[1])["formats"]}
    assert rows["e5m2"]["largest"] == "57344"
    code, out, err = halfulp("sim", "mul", "e2m1fn", "--vector", "1,2", "--json")
    found = json.loads(out)
    assert (code, found["passed"], found["failed"]) == (0, True, 0)
    assert found["checks"][0]["checked"] > 0
    code, out, err = halfulp("synth", "mul e2m1fn*e2m1fn", "--target", "ecp5-85k", "--json")
    (row,) = json.loads(out)["tables"]["synth"]
    assert row["LUT"] > 0
    (tmp_path / "wrong.txt").write_text("1 2 0\n")
    code, out, err = halfulp("check", "mul e2m1fn*e2m1fn", "--results", tmp_path / "wrong.txt", "--json")
    found = json.loads(out)
    assert (code, found["checked"], found["wrong"]) == (1, 1, 1)
    assert found["tables"]["causes"]


def test_cost_prints_rows_as_json(halfulp: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(folder: Path, bar: object, pool: JobPool) -> Iterator[Path]:
        (folder / "small.csv").write_text("unit,LUT\nmul,46\n")
        yield folder / "small.csv"

    monkeypatch.setattr("halfulp.lab.bench.records.write", write)
    code, out, _ = halfulp("cost", "-o", tmp_path, "--json")
    assert (code, json.loads(out)["rows"]) == (0, [{"unit": "mul", "LUT": "46"}])


def test_verdicts_are_coloured_on_terminals_only(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def verdict() -> None:
        show("mul\nPASS\nFAIL: none", {})

    for given, coloured in (({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True)):
        monkeypatch.delenv("NO_COLOR", raising=False)
        for name, value in given.items():
            monkeypatch.setenv(name, value)
        text = CliRunner().invoke(verdict, color=True).output
        assert ("\x1b[32m" in text) == coloured, given
        assert re.sub(r"\x1b\[\d+m", "", text) == "mul\nPASS\nFAIL: none\n"
    assert CliRunner().invoke(verdict).output == "mul\nPASS\nFAIL: none\n"


def test_make_help_lists_groups_and_commands_of_program() -> None:
    helped = subprocess.run(["make", "-s", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for title, commands in GROUPS.items():
        found = [cli.get_command(click.Context(cli), name) for name in commands]
        rows = [f"  make {command.name:8}  {command.get_short_help_str(64)}" for command in found if command]
        assert "\n".join([f"{title}:", *rows, ""]) in helped


def test_list_targets_prints_parts_and_totals(halfulp: Program) -> None:
    rows = {line.split()[0]: line.split()[1:] for line in halfulp("list", "targets")[1].splitlines() if line}
    assert rows["u55c"] == [
        "xcu55c-fsvh2892-2L-e",
        "xcup",
        "1,303,680",
        "2,607,360",
        "162,960",
        "9,024",
        "2,016",
        "960",
        "775",
    ]
    assert rows["ecp5-85k"] == ["LFE5U-85F-6BG381C", "ecp5", "83,640", "83,640", "41,820", "156", "208", "0", "257"]


def test_synth_prints_one_table(halfulp: Program) -> None:
    code, out, err = halfulp("synth", "mul", "e2m1fn", "--target", "ecp5-85k")
    assert code == 0, err
    assert out.startswith("## Cost on ecp5-85k\n")
    (row,) = [line for line in out.splitlines() if line.startswith("| mul e2m1fn*e2m1fn.rn ")]
    assert row.endswith("% LUT |")
    assert "synth_ecp5 -nodsp" in out


@pytest.mark.slow
def test_synth_all_prints_a_row_for_each_unit(halfulp: Program) -> None:
    code, out, err = halfulp("synth", "all", "e2m1fn", "--target", "ecp5-85k", "--acc", "e3m2fn", "--k", "2")
    assert code == 0, err
    assert len(re.findall(r"^\| \w+ .*e2m1fn", out, re.MULTILINE)) == UNITS


def test_list_prints_formats_and_units(halfulp: Program) -> None:
    assert "e4m3fnuz" in halfulp("list", "formats")[1]
    formats = {line.split()[0] for line in halfulp("list", "formats")[1].splitlines() if line}
    assert {"int8", "posit8", "fixed", "posit", "float"} <= formats
    units = halfulp("list", "units")[1].splitlines()
    for row, form in (("mac ", "mac a*b[=product]+acc[=o]"), ("dot ", "dot{k} a*b[+c][=o]"), ("sru ", "sru a>o")):
        assert [line.endswith(form) for line in units if line.startswith(row)] == [True]
    assert "`mac a*b[=product]+acc[=o]` | `flags`, `carry=31`, `interleave=1` |" in halfulp("list", "grammar")[1]


@pytest.mark.parametrize(
    ("command", "text", "keyword"),
    [
        ("sim", "mac e5m2*e5m2+^e6n5", "e6n5"),
        ("sweep", "e5m2*e5m2^", "expected '=' or '+'"),
        ("emit", "mul e5m2*e5m2.^rq", "rq"),
        ("synth", "^foo e5m2*e5m2", "foo"),
        ("coverage", "sru int16>^e5m2", "fixed point"),
        ("formal", "mul e5m2*^", "expected the format of b"),
        ("emit", "sru e5m2^", "expected '>' here"),
        ("mutate", "mul e5m2*e5m2 ^lanes=3", "lanes"),
        ("faults", "dot8 e5m2*e5m2 order=^best", "order"),
        ("uvm", "mul e5m2*e5m2.sr4@^lfsr1", "lfsr"),
        ("save", "mul e5m2*e5m2.^exact", "exact"),
    ],
)
def test_commands_report_position_of_error_in_text(halfulp: Program, command: str, text: str, keyword: str) -> None:
    more = ["--vector", "1,2"] if command == "save" else []
    code, _, err = halfulp(command, text.replace("^", ""), *more)
    assert code == 2
    sentence, shown, caret = err.rstrip("\n").split("\n")
    assert keyword in sentence
    assert shown == f"  {text.replace('^', '')}"
    assert caret.index("^") == text.index("^") + 2


def test_short_form_in_quotes_is_the_short_form(halfulp: Program) -> None:
    code, out, err = halfulp("emit", "fma e2m1fn", "--pipeline", "1")
    assert (code, out) == (0, halfulp("emit", "fma", "e2m1fn", "--pipeline", "1")[1]), err
    sentence = refused(halfulp("emit", "fma fp16", "--round", "port"), 2)
    assert sentence.endswith("omit --round, and write 'fma fp16*fp16+fp16.port'")


def test_text_rejects_format_and_own_options(halfulp: Program) -> None:
    for words in (("e5m2",), ("--round", "rn")):
        code, _, err = halfulp("sim", "mul e5m2*e5m2", *words)
        assert code == 2
        assert f"omit {words[0]}" in err


def test_emit_of_text_matches_short_form(halfulp: Program) -> None:
    text = halfulp("emit", "e2m1fn*e2m1fn + e3m2fn.sr3@lfsr8:5", "--pipeline", "2")[1]
    assert "module mac_e2m1fn_e2m1fn_e3m2fn_sr3_lfsr8_5_p2(" in text
    words = "emit mac e2m1fn --acc e3m2fn --round sr3 --random lfsr8 --random-seed 5 --pipeline 2"
    assert halfulp(*words.split())[1] == text


# Success -----------------------------------------------------------------------------------------------------------


def test_sim_prints_checks(halfulp: Program) -> None:
    code, out, err = halfulp("sim", "mac", "e5m2", "--vectors", "20000", "--seed", "5")
    assert code == 0, out + err
    assert err == ""
    for text in (
        "mac e5m2*e5m2+e6m5.rn\n  a e5m2, b e5m2, c e6m5 -> o e6m5, rounding rn, latency 1\n",
        "8,192  with stalls",
        "20,000  one per cycle",
        "mismatches  0",
        "seconds",
    ):
        assert text in out
    assert out.endswith("PASS\n")


def test_sim_prints_one_vector_in_detail(halfulp: Program) -> None:
    code, out, err = halfulp("sim", "mac", "e5m2", "--vector", "0x3c,0x40,0x001")
    assert code == 0, err
    assert "a * b + c = 2.0000000000291038 = 68719476737 * 2^-35" in out
    assert "0x400  0_100000_00000  2" in out


@pytest.mark.slow
def test_sim_prints_one_dot_vector_in_detail(halfulp: Program) -> None:
    code, out, err = halfulp(
        "sim", "dot", "posit8", "--k", "2", "--c", "int8", "--to", "posit8", "--vector", "0x40,0x48,0x40,0xc0,3"
    )
    assert code == 0, out + err
    for text in (
        "dot2 posit8*posit8+int8=posit8.rn\n  a0 to a1 posit8, b0 to b1 posit8, c int8 -> o posit8, rounding rn, comb",
        "b1             0xc0  1_1000000  -1",
        "exact          exact sum = 2 = 1 * 2^1",
        "expected o              0x48  0_1001000  2",
    ):
        assert text in out


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("codes", "exact"),
    [
        ("0x3e00,0x7f", "2.5521177519070385e+38 = 3 * 2^126"),
        ("0x3e00,0x80", "3 * 2^-129"),
        ("0x8000,0x7f", "0"),
    ],
)
def test_sim_vector_shows_exact_scaled_number(halfulp: Program, codes: str, exact: str) -> None:
    code, out, err = halfulp("sim", "scaleb fp16,int8", "--vector", codes)
    assert code == 0, err
    (line,) = (line for line in out.splitlines() if "exact" in line)
    assert line.endswith(exact)


@pytest.mark.slow
def test_sim_vector_shows_powers_of_scaled_number_beyond_decimals(halfulp: Program) -> None:
    code, out, err = halfulp("sim", "scaleb fp16,int32", "--vector", "0xbe00,0x7fffffff")
    assert code == 0, err
    assert f"exact          -3 * 2^{2**31 - 2}\n" in out


def test_list_of_units_has_a_blank_between_columns(halfulp: Program) -> None:
    _, out, _ = halfulp("list", "units")
    head, *lines = out.splitlines()
    columns = head.index("computes"), head.index("text")
    specs = [*(row.spec for row in CATALOGUE.values()), *COMPOSED.values()]
    for spec, line in zip(specs, lines, strict=True):
        own = [spec.form.unit, spec.SUMMARY]
        assert [line[: columns[0]].rstrip(), line[columns[0] : columns[1]].rstrip()] == own
        assert all(line[column - 2 : column] == "  " for column in columns)


@pytest.mark.slow
def test_composed_unit_is_simulated_and_emitted(halfulp: Program, tmp_path: Path) -> None:
    code, out, err = halfulp("sim", "softmax e4m3 length=4", "--vectors", "20")
    assert code == 0, err
    assert "PASS" in out
    code, _, err = halfulp("emit", "softmax", "e4m3", "-o", str(tmp_path / "softmax.v"))
    assert code == 0, err
    assert "module softmax_e4m3_e4m3_rn(" in (tmp_path / "softmax.v").read_text()


@pytest.mark.parametrize(
    "words",
    [
        *(("coverage",), ("sweep",), ("mutate",), ("faults",), ("formal",), ("uvm",), ("vectors",)),
        *(("synth", "--explore", "0..1", "--target", "ecp5-85k"), ("synth", "--target", "asic", "--power")),
        *(("sim", "--wave"), ("sim", "--vector", "1"), ("emit", "--stream"), ("emit", "--package", "-o", "folder")),
    ],
    ids=" ".join,
)
def test_other_commands_refuse_a_composed_unit(words: tuple[str, ...], halfulp: Program) -> None:
    code, out, err = halfulp(words[0], "softmax e4m3", *words[1:])
    assert (code, out) == (2, "")
    assert err.count("softmax is composed of units and takes vectors by streams; it has halfulp sim") == 1
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("fmt", "options", "without"),
    [
        ("fp32", {}, {"function", "requantize"}),
        ("bf16", {"to": "fp32"}, {"function"}),
        ("bf16", {"rounding": "sr8"}, {"function", "fpu"}),
        ("e5m2", {"rounding": "port"}, {"split", "join"}),
        ("e5m2", {"to": "bf16x2"}, {"lerp", "quire"}),
        ("e5m2", {"to": "nf4"}, {"quire", "mac"}),
        ("int8", {"to": "fp32"}, {"requantize", "sru"}),
        ("e5m2", {"saturate": "sat"}, set()),
    ],
)
def test_all_units_are_those_that_take_format_and_options(fmt: str, options: dict[str, str], without: set[str]) -> None:
    made = {asked.spec.form.unit for asked in implementations("all", fmt, **options)}
    assert {"add", "mul"} <= made
    assert not made & without
    assert len(made) >= 10


def test_all_units_of_a_format_that_none_takes_are_refused() -> None:
    with pytest.raises(ValueError, match="no unit takes operands in bf16x2"):
        implementations("all", "bf16x2")


def test_options_of_all_units_go_to_those_that_have_them() -> None:
    made = implementations("all", "e2m1fn", to="e3m2fn", acc="e4m3")
    assert len(made) == UNITS
    assert {str(one.spec.o) for one in made if isinstance(one.spec, AddSpec | MulSpec)} == {"e3m2fn"}


@pytest.mark.slow
def test_sim_all_passes_options_to_units_that_have_them(halfulp: Program) -> None:
    code, out, err = halfulp("sim", "all", "e2m1fn", "--vectors", "500", "--to", "e3m2fn", "--acc", "e4m3")
    assert code == 0, out + err
    assert out.count("PASS\n") == UNITS
    assert "mac e2m1fn*e2m1fn+e4m3.rn" in out
    assert "mul e2m1fn*e2m1fn=e3m2fn.rn" in out
