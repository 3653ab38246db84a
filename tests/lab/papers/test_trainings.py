"""Reports of trainings: cases, cache, tables, record and coarse rounding."""

import re
from fractions import Fraction
from pathlib import Path

import pytest
import torch

from halfulp.golden.nn import Policy
from halfulp.hdl.specs.segments import Segments
from halfulp.lab.papers import arbitor, blocks, coarse, esru, fase, lost, mptorch, paper_tables, parts, trainings
from halfulp.lab.papers.trainings import QUICK, Case, Effort, Figures, lowest, measure
from halfulp.tools.jobs import LOCAL

TOP = Path(__file__).parents[3]

REPORTS = {"arbitor": arbitor, "blocks": blocks, "esru": esru, "fase": fase, "mptorch": mptorch}


def figures(module, **more):
    """Return a record with chosen accuracies: 50 and 52 for the first case, one more for each next one."""
    values = {case: [50.0 + place / 8, 52.0 + place / 8] for place, case in enumerate(dict.fromkeys(module.cases()))}
    return Figures("halfulp report", "2026-11-22", {"torch": "2.13"}, Effort(seeds=(0, 1)), values, more)


COARSE = {
    "errors": {name: [0.1 / (place + 1)] * 5 for place, name in enumerate(("each operation", "each sum", "once"))},
    "check": {name: {"results that differ": 0, "largest difference": 0.0} for name in ("each operation", "once")},
    "parts": {name: [1e-3, 1e-6, None] for name in parts.ROWS},
    "depth": {"ResNet18": {"BF16": 0.4, "MP": 0.9}},
    "lost": {name: {"updates, 0%": 0.5, "updates, 75%": 0.75, "softmax": 0.25} for name in (fase.LSTM, "recurrent")},
    "perplexity": dict.fromkeys(lost.ARITHMETICS, 7.0),
}
SEGMENT_ERRORS = {name: {"3 segments": 0.01, "2 in total": 0.5} for name in ("tanh", "sigmoid")}
LAYER = dict.fromkeys(mptorch.ROUNDINGS, 0.9) | {"layer": "linear", "phase": "forward", "terms": 100, "zero": 97.0}
MORE = {
    "arbitor": {"changed": dict.fromkeys(arbitor.OPTIMIZERS, 0.5), "segments": SEGMENT_ERRORS},
    "blocks": {},
    "esru": {"errors": {name: {esru.NAIVE: [0.0] * 10} for name in esru.INPUTS}},
    "fase": COARSE,
    "mptorch": {
        "first step": [LAYER, LAYER | {"phase": "weight gradient", "terms": 1000, "rz": 0.05}],
        "losses": {"fp32": 0.5},
    },
}


@pytest.mark.parametrize("name", REPORTS)
def test_command_calls_the_figures_of_each_report(name):
    """A report has figures that are no accuracies, or none; its record has all, so that nothing is measured again."""
    measured = getattr(REPORTS[name], "measured", lambda **_: {})(quick=True, pool=LOCAL)
    record = Figures.load(TOP / "fpga" / "results" / f"{name}.json").more
    assert set(measured) == set(MORE[name]) == record.keys() - {"added"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name == "arbitor")) for name in REPORTS]
)
def test_cases_of_report_have_valid_policies(name):
    cases = list(REPORTS[name].cases())
    assert len(cases) > 8
    for case in cases:
        assert case.network in trainings.NETWORKS
        for _, text in (*case.policies, *(pair for _, policies in case.later for pair in policies)):
            policy = Policy.parse(text)
            assert case.emulate or (policy.elementwise, policy.optimizer) == (None, None)
        for function, text in case.activations:
            assert Segments.read(text).name == function


@pytest.mark.slow
def test_cases_of_arbitor_span_published_parameters():
    texts = [text for case in arbitor.cases() for _, text in case.policies]
    for fmt in ("e6m2", "e6m6", "e6m1-ftz", "posit13e3", "posit11e3", "posit9e2"):
        assert any(text.startswith(f"{fmt}*{fmt}") for text in texts), fmt
    assert {text for text in texts if "update=" in text} == {f"fp32, update={one}" for one in arbitor.SPARSITY}
    # Products are rounded only where all operations are in the format.
    assert arbitor.everything("e6m2").startswith("e6m2*e6m2=e6m2.rn+e6m2.rn, ")
    assert arbitor.with_reductions("e6m2").startswith("e6m2*e6m2+fp32.rn, ")


