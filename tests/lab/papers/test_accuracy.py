"""Report of accuracy: networks compared with published ones, and dot products of trained layers."""

import csv
import json
import math
from fractions import Fraction

import pytest
import torch

from halfulp import golden
from halfulp.fpga.report import dots as dots_module
from halfulp.fpga.report.dots import Error, errors
from halfulp.fpga.report.study import Dots, Layer, read
from halfulp.hdl.specs import MacSpec
from halfulp.lab.papers import accuracy as accuracy_module
from halfulp.lab.papers.accuracy import (
    MACS,
    PUBLISHED,
    default_dots,
    measure,
    plot,
    tables,
    trained_layer,
    trained_with,
)
from halfulp.tools.plots import Curve, plot_curves

RN, SR = "e5m2*e5m2+e6m5.rn", "e5m2*e5m2+e6m5.sr10"
RUNS = """mac,network,accuracy,policy,data,train,test,epochs,batch,rate
fp32,lenet5,97,fp32,MNIST,40,10,2,64,0.02
e5m2*e5m2+e6m5.sr10,lenet5,50,e5m2*e5m2+e6m5.sr10,MNIST,40,10,1,64,0.02
e5m2*e5m2+e6m5.sr10,lenet5,96,e5m2*e5m2+e6m5.sr10,MNIST,40,10,2,64,0.02
e5m2*e5m2+e6m5.sr10,lenet5,98,e5m2*e5m2+e6m5.sr10,MNIST,40,10,2,64,0.02
e5m2*e5m2+e6m5.sr10,lenet5,20,"e5m2*e5m2+e6m5.sr10, weights=sr3",MNIST,40,10,2,64,0.02
mixed,lenet5,20,"0: fp32; *: e5m2*e5m2+e6m5.rn",MNIST,40,10,2,64,0.02
e5m2*e5m2+e6m5.rn,nanogpt,20,e5m2*e5m2+e6m5.rn,a,40,10,2,64,0.02
e5m2*e5m2+fp16.rn,lenet5,97,e5m2*e5m2+fp16.rn,MNIST,40,10,2,64,0.02
"""


@pytest.fixture
def halfulp(halfulp, monkeypatch, tmp_path):
    """Return a function that runs the program in an empty folder."""
    monkeypatch.setenv("HALFULP_BUILD", str(tmp_path / "build"))
    monkeypatch.chdir(tmp_path)
    return halfulp


@pytest.fixture
def layer(tmp_path):
    """Return the file of a layer of 5 inputs: 4 examples, 3 outputs."""
    path = tmp_path / "layer.pt"
    generator = torch.Generator().manual_seed(0)
    tensors = {"activations": (4, 5), "weights": (3, 5)}
    torch.save({name: torch.randn(shape, generator=generator) for name, shape in tensors.items()}, path)
    return path


def test_published_accuracies_match_papers():
    """Compare with the figures in papers.md, row by row."""
    assert [(row.accumulator, row.lenet5, row.resnet20) for row in PUBLISHED[:6]] == [
        ("e6m5 rz", 97.10, 10.00),
        ("e6m5 ro", 98.00, 10.00),
        ("e6m5 rn", 98.61, 10.00),
        ("e6m5 sr (10 bits)", 99.00, 90.55),
        ("fp16 rn", 99.05, 91.24),
        ("fp32 rn", 99.18, 91.91),
    ]
    assert [(row.multiplier, row.lenet5, row.vgg16) for row in PUBLISHED[6:]] == [
        ("fxp4.4 rn", 99.06, 10.00),
        ("fxp4.4 sr", 99.14, 10.00),
        ("fxp4.4 rz", 98.85, 10.00),
        ("fxp4.4 ro", 10.00, 10.00),
    ]
    assert [row.vgg16 for row in PUBLISHED[3:6]] == [88.99, 89.81, 90.67]
    assert [row.resnet50 for row in PUBLISHED[3:6]] == [80.88, 82.97, 82.92]
    assert [mac.expression for mac in MACS] == [row.mac for row in PUBLISHED if row.mac != "fp32"]
    # The accumulator holds sums of rounded products exactly, so that its rounding has no effect.
    assert [mac.terms.quantum for mac in MACS[5:]] == [-4] * 4


