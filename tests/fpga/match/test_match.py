"""`halfulp match`: the fastest arrays for a network, as a table, files and a plot."""

import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pandas as pd
import pytest
from click.testing import CliRunner

from halfulp.boards.board import Resources
from halfulp.boards.catalogue import BOARDS
from halfulp.fpga.kernel.arrays import array, kernel, with_source
from halfulp.fpga.kernel.cost_model import SMALL, CostModel
from halfulp.fpga.kernel.layout import entry_bytes
from halfulp.fpga.kernel.timing import Memory, Timing
from halfulp.fpga.match.cli import match
from halfulp.fpga.match.performance import Exact, Published, Total, total
from halfulp.fpga.match.products import Gemm
from halfulp.fpga.match.published import clocks
from halfulp.fpga.match.search import SIZES, Option, fastest, published, searched
from halfulp.fpga.match.workload import EXAMPLES, workload
from halfulp.hdl.specs import Build, MacSpec

U55C = BOARDS["u55c"]
MAC = MacSpec.parse("e5m2*e5m2+e6m5.sr10")


def matched(*words):
    answer = CliRunner().invoke(match, [*map(str, words)])
    return answer.exit_code, answer.output


@pytest.mark.slow
def test_match_finds_published_arrays_for_lenet5(tmp_path):
    code, out = matched("lenet5", "--model", "published", "-o", tmp_path)
    assert code == 0, out
    assert "- Fastest: N = 8, M = 8, C = 5 at 299.8 MHz, 16.177 ms for a training step of lenet5, batch 64 (14 " in out
    # The files contain all printed values, with every digit in the CSV.
    assert (tmp_path / "match-lenet5-u55c.md").read_text() in out
    frame = pd.read_csv(tmp_path / "match-lenet5-u55c.csv")
    assert len(frame) == len(clocks())
    assert frame["step ms"].is_monotonic_increasing
    first = frame.iloc[0]
    load = workload("lenet5")
    assert first["step ms"] == pytest.approx(1e3 * total(Published(8, 8, 5, 299.8), load.gemms).seconds)
    assert first["used %"] == pytest.approx(100 * total_macs(load) / (first["step ms"] * 299.8e3 * 320))
    assert (tmp_path / "match-lenet5-u55c.svg").read_text().count("<use ") > 10
    assert "booktabs" in (tmp_path / "match-lenet5-u55c.tex").read_text()
    assert (tmp_path / "match-lenet5-u55c.pdf").read_bytes().startswith(b"%PDF")


def total_macs(load):
    return sum(gemm.macs for gemm in load.gemms)