def test_cases_of_blocks_train_both_networks_in_required_formats():
    for network in ("lenet5", "transformer"):
        operands = {
            text.partition("*")[0] for case in blocks.cases() if case.network == network for _, text in case.policies
        }
        assert operands >= {"fp32", "e4m3fn", "mxfp8_e4m3", "mxfp6_e2m3", "mxfp4", "nvfp4"}


def test_table_of_blocks_compares_with_fp32_of_equal_seeds():
    found = figures(blocks)
    frame = blocks.report(found).tables["blocks-accuracy"].frame.set_index("arithmetic")
    for network in blocks.NETWORKS:
        assert frame.loc["FP32", f"{network}, minus FP32"] == 0
        assert frame.loc["mxfp8_e4m3", f"{network}, minus FP32"] == 0.25
    assert frame.loc["nvfp4"].isna().sum() == 3


def test_notes_of_report_name_data_of_its_networks():
    assert "of lenet5 on MNIST" in figures(blocks).notes[0]
    assert "MNIST" not in figures(esru).notes[0]
    assert "8 x 8" not in figures(mptorch).notes[0]


@pytest.mark.parametrize("name", REPORTS)
def test_tables_of_report_show_every_mean(name):
    found = figures(REPORTS[name], **MORE[name])
    report = REPORTS[name].report(found)
    text = report.markdown()
    first = next(iter(found.values))
    mean, deviation = found.cells(first, "ours").values()
    assert (mean, round(deviation, 3)) == (51.0, 1.414)
    shown = set(re.findall(r"\d+\.\d\d\b", text))
    for case in found.values:
        assert f"{found.mean(case):.2f}" in shown, case
    assert "2026-11-22" in text


def test_tables_have_published_figures():
    """Jiang et al., ATC 2023, Tables 2b and 2c; FASE, Table 3; Chang et al., DATE 2023, Table I."""
    sparsity = {"1:2": (94.07, 82.11), "1:4": (93.64, 78.78), "1:8": (92.99, 75.45)}
    sparsity |= {"2:4": (94.09, 82.94), "2:8": (93.59, 80.72), "4:8": (94.19, 82.94)}
    frame = arbitor.report(figures(arbitor, **MORE["arbitor"])).tables["arbitor-sparsity"].frame.set_index("pattern")
    for pattern, (resnet, transformer) in sparsity.items():
        row = frame.loc[pattern]
        assert (row["ResNet-18, published"], row["Transformer, published"]) == (resnet, transformer)
    frame = fase.report(figures(fase, **COARSE)).tables["fase-accuracy"].frame.set_index("model")
    row = frame.loc["ResNet101"]
    assert [row[f"{way}, published"] for way in ("FP32", "BF16", "MP", "BF16x2")] == [75.93, 67.10, 75.65, 76.00]
    assert list(frame["ours"]).count("") == 6
    assert list(frame.loc["AlexNet"].dropna()[1:4]) == [57.80, 60.18, ""]
    frame = esru.report(figures(esru, **MORE["esru"])).tables["esru-accuracy"].frame.set_index("network")
    columns = [esru.FLOAT, esru.NAIVE, esru.PLATEAU]
    assert list(frame.loc["ResNet-18, published"][columns]) == [71.10, 69.07, 70.91]
    assert list(frame.loc["ResNet-50, published"][columns]) == [77.59, 76.03, 77.56]
    assert list(frame.loc["BERT, published"][columns].dropna()) == [82.77, 82.39]
    frame = esru.report(figures(esru, **MORE["esru"])).tables["esru-order"].frame.set_index(["words", "input"])
    row = frame.loc[esru.AS_PUBLISHED]
    assert list(row[["ResNet-18, published", "ResNet-50, published"]].round(2)) == [1.84, 1.53]
    # Two columns of the first table are between naive and repeated words.
    assert (row["resnet"], frame.notna().sum().tolist()) == (0.25, [6, 6, 1, 1])
    # Ben Ali et al., DATE 2025, Table II.
    frame = mptorch.report(figures(mptorch, **MORE["mptorch"])).tables["mptorch-accuracy"].frame
    assert list(frame["published"]) == [97.10, 98.00, 98.61, 99.00, 99.05, 99.18, 99.06, 99.14, 98.85, 10.00]
    assert list(frame["rank, published"]) == [9, 8, 7, 5, 4, 1, 3, 2, 6, 10]
    assert list(frame["rank, ours"]) == list(range(10, 0, -1))