def test_runs_of_one_setting_are_averaged(tmp_path):
    (tmp_path / "runs.csv").write_text(RUNS)
    with (tmp_path / "runs.csv").open() as file:
        ours, settings, others = trained_with(list(csv.DictReader(file)))
    assert [(one.mac, one.mean, one.deviation, one.runs) for one in ours] == [
        ("fp32", 97, None, 1),
        (SR, 97, pytest.approx(2**0.5), 2),
        ("e5m2*e5m2+fp16.rn", 97, None, 1),
    ]
    assert list(settings) == ["lenet5"]
    assert "trained on 40 and tested on 10 examples (MNIST), 2 epochs, batch 64, rate 0.02." in settings["lenet5"]
    assert others == 4
    assert trained_with([]) == ([], {}, 0)


def test_runs_of_other_loss_scale_are_excluded():
    setting = {"network": "lenet5", "epochs": "2"}
    runs = [
        setting | {"mac": mac, "policy": mac, "accuracy": accuracy, "scale": scale}
        for mac, accuracy, scale in ((SR, "90", "256"), (SR, "50", "1 static"), (SR, "92", "256"), ("fp32", "95", ""))
    ]
    ours, settings, others = trained_with(runs)
    assert [(one.mac, one.mean, one.runs) for one in ours] == [(SR, 91, 2), ("fp32", 95, 1)]
    assert settings["lenet5"].endswith(", loss scale from 256.")
    assert others == 1


def test_trained_operands_are_slices_of_layer_sums(layer):
    activations, weights = dots_module.layer_of(layer)
    dots = Dots(distributions=("trained",), count=200, scale=2.0, trained=Layer.of(layer))
    a, b = (dots_module._drawn(dots, "trained", 12, side) for side in (0, 1))
    assert (a.shape, a.dtype) == ((200, 12), torch.float64)
    starts, pairs = set(), set()
    for x, w in zip((a / 2).tolist(), (b / 2).tolist(), strict=True):
        (first,) = {k for k in range(5) if x[0] in activations[:, k].tolist()}
        starts.add(first)
        place = 0
        while place < 12:
            k = (first + place) % 5
            length = min(5 - k, 12 - place)
            # One example and one output until the sum ends.
            (i,) = {i for i in range(4) if activations[i, k : k + length].tolist() == x[place : place + length]}
            (j,) = {j for j in range(3) if weights[j, k : k + length].tolist() == w[place : place + length]}
            pairs.add((i, j))
            place += length
    assert (starts, len(pairs)) == (set(range(5)), 12)


@pytest.mark.slow
def test_trained_layer_errors_match_scalar_model(layer, tmp_path, monkeypatch):
    monkeypatch.setenv("HALFULP_BUILD", str(tmp_path / "build"))
    dots = Dots(lengths=(8,), distributions=("trained",), count=6, trained=Layer.of(layer))
    mac = MacSpec.parse("e4m3*e4m3+e5m3.rz")
    ((error,),) = errors([mac], dots)
    a, b = (golden.encode(dots_module._drawn(dots, "trained", 8, side), fmt) for side, fmt in ((0, mac.a), (1, mac.b)))
    off, sums = [], []
    for x, y in zip(a.tolist(), b.tolist(), strict=True):
        sums.append(sum(Fraction(mac.a.decode(i)) * Fraction(mac.b.decode(j)) for i, j in zip(x, y, strict=True)))
        total = golden.gemm(torch.tensor([x]), torch.tensor([y]).mT, mac).item()
        off.append(mac.o.decode(total) - sums[-1])
    size, rms = (math.sqrt(sum(float(one) ** 2 for one in some) / 6) for some in (sums, off))
    assert error == Error("trained", 8, pytest.approx(rms / size), error.ulp, 0)
    assert error.ulp == pytest.approx(rms / float(dots_module.last_place(mac.o, Fraction(size))))
    # The cache entry depends on the layer.
    kept = list((tmp_path / "build" / "cache" / "dots").iterdir())
    assert errors([mac], dots) == [[error]]
    assert list((tmp_path / "build" / "cache" / "dots").iterdir()) == kept
    torch.save({"activations": torch.ones(4, 5), "weights": torch.ones(3, 5)}, layer)
    other = Dots(lengths=(8,), distributions=("trained",), count=6, trained=Layer.of(layer))
    assert errors([mac], other)[0][0].relative == 0


