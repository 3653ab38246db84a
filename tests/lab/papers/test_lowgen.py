"""A number type from two casts: its bits, its report and its page."""

import pytest
import torch

from halfulp import golden
from halfulp.fpga.match.networks import resnet50
from halfulp.lab.papers import forward, lowgen, paper_tables
from halfulp.lab.papers.trainings import Figures


def test_two_functions_are_bf16():
    codes = torch.arange(1 << 16)
    numbers = golden.decode(codes, "bf16")
    finite = numbers[numbers.isfinite()]
    halves = torch.cat([finite, (finite[:-1] + finite[1:]) / 2])
    # Numbers next to middles round to the nearer neighbour, although float32 does not hold them.
    near = torch.cat([halves, halves * (1 + 2**-40), halves * (1 - 2**-40), torch.tensor([torch.inf, -torch.inf])])
    assert torch.equal(lowgen.from_real(near), golden.encode(near, "bf16"))
    assert torch.equal(lowgen.to_real(codes).double().nan_to_num(), numbers.nan_to_num())
    assert golden.decode(lowgen.from_real(torch.tensor([torch.nan]).double()), "bf16").isnan()


def test_peak_counts_what_lives_at_once():
    def run(count=1 << 18):
        first = torch.zeros(count)
        second = first + 1
        del first
        return second + 1

    # Two of three tensors of one MiB live at the same time.
    assert 2 << 20 <= lowgen.peak(run) < 2.1 * (1 << 20)


def test_networks_concatenate_what_the_published_ones_do():
    image = torch.randn(2, 3, 64, 64)
    shapes = {
        "ResNet-50": (2, 10),
        "Inception": (2, 10),
        "SSD": (2, 4 * (256 + 64 + 16 + 4), 25),
        "U-Net": (2, 2, 64, 64),
    }
    assert lowgen.networks()["ResNet-50"] is resnet50
    for name, build in lowgen.networks().items():
        with torch.no_grad():
            assert build().eval()(image).shape == shapes[name], name
    shares = forward.SmallDetector().eval()(image)[..., :21].sum(-1)
    # 20 additions in each of the two sums, a quotient and a product, each rounded to 2^-24 of 1.
    assert (shares - 1).abs().max() <= 42 * 2**-24


def test_own_type_has_no_more_lines_than_the_published_one():
    assert 10 < lowgen.LINES <= 30


def test_times_refuse_other_bits(monkeypatch):
    monkeypatch.setitem(lowgen.LEVELS, "own", ("e8m6", "native"))
    with pytest.raises(AssertionError, match="other results"):
        lowgen.times(lambda: torch.ones(2, 2) * 1.01 @ torch.ones(2, 2), 1)


@pytest.mark.slow
def test_quick_report_writes_record_and_tables(tmp_path, monkeypatch, halfulp):
    monkeypatch.setattr(lowgen, "SIDE", 32)
    code, out, err = halfulp("report", "lowgen", "--quick", "-o", tmp_path)
    assert code == 0, err
    found = Figures.load(tmp_path / "lowgen.json")
    assert found.command == "halfulp report lowgen --quick"
    assert set(found.more["times"]["SSD"]) == set(lowgen.LEVELS)
    counts = found.more["graphs"]["SSD"]
    assert 0 < counts["left out"] < counts["roundings"]
    assert min(counts["kernels"], counts["KiB"], *found.more["memory"]["SSD"].values()) > 0
    assert "| SSD, published " in out


def test_page_shows_the_record(tmp_path, monkeypatch):
    record = Figures.load(paper_tables.RECORDS / "lowgen.json")
    assert set(record.more["times"]) == set(lowgen.COUNTERPARTS.values())
    record.more["times"]["SSD"] = {"float": 0.5, "scalar": 20.0, "vector": 10.0, "own": 45.0}
    record.more["memory"]["U-Net"]["graphs"] = 12_345_678
    (tmp_path / "lowgen.json").write_text(record.json())
    monkeypatch.setattr(paper_tables, "RECORDS", tmp_path)
    cells = [[cell.strip() for cell in line.split("|")] for line in paper_tables._lowgen()]
    assert ["", "SSD", "301.7", "25.4", "3.1", "SSD", "500.0", "40.0", "20.0", "90.0", ""] in cells
    counts = record.more["graphs"]["U-Net"]
    start = ["U-Net", str(counts["roundings"]), str(counts["left out"])]
    assert any(row[1:4] == start and row[-2] == "12.35" for row in cells)