def test_lowest_format_is_within_one_point_with_equal_seeds():
    cases = [(f"m{place}", Case("resnet", (("*", f"e6m{place}"),))) for place in range(4)]
    accuracies = dict(zip((case for _, case in cases), ([80.0], [95.9], [96.0, 96.2], [98.0]), strict=True))
    near, far = Case("resnet"), Case("transformer")
    found = Figures("", "", {}, Effort(), accuracies | {near: [97.0, 97.0, 90.0], far: [98.9, 98.9]})
    assert lowest(found, cases, near) == "m2"
    assert lowest(found, cases, far) == "m3"
    assert lowest(found, cases[:1], near) == "none of these"
    assert found.gain(cases[1][1], near) == pytest.approx(-1.1)
    assert found.seeds([case for _, case in cases]) == "1 to 2"


@pytest.mark.parametrize("name", REPORTS)
def test_record_of_report_is_read_back(name, tmp_path):
    found = figures(REPORTS[name], **MORE[name])
    (tmp_path / "record.json").write_text(found.json())
    assert Figures.load(tmp_path / "record.json") == found


@pytest.mark.slow
def test_measured_cases_are_cached(own_build, monkeypatch):
    case = Case("resnet")
    found = measure([case, case], QUICK, "command", "date")
    assert list(found.values) == [case]
    assert 0 <= found.mean(case) <= 100
    monkeypatch.setattr(trainings, "train", None)
    assert measure([case], QUICK, "command", "date") == found


@pytest.mark.slow
def test_cases_that_take_long_have_fewer_seeds(own_build):
    parts = fase.case("recurrent", "BF16x2")
    assert [fase.most_seeds(case) for case in (parts, fase.case("recurrent", "BF16"))] == [1, None]
    cases, effort = (Case("recurrent"), Case("graph")), Effort(seeds=(0, 1), limit=16, epochs=1)
    found = measure(cases, effort, "command", "date", most_seeds=lambda case: 1 if case.network == "graph" else None)
    assert [len(found.values[case]) for case in cases] == [2, 1]
    assert "1 of 2 accuracies with fewer" in found.notes[0]


@pytest.mark.slow
def test_trained_cases_depend_on_policy_and_seed():
    """An emulated program in a narrow format gives another model than FP32, the same in each run."""
    narrow = Case("recurrent", (("*", arbitor.everything("e6m1")),), emulate=True)
    effort = Effort(seeds=(0,), limit=16, epochs=2)
    found = [trainings.train(case, effort) for case in (Case("recurrent"), narrow, narrow)]
    assert found[1] == found[2]
    assert all(len(one) == 1 for one in found)


@pytest.mark.slow
def test_lenet5_trains_in_blocks_on_mnist():
    case = blocks.case("lenet5", "mxfp4, sr8, rotated")
    found = trainings.train(case, Effort(seeds=(0, 1), limit=16, epochs=1))
    # Four test images.
    assert len(found) == 2
    assert all(one in (0, 25, 50, 75, 100) for one in found)


@pytest.mark.slow
def test_quick_report_writes_tables_and_record(tmp_path, monkeypatch, halfulp):
    monkeypatch.setattr(coarse, "LENGTHS", (16, 64))
    monkeypatch.setattr(fase, "PRECISIONS", {"FP32": None})
    code, out, _ = halfulp("report", "fase", "--quick", "-o", tmp_path)
    assert code == 0
    assert "a test with 64 examples" in out
    assert {path.name for path in tmp_path.iterdir()} >= {"fase.json", "fase-rounding.svg", "fase-accuracy.csv"}
    found = Figures.load(tmp_path / "fase.json")
    assert found.effort == QUICK
    assert len(found.values) == 3
    assert set(found.more["perplexity"]) == set(lost.ARITHMETICS)
    assert all(0 <= share < 1 for shares in found.more["lost"].values() for share in shares.values())
    late, early = (found.more["lost"][fase.LSTM][f"updates, {part:.0%}"] for part in (lost.PARTS[-1], lost.PARTS[0]))
    assert late > early


def test_page_of_fase_says_what_its_row_does_not_show():
    lines = "\n".join(paper_tables.pages()["paper_fase"])
    record = Figures.load(TOP / "fpga" / "results" / "fase.json")
    for name, shares in record.more["lost"].items():
        assert re.search(rf"\| {name} +\|.* {100 * shares['softmax']:.1f}% \|", lines), name
    for way, found in record.more["perplexity"].items():
        assert re.search(rf"\| {way} +\|.* {found:.2f} \|", lines), way
    ways = record.more["perplexity"]
    assert f"its perplexity is {ways['BF16']:.1f} in BF16, {ways['BF16, updates in FP32']:.1f} with updates" in lines
    # Its causes are those of the record: sums in FP32 remove the loss, and updates in FP32 do not.
    assert ways["BF16, sums in FP32"] < ways["FP32"] + 1 < ways["BF16"] - 10 < ways["BF16, updates in FP32"]
    for title in (fase.LOST, fase.PERPLEXITY, fase.GRADIENTS):
        assert f"### {title}" in lines