def test_study_accepts_trained_layer(layer, tmp_path):
    path = tmp_path / "study.toml"
    text = f'title = "t"\nmacs = ["{RN}"]\n[dots]\n'
    path.write_text(text + 'distributions = ["trained"]\ntrained = "layer.pt"\n')
    assert read(path).dots.trained == Layer.of(layer)
    for dots, sentence in (
        (
            'distributions = ["trained"]',
            "dots.distributions",
        ),
        ('trained = "layer.pt"', "dots.distributions"),
        ('distributions = ["trained"]\ntrained = "none.pt"', "none.pt cannot be read: No such file or directory"),
    ):
        path.write_text(text + dots)
        with pytest.raises(ValueError, match=sentence):
            read(path)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ({"activations": torch.ones(2, 3)}, "'weights'"),
        ({"activations": torch.ones(2, 3), "weights": torch.ones(2, 4)}, r"they are of shapes \(2, 3\) and \(2, 4\)"),
        ({"activations": torch.ones(0, 3), "weights": torch.ones(2, 3)}, r"they are of shapes \(0, 3\) and \(2, 3\)"),
        ({"activations": torch.full((2, 3), math.nan), "weights": torch.ones(2, 3)}, "not all of them are finite"),
    ],
)
def test_trained_layer_rejects_bad_files(content, sentence, tmp_path):
    path = tmp_path / "layer.pt"
    torch.save(content, path)
    with pytest.raises(ValueError, match="layer.pt has no tensors activations and weights.*: " + sentence):
        trained_layer(path)
    path.write_text("mac,network\n")
    with pytest.raises(ValueError, match=r"torch does not read it.*run of lenet5"):
        trained_layer(path)


@pytest.mark.slow
def test_trained_layer_loads_from_run(tmp_path, halfulp):
    places = ["-o", "runs", "--table", "runs.csv"]
    assert halfulp("train", "lenet5", "--mac", "fp32", "--epochs", 1, "--limit", 64, *places)[0] == 0
    (path,) = (tmp_path / "runs").glob("*/final.pt")
    layer, name = trained_layer(path)
    assert name == "the first fully connected layer of a LeNet5 (400 inputs), trained in fp32"
    activations, weights = dots_module.layer_of(layer.path)
    state = torch.load(path, weights_only=True)["model"]
    assert activations.shape == (1000, 400)
    assert torch.equal(weights, state["7.weight"])
    # Rectified values after pooling are not negative.
    assert activations.min() == 0
    assert len(activations.unique()) > 1000


