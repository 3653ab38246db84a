"""README and documentation: commands and Python run, and print the output on the pages."""

import csv
import doctest
import importlib.util
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import numpy as np
import pytest
import torch
from amaranth.sim import Simulator
from pyuvm import uvm_factory

from halfulp import golden, unit
from halfulp.cli import GROUPS, cli
from halfulp.hdl.formats import E4M3FN, E6M5, stochastic
from halfulp.implementation import Implementation
from halfulp.lab.papers import arbitor, paper_tables
from halfulp.sim.uvm.sequences import Campaign
from halfulp.units.catalogue import CATALOGUE, COMPOSED
from halfulp.units.verilog import emit
from tests.settings import ROOT

ROOMS = ("boards", "docs", "examples", "fpga", "golden", "halfulp", "hdl", "lab", "sim", "tests", "units")
PAGES = {
    path.name: re.sub(r"<!--.*?-->\n?", "", path.read_text(), flags=re.DOTALL)
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
}


TUTORIALS = {
    name: text.partition("## In ten minutes\n")[2].partition("\n## ")[0]
    for name, text in PAGES.items()
    if "## In ten minutes\n" in text
}
"""First part of three pages, whose commands run in order in one folder."""


def blocks(language, *pages):
    """Return the text of every fenced block of a language, on some pages or on all, without the tutorials."""
    text = "".join(PAGES[page].replace(TUTORIALS.get(page) or "\0", "") for page in pages or PAGES)
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


FOR_DEVELOPERS = ("README.md", "development.md")
"""Pages with commands of `make`; all others have those of `halfulp`."""


def test_pages_for_users_have_commands_of_halfulp():
    # A written kernel has a Makefile with the target `tile`.
    users = {name for title, group in GROUPS.items() if "records" not in title for name in group} - {"tile"}
    pattern = rf"\bmake (?:{'|'.join(users)})\b"
    assert re.search(pattern, PAGES["README.md"])
    assert [name for name, text in PAGES.items() if name not in FOR_DEVELOPERS and re.search(pattern, text)] == []


QUICK = r"make sim UNIT=mac FMT=e5m2|halfulp (emit|list) .*"
"""Commands that `make test` runs; `make test-all` runs all."""