def test_sums_in_bf16_stop_at_256_times_their_terms():
    with lost._Sums() as sums:
        torch.ones(2, 300) @ torch.ones(300, 3)
        torch.log_softmax(torch.ones(4, 512), -1)
    assert sums.counts == {"products": [6 * 44, 6 * 300], "softmax": [4 * 256, 4 * 512]}


def test_updates_below_half_an_ulp_are_lost():
    """Steps of 1/4, 2^-9 and 2^-8 from 1, of which BF16 holds the first and the last; the fourth gradient is 0."""
    parameter = torch.nn.Parameter(torch.ones(4))
    parameter.grad = torch.tensor([-1.0, -(2.0**-7), 2.0**-6, 0.0])
    assert lost._updated(torch.optim.SGD([parameter], lr=1.0), 0.25) == 1 / 3
    assert parameter.tolist() == [1, 1, 1, 1]


def test_page_of_mptorch_shows_its_record(tmp_path, monkeypatch):
    monkeypatch.setattr(paper_tables, "RECORDS", tmp_path)
    (tmp_path / "mptorch.json").write_text(figures(mptorch, **MORE["mptorch"]).json())
    lines = list(paper_tables._networks())
    # The published row of four networks, then published and ours of LeNet5.
    rows = [line for line in lines if "e5m2*e5m2+e6m5.sr10" in line]
    assert [row.split(" | ")[3:7] for row in rows[:1]] == [["99.00", "90.55", "88.99", "80.88 |"]]
    assert [cell.strip() for cell in rows[1].split("|")][4:6] == ["99.00", "51.38"]
    assert "## Accuracy of trained networks" in lines
    assert "### Accuracy of LeNet5 in ten arithmetics" in lines
    assert any("2026-11-22" in line for line in lines)


def test_note_of_mptorch_has_the_figures_of_its_record():
    found = figures(mptorch, **MORE["mptorch"])
    note = "\n".join(mptorch.report(found).tables["mptorch-accuracy"].notes)
    assert "of 1,000 terms, has 5 % of its exact length, and with rn 90 %." in note
    assert f"with 3 times the learning rate it reaches {found.mean(mptorch.faster()):.2f} (one seed)" in note
    assert "97 % or more of the forward products of the last two layers" in note
    assert f", rz {found.mean(mptorch.normal(mptorch.PUBLISHED[8])):.2f}, ro " in note
    assert [mptorch.most_seeds(case) for case in (mptorch.faster(), mptorch.normal(mptorch.PUBLISHED[-1]))] == [1, 1]


@pytest.mark.slow
def test_truncated_sums_are_too_short():
    """The longest sums lose most, and few products in fxp4.4 are other than zero."""
    rows = mptorch.first_step()
    longest = max(rows, key=lambda row: row["terms"])
    assert (longest["terms"], longest["phase"]) == (64 * 28 * 28, "weight gradient")
    assert longest["rz"] < 0.2 < 0.8 < longest["rn"] < 1.1
    assert all(row["rz"] < 1 for row in rows)
    assert [row["zero"] > 95 for row in rows if row["phase"] == "forward"][-2:] == [True, True]
    assert len(rows) == 14


def test_segments_in_total_have_one_line_and_the_ends():
    for name, centre in (("tanh", 0), ("sigmoid", Fraction(1, 2))):
        three, two = (Segments.read(arbitor.total_text(name, count)).pieces for count in arbitor.TOTAL)
        assert [piece.slope == 0 for piece in three] == [True, False, True]
        assert [piece.slope == 0 for piece in two] == [False, True]
        assert [piece.intercept for piece in three] == [2 * centre - 1, centre, 1]


def test_equal_accuracies_have_the_same_rank():
    assert mptorch.ranks([5.0, None, 7.0, 5.0, 3.0]) == [2, None, 1, 2, 4]