def test_search_takes_arrays_that_fit():
    load = workload("lenet5", batch=1, training=False)
    assert [gemm.phase for gemm in load.gemms] == ["forward"] * 5
    assert load.text == "inference of lenet5, batch 1"
    assert {option.cores for option in published(U55C, load, MAC)[0]} == set(range(1, 11))
    # A board with ports for four cores and half the tables; an array that takes 62 % of them does not fit.
    memory = replace(U55C.memory, banks=12, slrs=())
    half = replace(U55C.target, lut=U55C.target.lut // 2)
    slrs = (replace(U55C.slrs[0], lut=half.lut), *(replace(slr, lut=0) for slr in U55C.slrs[1:]))
    found, _ = published(replace(U55C, memories=(memory,), target=half, slrs=slrs), load, MAC)
    assert {(option.n, option.m, option.cores) for option in found} == {(8, 8, cores) for cores in range(1, 5)}
    with pytest.raises(ValueError, match="ports for 0 cores"):
        published(replace(U55C, memories=(replace(memory, banks=2),)), load, MAC)


# The arrays of this library ------------------------------------------------------------------------------------------

COST_MODEL = CostModel(
    {(n, m): Resources(lut=100 + 200 * n * m, ff=10 * n * m, dsp=0, bram=0, uram=0) for n, m in SMALL}, "the test"
)
LFSR = with_source(MAC)


def core_of(n, m, cores, mhz, stages=0):
    """Return the timing of a core on the memory of a U55C."""
    latency, rate = U55C.beats(mhz, 2 * cores)
    return Timing.of(kernel(LFSR, n, m, build=Build(stages)), Memory(latency, latency, rate))


@pytest.fixture
def known(monkeypatch):
    """Set the costs of arrays without synthesis."""
    monkeypatch.setattr("halfulp.fpga.match.search.cores_cost_model", lambda mac, target, progress, pool: COST_MODEL)


@pytest.mark.slow
def test_match_command_writes_search_results(known, tmp_path, monkeypatch):
    monkeypatch.setattr("halfulp.fpga.match.search.SIZES", (1, 4, 16))
    code, out = matched("lenet5", "--batch", 2, "-o", tmp_path)
    assert code == 0, out
    frame = pd.read_csv(tmp_path / "match-lenet5-u55c.csv")
    # On the Pareto front, a faster option is larger.
    assert frame["step ms"].is_monotonic_increasing
    assert frame["LUT %"].is_monotonic_decreasing
    load = workload("lenet5", 2)
    first = frame.iloc[0]
    n, m, cores = (int(first[name]) for name in "NMC")
    model = Exact(core_of(n, m, cores, first["MHz"]), cores, first["MHz"])
    assert first["step ms"] == pytest.approx(1e3 * total(model, load.gemms).seconds)
    assert first["LUT %"] == pytest.approx(100 * cores * (100 + 200 * n * m) / U55C.target.lut)
    assert f"Multiply-accumulates: {LFSR.expression}." in out
    assert matched("lenet5", "--batch", 2, "--clock", 100, "-o", tmp_path)[1].count(" 100.0 |") > 1


@pytest.mark.slow
def test_search_matches_brute_force(known, monkeypatch):
    """Try all sizes and numbers of cores one by one."""
    monkeypatch.setattr("halfulp.fpga.match.search.SIZES", SIZES[:4])
    load = workload("lenet5", batch=1, training=False)
    found, _ = searched(U55C, load, MAC, clock=100)
    # One register stage meets this clock.
    model = {
        (n, m, cores): total(Exact(core_of(n, m, cores, 100, 1), cores, 100), load.gemms).seconds
        for n in SIZES[:4]
        for m in SIZES[:4]
        for cores in range(1, 11)
    }
    assert fastest(found).total.seconds == min(model.values())
    for option in found:
        assert option.total.seconds == model[option.n, option.m, option.cores]
        assert option.total.seconds == min(model[option.n, option.m, cores] for cores in range(1, 11))


@pytest.mark.slow
def test_search_for_a_clock_takes_the_stages_that_meet_it(known, monkeypatch):
    monkeypatch.setattr("halfulp.fpga.match.search.SIZES", (2,))
    load = workload("lenet5", batch=1, training=False)
    (found,), notes = searched(U55C, load, MAC, clock=300)
    stages = array(LFSR, 1, 1, build=Build(clock=300, target="xcup")).stages
    assert stages > 0
    with_stages, without = (
        total(Exact(core_of(2, 2, found.cores, 300, count), found.cores, 300), load.gemms) for count in (stages, 0)
    )
    assert found.total == with_stages
    assert found.total.seconds > without.seconds
    assert f"MHz: as requested. Multiply-accumulates have {stages} register stages, as few as meet it" in notes[-1]


def test_match_rejects_clocks_above_that_of_the_device(known):
    code, out = matched("lenet5", "--clock", 776)
    assert (code, "the clock network of u55c supports 1 to 775 MHz" in out) == (2, True)


def test_search_takes_no_array_with_blocks_below_the_clock(monkeypatch):
    """Arrays of 8 elements have block memories here."""
    costs = {(n, m): Resources(lut=100, ff=0, dsp=0, bram=int(n > 2), uram=0) for n, m in SMALL}
    monkeypatch.setattr("halfulp.fpga.match.search.cores_cost_model", lambda *_: CostModel(costs, "the test"))
    monkeypatch.setattr("halfulp.fpga.match.search.SIZES", (2, 8))
    monkeypatch.setattr("halfulp.fpga.match.search.array", lambda *_, **__: SimpleNamespace(part_build=Build()))
    load = workload("lenet5", batch=1, training=False)
    for clock, sizes in ((738, {2, 8}), (739, {2})):
        monkeypatch.setattr("halfulp.fpga.match.search.undominated", lambda points: [True] * len(points))
        assert {option.n for option in searched(U55C, load, MAC, clock=clock)[0]} == sizes


def test_with_source_adds_lfsr_to_stochastic_mac():
    assert str(LFSR) == "mac e5m2*e5m2+e6m5.sr10@lfsr16"
    assert str(with_source(MacSpec.parse("e5m2*e5m2+e6m5.sr20"))) == "mac e5m2*e5m2+e6m5.sr20@lfsr20"
    for text in ("e5m2*e5m2+e6m5.rn", "e5m2*e5m2+e6m5.sr3@plateau3"):
        assert with_source(MacSpec.parse(text)).expression == text


def test_match_reports_board_without_room(known, monkeypatch):
    load = workload("lenet5", batch=1, training=False)
    large = CostModel({size: Resources(lut=10**7, ff=0, dsp=0, bram=0, uram=0) for size in SMALL}, "the test")
    monkeypatch.setattr("halfulp.fpga.match.search.cores_cost_model", lambda mac, target, progress, pool: large)
    with pytest.raises(ValueError, match="no room for one core"):
        searched(U55C, load, MAC)


def test_fastest_prefers_smallest_option_in_ties():
    same = Total(seconds=1.0, transfer=0.0, macs=1)
    options = [Option(8, 8, 2, 100.0, None, same), Option(8, 8, 1, 100.0, None, same), Option(1, 1, 1, 9.0, None, same)]
    assert fastest(options) == options[2]


def test_elements_have_whole_bytes():
    widths = {"e5m2*e5m2+e6m5.rn": 8, "bf16*e5m2+fp32.rn": 16, "fp32*fp32+fp32.rn": 32}
    assert {text: 8 * entry_bytes(MacSpec.parse(text), "a") for text in widths} == widths
    load = workload("lenet5", batch=1)
    narrow, wide = (
        published(U55C, load, MacSpec.parse(text))[0] for text in ("e5m2*e5m2+e6m5.rn", "fp32*fp32+fp32.rn")
    )
    assert narrow[0].total.transfer < wide[0].total.transfer


@pytest.mark.parametrize("name", EXAMPLES)
def test_workload_accepts_known_networks(name):
    assert workload(name, batch=2).gemms


@pytest.mark.slow
def test_workload_imports_user_network(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine_for_match.py").write_text(
        "import torch\n"
        "def model():\n    return torch.nn.Linear(5, 3), torch.zeros(7, 5)\n"
        "class Pair(torch.nn.Module):\n    def forward(self, x, y):\n        return x @ y\n"
        "def pair():\n    return Pair(), (torch.zeros(7, 5, requires_grad=True), torch.zeros(5, 4))\n"
        "class Named(torch.nn.Module):\n    def forward(self, *, left, right):\n        return left @ right\n"
        "def named():\n    return Named(), {'left': torch.zeros(7, 5), 'right': torch.zeros(5, 4)}\n"
        "def nothing():\n    return None\n"
        "def wrong():\n    return Named(), {'middle': torch.zeros(7, 5)}\n"
        "number = 1\n"
        "def fails():\n    raise RuntimeError('no weights here')\n"
    )
    load = workload("mine_for_match:model")
    assert [(gemm.n, gemm.k, gemm.m) for gemm in load.gemms] in ([(7, 5, 3), (5, 7, 3)], [(7, 5, 3), (3, 7, 5)])
    assert workload("mine_for_match:pair", training=False).gemms == [Gemm(7, 5, 4)]
    assert workload("mine_for_match:named", training=False).gemms == [Gemm(7, 5, 4)]
    assert (
        "training step of mine_for_match:model (2 products"
        in matched("mine_for_match:model", "--model", "published", "-o", tmp_path / "out")[1]
    )
    assert (tmp_path / "out" / "match-mine_for_match-model-u55c.md").is_file()
    for function, sentence in (
        ("nothing", "not a function"),
        ("number", "not a function"),
        ("other", "no attribute 'other'"),
        ("wrong", "cannot be traced"),
        ("fails", "no weights here"),
    ):
        code, said = matched(f"mine_for_match:{function}")
        assert code == 2
        assert sentence in said


@pytest.mark.parametrize(
    ("words", "keyword"),
    [
        ("vgg19", "vgg19"),
        ("nowhere:model", "imported"),
        ("lenet5 --board u50", "u50"),
        ("lenet5 --mac e5m2", "e5m2 is a format"),
        ("lenet5 --clock 0", "clock"),
        (
            "lenet5 --model published --clock 100",
            "published",
        ),
        ("lenet5 --batch 0", "batch"),
        ("a:b --batch 2", "--batch"),
    ],
)
def test_match_rejects_bad_requests(words, keyword, tmp_path):
    code, said = matched(*words.split(), "-o", tmp_path)
    assert code == 2
    assert keyword in said


def test_match_is_a_command_of_halfulp():
    answer = subprocess.run([sys.executable, "-m", "halfulp", "match", "--help"], capture_output=True, text=True)
    assert answer.returncode == 0
    assert "NETWORK is lenet5, vgg16, resnet20, resnet50, gru, nanogpt, smallgpt" in " ".join(answer.stdout.split())