def commands():
    """Return every command with the output on its page."""
    for block in blocks("console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            # `make test` within the tests would recurse; the environment is active already.
            if not command.startswith(("make test", ". .venv")):
                marks = [] if re.fullmatch(QUICK, command) else [pytest.mark.slow]
                yield pytest.param(command, output, id=command, marks=marks)


@pytest.mark.sampled(12, 3)
@pytest.mark.parametrize(("command", "output"), list(commands()))
def test_command_on_a_page_prints_as_shown(command, output, tmp_path):
    program = Path(sys.executable).parent
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    run = subprocess.run(
        command,
        shell=True,
        cwd=ROOT if command.startswith("make ") else tmp_path,
        env=os.environ | {"PATH": f"{program}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "100"},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert re.fullmatch(pattern(output), run.stdout), run.stdout


def pattern(output):
    """Return the regular expression of an output: a line of dots matches any lines, dots in a line any text."""
    parts = re.split(r"^ *\.\.\.\n", output, flags=re.MULTILINE)
    return r"(?:.*\n)*?".join(re.escape(part).replace(r"\.\.\.", ".*") for part in parts)


def test_three_pages_begin_with_a_tutorial():
    assert sorted(TUTORIALS) == ["design.md", "training.md", "verification.md"]
    assert [text.rpartition("```\n")[2].strip()[:5] for text in TUTORIALS.values()] == ["Next:"] * 3


@pytest.mark.sampled(8, 4)
@pytest.mark.parametrize("quick", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=[pytest.mark.slow] * (page == "training.md")) for page in sorted(TUTORIALS)]
)
def test_tutorial_runs_from_top_to_bottom(page, quick, tmp_path):
    """The quick case runs the scripts of the page and the commands that take no time."""
    (tmp_path / ".venv").symlink_to(sys.prefix)
    program, outputs = [], []
    for language, block in re.findall(r"^```(\w+)\n(.*?)^```$", TUTORIALS[page], re.DOTALL | re.MULTILINE):
        if language == "python":
            (tmp_path / block.splitlines()[0].removeprefix("# ")).write_text(block)
            continue
        assert language == "console"
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            if not quick or command.startswith(("python ", "halfulp emit ", "head ", "grep ", ". ")):
                program += [command.replace("make ", f"make -s -C {ROOT} ") + f" >{len(outputs)} || exit"]
                outputs += [output]
    run = subprocess.run(["bash", "-c", "\n".join(program)], cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    for number, output in enumerate(outputs):
        printed = (tmp_path / str(number)).read_text()
        assert re.fullmatch(pattern(output), printed), printed


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted((ROOT / "docs" / "notebooks").glob("*.md")), ids=lambda path: path.stem)
def test_notebook_runs(path, tmp_path):
    cells = re.findall(r"^```{code-cell}.*?\n(.*?)^```$", path.read_text(), re.DOTALL | re.MULTILINE)
    assert cells
    lines = [line for cell in cells for line in cell.splitlines() if not line.startswith("from IPython")]
    lines = ["SVG = lambda path: path", "display = print", *lines]
    (tmp_path / "notebook.py").write_text("\n".join(lines))
    run = subprocess.run([sys.executable, "notebook.py"], cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def exists(name):
    """Return True if a name is a module or an attribute of one."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:count]))
            break
        except ModuleNotFoundError:
            continue
    return all((found := getattr(found, part, None)) is not None for part in parts[count:])


@pytest.mark.parametrize("page", ["CHANGELOG.md", *PAGES])
def test_names_and_paths_on_pages_exist(page):
    text = PAGES.get(page) or (ROOT / page).read_text()
    names = re.findall(r"`(halfulp(?:\.\w+)+)[`(]", text)
    imports = re.findall(r"^from (halfulp[\w.]*) import ([\w, ]+)$", text, re.MULTILINE)
    names += [f"{module}.{name}" for module, some in imports for name in some.split(", ")]
    assert [name for name in names if not exists(name)] == []
    paths = re.findall(rf"`((?:{'|'.join(ROOMS)})/[\w/.]*)`", text)
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_pages_name_modules_and_paths():
    """Check that the patterns of the test of names and paths find several names each."""
    text = "".join(PAGES.values())
    assert len(re.findall(r"`(halfulp(?:\.\w+)+)[`(]", text)) > 10
    assert len(re.findall(rf"`((?:{'|'.join(ROOMS)})/[\w/.]*)`", text)) > 3


@pytest.mark.parametrize("page", PAGES)
def test_page_links_lead_to_files(page):
    folder = ROOT if page == "README.md" else ROOT / "docs"
    links = [link for link in re.findall(r"\]\(([^)#]+)[^)]*\)", PAGES[page]) if "://" not in link]
    written = {
        f"generated/{name}" for name in re.findall(r'folder / "(\w+\.md)"', (ROOT / "docs/generate.py").read_text())
    } | {f"generated/{name}.md" for name in ("papers", *(f"paper_{end}" for end in paper_tables.TITLES))}
    written |= {f"generated/gallery/{name}.svg" for name in gallery().PLOTS}
    assert [link for link in links if not (folder / link).exists() and link not in written] == []


def test_readme_is_one_page():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 100


def test_readme_test_command_matches_ci():
    assert "$ make test\n" in PAGES["README.md"]
    assert "make test " in (ROOT / ".ci" / "run").read_text()


def test_targets_of_ci_have_recipes():
    targets = re.findall(r"^make ([a-z]+)", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    assert targets == ["package", "docs", "lint", "test"]
    makefile = (ROOT / "Makefile").read_text()
    assert [name for name in targets if not re.search(rf"^{name}:.*\n\t", makefile, re.MULTILINE)] == []


@pytest.mark.parametrize("command", ["sim", "synth", "choose", "emit", "uvm", "vectors", "tile"])
def test_options_of_a_command_are_settings_of_make(command):
    # Their settings are OUT=folder and INCREMENT=0.
    others = {"--output", "--increment", "--no-increment"}
    program = cli.get_command(click.Context(cli), command)
    options = {max(option.opts, key=len) for option in program.params if isinstance(option, click.Option)} - others
    settings = [option.removeprefix("--").replace("-", "_").upper() + "=1" for option in sorted(options)]
    answer = subprocess.run(["make", "-n", command, *settings], cwd=ROOT, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr
    assert [option for option in options if f"{option} " not in answer.stdout] == []


@pytest.mark.parametrize("page", ["README.md", "design.md"])
def test_python_session_on_a_page_runs(page):
    (session,) = blocks("pycon", page)
    test = doctest.DocTestParser().get_doctest(session, {}, page, page, 0)
    assert len(test.examples) > 5
    report = []
    assert doctest.DocTestRunner().run(test, out=report.append).failed == 0, "".join(report)


def test_readme_design_accumulates_as_golden():
    """The first design of the README accumulates like the golden model."""
    (source,) = blocks("python", "README.md")
    assert len(source.splitlines()) <= 25
    names = {}
    exec(source, names)
    x, y, noise = [0x38, 0x41, 0xB3, 0x08, 0x7E], [0x40, 0x3C, 0x45, 0x09, 0x7E], [0, 1023, 512, 7, 300]
    totals = []

    async def drive(context):
        for step in range(5):
            context.set(names["x"], E4M3FN.from_bits(x[step]))
            context.set(names["y"], E4M3FN.from_bits(y[step]))
            context.set(names["first"], step in (0, 3))
            context.set(names["noise"], noise[step])
            await context.tick()
            totals.append(context.get(names["total"]).code)

    simulator = Simulator(names["m"])
    simulator.add_clock(1e-6)
    simulator.add_testbench(drive)
    simulator.run()
    columns = [torch.tensor(column) for column in (x, y, [0] * 5, [0] * 5, [1, 0, 0, 1, 0])]
    expected = golden.mac_sequence(
        *columns, a=E4M3FN, b=E4M3FN, acc=E6M5, rounding=stochastic(10), random=torch.tensor(noise)
    )
    assert totals == expected.tolist()


@pytest.mark.parametrize(
    ("page", "word", "count"),
    [
        ("faq.md", "", 1),
        ("formats.md", "export_blocks", 1),
        ("formats.md", "quantize_tiles", 1),
        # The models compile kernels for minutes.
        pytest.param("models.md", "", 9, marks=pytest.mark.slow),
    ],
)
def test_python_of_a_page_runs_in_order(page, word, count):
    sources = [source for source in blocks("python", page) if word in source]
    assert len(sources) == count
    names = {}
    for source in sources:
        exec(source, names)


def test_training_example_runs(capsys):
    """The model on the page of training is converted and makes a step."""
    (source,) = (block for block in blocks("python") if "scaler" in block)
    names = {}
    exec(source, names)
    assert capsys.readouterr().out.splitlines()[1:] == [
        "self_attn  MultiheadAttention  e5m2*e5m2+e6m5.sr10, update=e6m9.sr8, master=true",
        "linear1    Linear              e4m3fn*e4m3fn+fp16.rn",
        "linear2    Linear              e4m3fn*e4m3fn+fp16.rn",
    ]
    assert names["scaler"].skipped == 0


def page_module(name):
    """Import a module of docs/ that writes pages, and those that it imports."""
    if str(ROOT / "docs") not in sys.path:
        sys.path.append(str(ROOT / "docs"))
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def generate():
    return page_module("generate")


def gallery():
    return page_module("gallery")


@pytest.mark.parametrize("row", CATALOGUE.values(), ids=CATALOGUE)
def test_docstring_of_unit_has_the_sections_of_its_page(row, generate):
    document = inspect.cleandoc(row.unit.__doc__)
    assert "`" in generate.section(document, "Formula")
    assert "cycle" in generate.section(document, "Latency")
    assert generate.references(generate.section(document, "Source"))


def test_every_unit_is_in_one_group_of_the_sidebar(generate):
    grouped = [name for units in generate.UNIT_GROUPS.values() for name in units]
    assert sorted(grouped) == sorted([*CATALOGUE, *(spec.form.unit for spec in COMPOSED)])
    lines, pages = generate.unit_groups()
    assert [line for line in lines if line.startswith("generated/")] == [
        f"generated/unit_groups/{name}" for name in pages
    ]
    assert [line for page in pages.values() for line in page if line.startswith("../")] == [
        f"../units/{name}" for name in grouped
    ]


@pytest.mark.parametrize("cls", COMPOSED.values(), ids=lambda cls: cls.__name__)
def test_page_of_composed_unit_has_steps_errors_and_sources(cls, generate):
    page = "\n".join(generate._composed(cls))
    name = cls.SPEC.form.unit
    assert re.search(r"^- `s = sum\(\w\)`: `accumulate bf16\+bf16.rn`$", page, re.MULTILINE)
    assert re.search(rf"^\| `{name} bf16.*` \| 64 \| \d+\.?\d* \|", page, re.MULTILINE)
    assert re.search(rf"^\| `'{name} bf16.*' --clock 90` \| \d+ ", page, re.MULTILINE)
    assert re.search(r"{cite:p}`\w+`", page)
    assert f".. autofunction:: halfulp.golden.{name}" in page
    assert f"(generated/units/{name}.md)" in "\n".join(generate.unit_groups()[0])
    assert "cycle" in generate.section(inspect.cleandoc(cls.__doc__), "Latency")


@pytest.mark.parametrize(
    "spec", [*(row.spec for row in CATALOGUE.values()), *COMPOSED], ids=lambda spec: spec.form.unit
)
def test_page_of_unit_has_every_record_of_its_costs(spec, generate):
    cells = {line.split("|")[1].strip(" `"): line.split("|") for line in generate._costs(spec)}
    texts = set()
    for path in generate.RESULTS.glob("*.csv"):
        for row in csv.DictReader(path.read_text().splitlines()):
            name = re.match(r"'?([a-z]+)\d* ", row.get("unit") or "")
            if name and name[1] == spec.form.unit and {"target", "LUT", "path"} <= set(row) and path.stem != "peers":
                texts.add(row["unit"])
                assert f" {row['LUT']} " in cells[row["unit"]]
    assert set(cells) - {"unit", "---"} == texts
    assert texts


def test_page_of_unit_has_third_party_units_beside(generate):
    lines = generate._costs(CATALOGUE["fma"].spec)
    peers = {
        row["design"]: row
        for row in generate._records("peers")
        if row["unit"] == "fma fp16" and row["target"] == "vu9p"
    }
    (line,) = (line for line in lines if line.startswith("| `fma fp16*fp16+fp16.rn` |"))
    titles, cells = ([cell.strip() for cell in text.split("|")] for text in (lines[0], line))
    for design in ("FPnew", "FloPoCo"):
        assert cells[titles.index(f"{design} (vu9p)")] == f"{peers[design]['LUT']} ({peers[design]['path']})"


@pytest.mark.parametrize("spec", [row.spec for row in CATALOGUE.values()], ids=lambda spec: spec.form.unit)
def test_spec_string_that_a_page_measures_is_that_of_a_unit(spec, generate):
    other = unit(generate.other_text(spec))
    assert isinstance(other.spec, spec)
    assert other.buildable.component().name


@pytest.mark.slow
def test_page_of_unit_has_its_records_and_sources(generate):
    mul = "\n".join(generate._unit(CATALOGUE["mul"]))
    assert re.search(r"^\| `mul e5m2\*e5m2\.rn` \| \d+ ", mul, re.MULTILINE)
    assert "## Error" not in mul
    assert "{cite:p}`ieee754`" in mul


@pytest.mark.slow
def test_page_of_activation_has_its_errors(generate):
    pwl = "\n".join(generate._unit(CATALOGUE["pwl"]))
    assert re.search(r"^\| `tanh` \| 8 \| \d+\.\d+ ", pwl, re.MULTILINE)
    assert re.search(r"^\| pwl \| fixed point ", pwl, re.MULTILINE)


# The more segments, the longer the fits of functions, which are parts of the records' keys.
@pytest.mark.parametrize("segments", [(1,), pytest.param(arbitor.SEGMENTS, marks=pytest.mark.slow)])
def test_paper_tables_have_records_and_sources(segments, monkeypatch, tmp_path):
    monkeypatch.setattr(arbitor, "SEGMENTS", segments)
    text = "\n".join(line for page in paper_tables.pages().values() for line in page)
    peers, small, others = (
        list(csv.DictReader((paper_tables.RECORDS / f"{name}.csv").read_text().splitlines()))
        for name in ("peers", "small", "others")
    )
    luts = {row["unit"]: f"{row['LUT']} ({row['path']})" for row in (*small, *others)}
    peers = [row for row in peers if row["target"] == "vu9p" and not row["unit"].startswith("fpu")]
    assert len(peers) > 30
    for row in peers:
        (line,) = (line for line in text.splitlines() if line.startswith(f"| `{row['unit']}` | "))
        assert luts[str(Implementation.parse(row["unit"]))] in line
        assert f" {row['LUT']} ({row['path']}) " in line
    keys = set(re.findall(r"{cite:p}`(\w+)`", text))
    assert len(keys) > 5
    assert keys <= set(re.findall(r"^@\w+{(\w+),", (ROOT / "docs/references.bib").read_text(), re.MULTILINE))
    # The page follows the records.
    for path in paper_tables.RECORDS.iterdir():
        (tmp_path / path.name).write_text(path.read_text().replace("3-bit plateau,8,4,4,", "3-bit plateau,8,77,4,"))
    monkeypatch.setattr(paper_tables, "RECORDS", tmp_path)
    assert "| 3-bit plateau | 4 | 8 | 77 |" in "\n".join(
        line for page in paper_tables.pages().values() for line in page
    )


def test_gallery_shows_every_command_that_plots():
    commands = {plot.command for plot in gallery().PLOTS.values()}
    sources = [path for room in ROOMS if room not in ("docs", "tests") for path in (ROOT / room).rglob("*.py")]
    plotting = {path.resolve() for path in sources if "from halfulp.tools.plots import" in path.read_text()}
    assert len(commands) == len(plotting) > 5


@pytest.mark.slow
@pytest.mark.sampled(6, 6)
@pytest.mark.parametrize("name", gallery().PLOTS)
def test_command_of_gallery_draws_its_plot(name, tmp_path):
    plot = gallery().PLOTS[name]
    gallery().draw(plot.command, tmp_path)
    assert (tmp_path / f"{name}.svg").is_file()
    insight = gallery().insight(plot, tmp_path)
    assert re.search(r"\d", insight)
    assert insight.endswith(".")
    assert "{" not in insight


def test_gallery_refuses_an_insight_that_the_figures_contradict(tmp_path):
    plot = gallery().Plot("command", "Two is more than one", "one.x.sum() < two.x.sum()", "Two is {two.x.sum()}.")
    for one in (1, 3):
        (tmp_path / "one.csv").write_text(f"x\n{one}\n")
        (tmp_path / "two.csv").write_text("x\n2\n")
        if one < 2:
            assert gallery().insight(plot, tmp_path) == "Two is 2."
    with pytest.raises(ValueError, match="the figures contradict the title 'Two is more than one'"):
        gallery().insight(plot, tmp_path)


def test_uvm_override_takes_effect():
    """The sequence of the example replaces ours, and its constraint excludes subnormal operands."""
    (source,) = (block for block in blocks("python") if "uvm_factory" in block)
    names = {}
    exec(source, names)
    names["Subnormals"].overrides()
    try:
        made = Campaign.create("campaign")
        assert type(made) is names["SmallOperands"]
        assert made.constraint({"a": np.array([0, 3, 4, 0x83, 0x84])}).tolist() == [True, True, False, True, False]
    finally:
        uvm_factory().clear_overrides()


def test_exact_sums_on_a_page_match_names():
    """The accumulators and dot products on the page of units match their names."""
    (source,) = (block for block in blocks("python") if "order=" in block)
    names = {}
    exec(source, names)
    assert [names[name].name for name in ("exact", "tree", "chain")] == [
        "mac_posit8_posit8_exact_posit16_rn",
        "dot8_e4m3fn_e4m3fn_bf16_rn",
        "dot8_e4m3fn_posit8_fp16_fxp8_8_sr10_order_sequential",
    ]
    for name in ("exact", "tree", "chain"):
        assert f"module {names[name].name}(" in emit(names[name])


def test_coverage_example_counts_bins():
    """The coverage example counts bins, and proves that the others are out of reach."""
    (source,) = (block for block in blocks("python") if "Coverage" in block)
    names = {}
    exec(source, names)
    assert names["coverage"].vectors == 1 << 12