@pytest.mark.slow
def test_report_of_trainings_takes_a_number_of_seeds(tmp_path, monkeypatch, halfulp):
    """The trainings of a tiny preset are in the record, and their progress is shown."""
    monkeypatch.setattr(mptorch, "PUBLISHED", mptorch.PUBLISHED[5:6])
    code, out, err = halfulp("report", "mptorch", "--quick", "--seeds", 2, "-o", tmp_path)
    assert code == 0, err
    found = Figures.load(tmp_path / "mptorch.json")
    assert (found.effort.seeds, found.command) == ((0, 1), "halfulp report mptorch --quick --seeds 2")
    assert [len(one) for one in found.values.values()] == [2]
    assert "mean over 2 seeds" in out


@pytest.mark.slow
@pytest.mark.sampled(6, 6)
# One that takes seconds is the first.
@pytest.mark.parametrize("name", sorted(REPORTS, key=lambda name: name != "fase"))
def test_whole_quick_report_runs(name, tmp_path, halfulp):
    code, _, err = halfulp("report", name, "--quick", "-o", tmp_path)
    assert code == 0, err


@pytest.mark.slow
def test_coarse_rounding_has_smaller_error(monkeypatch):
    monkeypatch.setattr(coarse, "LENGTHS", (64, 512))
    found = coarse.errors()
    steps, sums, chunks, once = (found[name] for name in (coarse.STEPS, coarse.SUMS, coarse.CHUNKS, coarse.ONCE))
    # Half a unit in the last place of bf16, for results of all magnitudes.
    assert all(2**-10 < one < 2**-8 for one in once)
    assert chunks[0] == once[0] < chunks[1] < sums[1]
    assert steps[1] > 8 * once[1]
    assert steps[0] > sums[0] > 2 * once[0]


def test_each_part_divides_the_error_by_2_to_the_9th(monkeypatch):
    for name, value in (("COUNT", 1 << 10), ("SIZE", 4), ("LENGTH", 32)):
        monkeypatch.setattr(parts, name, value)
    found = parts.errors()
    assert set(found) == set(parts.ROWS)
    for name in ("sum of two", "product of two"):
        one, two, three = found[f"{name}, {parts.SPLIT}"]
        assert 2**-10 < one < 2**-8
        assert two < one / 2**9
        assert three < two / 2**9
        # Operations of the parts lose up to 3 or 4 units in the last place of 16 bits.
        first, in_bf16, last = found[f"{name}, {parts.OPERATIONS}"]
        assert first is last is None
        assert two < in_bf16 < 2**-14
    for name in parts.ROWS[-2:]:
        one, two, three = found[name]
        assert three < two < one


@pytest.mark.slow
def test_training_of_esru_repeats_its_record():
    """The present version trains to the accuracies of the record."""
    case = esru.case("resnet", esru.PLATEAU, esru.INPUTS["16 bits"])
    record = Figures.load(TOP / "fpga" / "results" / "esru.json").values[case]
    assert trainings.train(case, Effort(seeds=(0,))) == record[:1]


def test_page_of_formats_has_errors_of_record():
    lines = (TOP / "docs" / "formats.md").read_text().splitlines()
    for name, row in Figures.load(TOP / "fpga" / "results" / "fase.json").more["parts"].items():
        cells = ("" if error is None else f"{error:.1e}" for error in row)
        assert f"| {' | '.join((name, *cells))} |" in lines


@pytest.mark.slow
def test_products_in_fp16_equal_numpy_steps():
    found = coarse.check()
    assert len(found) == 8
    for name, figures in found.items():
        if name.endswith(coarse.STEPS):
            assert figures == {"results that differ": 0, "largest difference": 0.0}
        else:
            assert figures["results that differ"] > 8_000
            assert figures["largest difference"] > 1e-3
    largest = {law: found[f"product, {law}, {coarse.ONCE}"]["largest difference"] for law in ("uniform", "log-uniform")}
    assert largest["log-uniform"] > 2 * largest["uniform"]