@pytest.mark.slow
def test_accuracy_command_writes_report(tmp_path, layer, halfulp, monkeypatch):
    monkeypatch.setattr(accuracy_module, "LENGTHS", (16, 64))
    (tmp_path / "runs.csv").write_text(RUNS)
    words = ["report", "accuracy", "--mac", RN, "--mac", SR, "--count", 3, "--trained", "layer.pt", "-o", "out"]
    code, out, err = halfulp(*words, "--results", "runs.csv")
    assert code == 0
    stems = [f"accuracy-{stem}.{ending}" for stem in ("networks", "dots") for ending in ("md", "csv", "tex")]
    names = ["accuracy.json", *stems, "accuracy-dots.svg", "accuracy-dots.pdf"]
    assert err == "".join(f"halfulp: wrote out/{name}\n" for name in names)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(names)
    assert out == "\n".join((tmp_path / "out" / f"accuracy-{stem}.md").read_text() for stem in ("networks", "dots"))
    with (tmp_path / "out" / "accuracy-networks.csv").open() as file:
        found = {row["MAC"]: row for row in csv.DictReader(file)}
    assert found[SR]["lenet5 published"] == "99.0"
    assert (found[SR]["lenet5 ours"], found[SR]["lenet5 runs"]) == ("97.0", "2.0")
    assert found[RN]["lenet5 ours"] == ""
    assert len(found) == len(PUBLISHED)
    assert "not shown: 4.\n" in out
    with (tmp_path / "out" / "accuracy-dots.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["operands"], row["length"]) for row in rows[:6]] == [
        (name, str(length)) for name in ("normal", "positive", "trained") for length in (16, 64)
    ]
    assert len(rows) == 12
    record = json.loads((tmp_path / "out" / "accuracy.json").read_text())
    assert record["errors"][RN][0]["relative"] == float(rows[0]["error"])
    assert "Made by halfulp report accuracy --mac " in (tmp_path / "out" / "accuracy-dots.svg").read_text()
    # A repeated run writes the same bytes.
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert halfulp(*words, "--results", "runs.csv")[1] == out
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before


def test_plot_curves_leaves_gaps_for_missing_numbers():
    x, kind = [1, 2, 4], ("float", "rn")
    figure = plot_curves(
        [[("one", [Curve("a", kind, x, [0.5, None, 2.0]), Curve("b", kind, x, [math.inf, 0.0, 1.0])])]],
        title="Errors",
        xlabel="length",
        labels=["error"],
    )
    (axis,) = figure.axes
    assert [line.get_ydata().tolist() for line in axis.lines] == [
        [0.5, pytest.approx(math.nan, nan_ok=True), 2.0],
        [pytest.approx(math.nan, nan_ok=True)] * 2 + [1.0],
    ]
    assert (axis.get_xscale(), axis.get_yscale(), axis.get_title()) == ("log", "log", "one")
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a", "b"]


def test_accuracy_plot_styles_are_distinct(layer):
    dots = Dots(lengths=(4, 8), distributions=("normal",), count=2)
    found = [Error("normal", length, 0.1, 1.0, 0) for length in (4, 8)]
    report = accuracy_module.Figures("c", {"halfulp": "0"}, [], {}, 0, dots, "it", dict.fromkeys(map(str, MACS), found))
    lines = plot(report).axes[0].lines
    assert len({(line.get_color(), line.get_linestyle(), line.get_marker()) for line in lines}) == len(MACS) == 9
    assert any("no training runs yet" in note for note in tables(report)["accuracy-networks"].notes)


@pytest.mark.slow
def test_accuracy_report_handles_infinite_errors(layer, tmp_path, monkeypatch):
    monkeypatch.setenv("HALFULP_BUILD", str(tmp_path / "build"))
    dots = default_dots(2, Layer.of(layer))
    assert dots.lengths == (16, 64, 256, 1024, 4096)
    dots = Dots(lengths=(64,), distributions=("normal",), count=8, scale=100.0)
    report = measure([MacSpec.parse("e5m2*e5m2+e4m2.rn")], [], dots, "it", "halfulp report accuracy")
    frame = tables(report)["accuracy-dots"].frame
    assert frame["error"].tolist() == [math.inf]
    assert frame["not finite"].item() > 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--mac", "e5m2"], "e5m2 is a format"),
        (["--results", "none.csv"], "none.csv cannot be read: No such file or directory"),
        (["--trained", "none.pt"], "none.pt has no tensors activations and weights"),
        (["--count", "0"], "Invalid value for '--count': 0 is not in the range 1<=x<=4096."),
    ],
)
def test_accuracy_command_rejects_bad_requests(words, sentence, halfulp):
    code, out, err = halfulp("report", "accuracy", *words)
    assert (code, out) == (2, "")
    assert err.startswith(f"halfulp: {sentence}")