def test_mean_errors_of_low_bit_sources():
    """Three random bits: words are too small on average by 1/16 if numbers have more fraction bits, or too large."""
    found = esru.errors()
    beyond = {given: {name: errors[-2:] for name, errors in found[given].items()} for given in found}
    tiny = {given: {name: errors[:2] for name, errors in found[given].items()} for given in found}
    # Every number is rounded with whole periods of words, so that means are exact.
    for given in ("FP32", "16 bits"):
        assert beyond[given][esru.SHORT] == [0, 0]
        assert beyond[given][esru.PLATEAU] == [-1 / 16] * 2
        assert beyond[given][esru.NAIVE] == pytest.approx([7 / 15 - 1 / 2] * 2, rel=1e-12)
    assert beyond["11 bits"][esru.SHORT] == [1 / 16] * 2
    assert beyond["11 bits"][esru.PLATEAU] == beyond["11 bits"][esru.REPEATED] == [0, 0]
    # All eight bits of the discarded part count.
    assert beyond["16 bits"][esru.REPEATED] == [0, 0]
    # The mean of the tiny numbers is 2^-10, and all of them become zero in fixed point.
    assert tiny["16 bits"][esru.PLATEAU] == [-(2**-10), 2**-10]
    # One of 14 plateau words is zero, which does not carry numbers just below zero up to zero; a
    # mean, a difference and a product are rounded to binary64.
    up, down = tiny["FP32"][esru.PLATEAU]
    assert (up, 14 * (2**-10 - down)) == (-(2**-10), pytest.approx(1, rel=2**-48))


def test_report_shows_cases_that_were_not_trained_as_empty_cells():
    found = figures(arbitor, **MORE["arbitor"])
    wanted = [arbitor.posit_case(8, 2), arbitor.float_case(6, 1, "reductions in FP32", network="graph")]
    wanted += [
        arbitor.float_case(6, mantissa, "reductions in FP32", network="graph") for mantissa in arbitor.OTHERS[1:]
    ]
    for case in wanted:
        del found.values[case]
    tables = arbitor.report(found).tables
    assert tables["arbitor-posits"].frame["es = 2"].isna().tolist() == [True, False, False, False]
    assert list(tables["arbitor-lowest"].frame["reductions in FP32"])[2] == ""
    frame = tables["arbitor-networks"].frame
    assert frame[frame.network == "graph"].iloc[1].isna().sum() == 8
    assert "Empty cells of ours were not trained" in tables["arbitor-posits"].markdown()


@pytest.fixture
def small_report(monkeypatch):
    """Record of the whole report, the two cases that it then has, and those that are trained or measured."""
    before = figures(arbitor, **MORE["arbitor"])
    cases = [arbitor.optimizer_case(2, rounding) for rounding in list(arbitor.OPTIMIZERS)[:2]]
    trained = []

    def measure(cases, effort, command, date, *_, most_seeds, **more):
        trained.extend(cases)
        return Figures(command, date, {}, effort, {key: [75.0, 75.0] for key in cases}, more)

    monkeypatch.setattr(trainings, "measure", measure)
    monkeypatch.setattr(arbitor, "cases", lambda: cases)
    functions = {"changed": lambda: trained.append("changed"), "segments": lambda: SEGMENT_ERRORS}
    monkeypatch.setattr(arbitor, "measured", lambda **_: functions)
    return before, cases, trained


@pytest.mark.slow
def test_report_adds_cases_to_a_record(small_report, tmp_path, halfulp):
    """The record has another case and a figure, which stay; only new ones are trained and measured."""
    before, cases, trained = small_report
    new = cases[1]
    del before.values[new]
    del before.more["segments"]
    path = tmp_path / "before.json"
    path.write_text(before.json())
    code, _, err = halfulp("report", "arbitor", "--seeds", 2, "--add", path, "-o", tmp_path / "out")
    assert (code, trained) == (0, [new]), err
    found = Figures.load(tmp_path / "out" / "arbitor.json")
    assert found.values == before.values | {new: [75.0, 75.0]}
    assert found.more.items() >= MORE["arbitor"].items()
    assert found.notes[-1].startswith("Made by halfulp report")
    assert ", on 2026-11-22. 1 accuracies were added by halfulp report arbitor --seeds 2 --add" in found.notes[-1]


def test_report_adds_no_cases_of_other_seeds(small_report, tmp_path, halfulp):
    path = tmp_path / "before.json"
    path.write_text(small_report[0].json())
    code, _, err = halfulp("report", "arbitor", "--add", path, "--seeds", 3, "-o", tmp_path / "out")
    assert code == 2
    assert "other seeds" in err
    code, _, err = halfulp("report", "arbitor", "--add", tmp_path / "none.json", "-o", tmp_path / "out")
    assert (code, "none.json cannot be read" in err) == (2, True)


@pytest.mark.slow
def test_optimizer_of_few_bits_keeps_weights():
    """Nearest rounding of a step of the graph network changes few weights; FP32 changes all."""
    nearest, _, single = (trainings.changed(arbitor.optimizer_case(2, rounding)) for rounding in arbitor.OPTIMIZERS)
    assert nearest < 0.05
    assert single > 0.95
