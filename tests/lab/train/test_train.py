"""Training runs: data, table of results, and identical bits after stop, kill and resumption."""

import csv
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from fractions import Fraction
from functools import partial

import pytest
import torch

from halfulp.fpga.kernel import card, layers
from halfulp.fpga.kernel.host import Tile
from halfulp.fpga.match.networks import Gpt, lenet5, nanogpt, resnet20, resnet50, vgg16
from halfulp.fpga.report.study import _trained
from halfulp.golden.nn import Counts, Linear, MultiheadAttention, PiecewiseLinear, product
from halfulp.golden.nn.counts import KINDS
from halfulp.hdl.formats import parse
from halfulp.hdl.specs import MacSpec, Tiling
from halfulp.hdl.specs.pieces import Piece
from halfulp.hdl.specs.segments import Segments
from halfulp.lab.train import data as data_module
from halfulp.lab.train.data import mnist
from halfulp.lab.train.loop import Epoch, Interrupted, Plan, Run, read
from halfulp.lab.train.networks import NETWORKS
from halfulp.lab.train.results import append, row_of, rows
from halfulp.lab.train.texts import letters
from halfulp.lab.train.vision import Inception, MobileNetV2, alexnet, inception, resnet
from halfulp.tools.paths import build_root
from tests.fpga.kernel.test_card import install
from tests.lab.train.made import imagewoof, iwslt, ptb
from tests.training_runs import SR, bits, plan

# Only the last layer is converted, with stochastic rounding everywhere, so that a step is fast.
SMALL = f'mac = "fp32"\n[layers."11"]\nmac = "{SR}"\nweights = "sr3"\nupdate = "e5m9.sr8"\nmaster = true\n'
PROGRAM = [sys.executable, "-m", "halfulp"]


# Networks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "count"),
    [
        # torchvision's 11,689,512 and 21,797,672 parameters, without projections of shortcuts and with a 3 x 3 stem.
        (lambda: resnet(18, 1000), 11_689_512 - 172_032 - 1792 - 64 * 3 * 40),
        (lambda: resnet(34, 1000), 21_797_672 - 172_032 - 1792 - 64 * 3 * 40),
        (lambda: resnet(50, 1000), 25_557_032 - 64 * 3 * 40),
        (lambda: resnet(101, 1000), 44_549_160 - 64 * 3 * 40),
        (lambda: MobileNetV2(1000), 3_504_872),
    ],
)
def test_networks_of_small_images_have_the_published_parameters(build, count):
    assert sum(parameter.numel() for parameter in build().parameters()) == count


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
        # torchvision's 61,100,840 parameters.
        (partial(alexnet, 10), torch.zeros(2, 3, 224, 224), 61_100_840 - 4097 * 990),
    ],
)
def test_large_networks_have_published_sizes(build, inputs, count):
    with torch.device("meta"):
        network = build()
    assert sum(parameter.numel() for parameter in network.parameters()) == count
    assert network(inputs.to("meta")).shape == (2, 10)


def test_inception_blocks_have_published_sizes():
    """Ioffe and Szegedy, ICML 2015, figure 5: channels and pixels after each block."""
    with torch.device("meta"):
        network, sizes = inception(10), []
    for block in network:
        if isinstance(block, Inception):
            block.register_forward_hook(lambda block, given, result: sizes.append(tuple(result.shape[1:3])))
    assert network(torch.zeros(2, 3, 224, 224, device="meta")).shape == (2, 10)
    assert sizes == [(256, 28), (320, 28), *[(576, 14)] * 5, *[(1024, 7)] * 3]


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


LARGE = ("vgg16", "nanogpt", "resnet18", "resnet34", "resnet50", "resnet101", "mobilenetv2")
LARGE += ("resnet50-224", "alexnet", "inception", "lstm", "transformer")
"""Networks whose steps take seconds."""

LAYOUTS = dict.fromkeys(("resnet50-224", "alexnet", "inception"), partial(imagewoof, classes=2))
LAYOUTS |= {"lstm": partial(ptb, tests=40), "transformer": iwslt}
"""Functions that write tiny data for networks."""

IMAGES = (
    "images of 32 x 32 need --data with the folder cifar-10-batches-py or cifar-100-python; no package contains the "
    "images"
)


@pytest.mark.sampled(4, 2)
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in LARGE)) for name in NETWORKS])
def test_networks_train(name, tmp_path):
    """All networks train for some steps in torch's arithmetic."""
    if name in ("lenet5", "gru"):
        data = mnist(None).limited(256)
    elif NETWORKS[name].load is data_module.cifar:
        rng = torch.Generator().manual_seed(0)
        images, classes = torch.randn(16, 3, 32, 32, generator=rng), torch.arange(16) % 2
        images += 2 * classes[:, None, None, None]
        data = data_module.Data("made", (images, classes), (images, classes), 10, data_module._moved)
    elif name in LAYOUTS:
        data = NETWORKS[name].load(LAYOUTS[name](tmp_path / "data"))
    else:
        (tmp_path / "text").write_text("the letters of a text, " * 112)
        data = NETWORKS[name].load(tmp_path / "text")
    usual = NETWORKS[name]
    # The rates of published schedules are for thousands of steps with large batches.
    rate = min(usual.rate, 1e-3) if usual.epochs in (90, 200) else usual.rate
    run = Run(plan(name, "fp32", epochs=2 if name in LARGE else 5, batch=8, rate=rate), data, tmp_path / "run")
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


def test_run_moves_model_and_batches_to_its_device(tmp_path):
    moved = []

    class Layer(torch.nn.Linear):
        def to(self, device):
            moved.append(device)
            return self

        def forward(self, x):
            moved.append(x.device.type)
            return super().forward(x)

    data = data_module.Data("made", (torch.randn(4, 3), torch.zeros(4, 2)), (torch.randn(4, 3), torch.zeros(4, 2)), 0)
    network = replace(NETWORKS["lenet5"], build=lambda data: Layer(3, 2))
    # The layer stays on the CPU, which torch reports.
    with pytest.raises(RuntimeError, match="meta"):
        Run(plan("own", "fp32", device="meta"), data, tmp_path, network=network).train()
    assert moved == ["meta", "meta"]


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
    places = ["--policy", "small.toml", "-o", "runs", "--table", "results.csv"]
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
    places = ["-o", tmp_path, "--table", tmp_path / "results.csv"]
    code, out, err = halfulp("train", "lenet5", "--mac", "fp32", "--epochs", 2, "--limit", 400, *places)
    assert code == 0
    (row,) = rows(tmp_path / "results.csv")
    assert out == f"fp32, lenet5, seed 0: accuracy {float(row['accuracy']):.2f} %, loss {row['loss']}\n"
    assert "0      Conv2d  not swapped: its policy is fp32" in err
    assert err.count("halfulp: epoch ") == 2
    assert (row["train"], row["test"], row["epochs"], row["batch"], row["scale"]) == ("400", "100", "2", "64", "")
    assert row["data"] == "MNIST, 5,000 images"
    again = halfulp("train", "lenet5", "--mac", "fp32", "--epochs", 2, "--limit", 400, "--restart", *places)
    assert (again[0], again[1]) == (0, out)
    assert len(rows(tmp_path / "results.csv")) == 1


@pytest.mark.slow
def test_train_command_prints_and_records_counts(tmp_path, halfulp):
    words = ["--mac", SR, "--epochs", 1, "--limit", 8, "-o", tmp_path, "--table", tmp_path / "results.csv"]
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
        (["--mac", "e5m2"], "e5m2 is a format; a multiply-accumulate has three"),
        (["--mac", SR, "--policy", "none.toml"], "one of --mac and --policy"),
        (["--policy", "none.toml"], "none.toml cannot be read"),
        (["--mac", SR, "--resume", "--restart"], "--restart"),
        (["--mac", SR, "--resume", "-o", "nowhere"], "to resume"),
        (["--mac", SR, "--data", "nowhere"], "train-images-idx3-ubyte"),
        (["--mac", SR, "--table", "small.toml"], "small.toml has no column mac"),
        (["--mac", SR, "--layer", "11"], "invalid --layer '11': expected PATTERN=POLICY, such as '*norm*=fp32'"),
        (["--mac", SR, "--layer", "12=fp32"], "'12' matches no layer that can be swapped"),
        (["--mac", SR, "--layer", "*=fp32"], "invalid --layer '*=fp32': expected a pattern of some layers"),
        (["--mac", SR, "--layer", "11=fp32", "--layer", "11=bf16*bf16+fp32"], "--layer has two policies of '11'"),
        (["--policy", "small.toml", "--layer", "11=fp32"], "--layer has no effect with --policy"),
        (["--mac", SR, "--epochs", "0"], "--epochs"),
        (["--mac", SR, "--rate", "nan"], "nan is not finite"),
        (["--mac", SR, "--scale", "inf"], "inf is not finite"),
        (["--mac", "fp32", "--scale", "256"], "--scale"),
        (["--mac", f"{SR}, device=rtl", "--scheduler", "tls://127.0.0.1:1"], "do not have device rtl"),
        (["--mac", "fp32", "--device", "tpu"], "unknown device 'tpu'; expected cpu, cuda or cuda:N"),
        (["--mac", "fp32", "--device", "cuda"], "torch sees no GPU through CUDA, so there is no device cuda"),
        (["--mac", "fp32", "--static"], "--scale"),
        (["--mac", "fp32", "--counts"], "--counts"),
    ],
)
def test_train_command_rejects_bad_requests(more, keyword, tmp_path, halfulp, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    (tmp_path / "small.toml").write_text(SMALL)
    code, out, err = halfulp("train", "lenet5", "--limit", 4, *more)
    assert (code, out) == (2, "")
    assert err.startswith("halfulp: ")
    assert keyword in err


@pytest.mark.parametrize(("device", "module"), [("rtl", layers), ("card", card)])
def test_train_command_runs_products_on_device(device, module, tmp_path, halfulp, monkeypatch):
    """Products of the last layer run on kernels, forward and backward, with the bits of the golden model."""
    install(monkeypatch, tmp_path, Tile("gemm", 2, "e5m2*e5m2+e6m5.rn", Tiling(2, 2, 2)))
    calls = []

    def on_kernels(*given):
        calls.append(given)
        return (module.expected if device == "rtl" else module.product)(*given)

    monkeypatch.setitem(product.DEVICES, device, on_kernels)
    losses = []
    for line in ("", f'device = "{device}"\n'):
        (tmp_path / "policy.toml").write_text(
            f'mac = "fp32"\n[layers."11"]\nmac = "e5m2*e5m2+e6m5.rn"\nbias = "e5m2.rn"\n{line}'
        )
        words = ["--policy", tmp_path / "policy.toml", "--epochs", 1, "--batch", 4, "--limit", 8]
        code, out, err = halfulp("train", "lenet5", *words, "-o", tmp_path, "--table", tmp_path / "results.csv")
        assert code == 0, err
        losses.append(out.partition("accuracy")[2])
    assert losses[0] == losses[1]
    # Four products of two steps, with the gradient of the bias, and one of the test.
    assert len(calls) == 9
    assert f"device={device}" in rows(tmp_path / "results.csv")[-1]["policy"].replace('"', "").replace(" ", "")


@pytest.mark.parametrize(
    ("mac", "said"),
    [
        ("ufxp0.8*ufxp0.8+fxp8.8.rn", "ufxp0.8 has no 1"),
        (f"{SR}, device=card", "device card needs kernels: set HALFULP_CARD"),
        (f"{SR}, device=rtl", f"{SR} has stochastic rounding without a random source; device rtl needs one"),
    ],
)
def test_train_command_rejects_unsupported_arithmetic(mac, said, tmp_path, halfulp):
    code, out, err = halfulp("train", "lenet5", "--limit", 4, "--mac", mac, "-o", tmp_path)
    assert (code, out) == (2, "")
    assert err.splitlines()[-1].startswith(f"halfulp: {said}")


def test_train_command_rejects_unwritable_table(tmp_path, halfulp):
    (tmp_path / "file").touch()
    places = ["-o", tmp_path, "--table", tmp_path / "file" / "results.csv"]
    code, out, err = halfulp("train", "lenet5", "--mac", "fp32", "--limit", 4, *places)
    assert (code, out, err.count("\n")) == (3, "", 1)
    assert "results.csv could not be written: " in err


def test_train_command_rejects_missing_data(halfulp):
    for network, sentence in (
        ("resnet20", IMAGES),
        ("nanogpt", "transformers need --data with a text file"),
    ):
        assert halfulp("train", network, "--mac", SR) == (2, "", f"halfulp: {sentence}\n")
    code, _, err = halfulp("train", "resnet51", "--mac", SR)
    assert (code, "'resnet51'" in err) == (2, True)


def test_layers_have_policies_of_their_own(tmp_path, halfulp):
    places = ["-o", tmp_path, "--table", tmp_path / "results.csv"]
    words = [
        "--epochs",
        1,
        "--limit",
        4,
        "--batch",
        4,
        "--layer",
        "[0-9]=fp32",
        "--layer",
        "11 = fp32, weights=e5m2.rn",
    ]
    code, out, err = halfulp("train", "lenet5", "--mac", SR, *words, *places)
    assert code == 0, err
    (row,) = rows(tmp_path / "results.csv")
    assert row["policy"] == f"[0-9]: fp32; 11: fp32, weights=e5m2.rn; *: {SR}"
    assert (row["mac"], row["device"], row["perplexity"], row["BLEU"]) == ("mixed", "cpu", "", "")
    assert out.startswith("mixed, lenet5, seed 0: accuracy ")


@pytest.mark.parametrize("pattern", ["12", "aten.tanh", "11 @update aten.mm"])
def test_patterns_without_operations_are_refused(pattern, tmp_path, halfulp):
    words = ["--emulate", "--mac", "bf16*bf16+fp32.rn", "--epochs", 1, "--limit", 4, "-o", tmp_path]
    words += ["--table", tmp_path / "results.csv"]
    code, out, err = halfulp("train", "lenet5", *words, "--layer", "11 @forward=fp32", "--layer", f"{pattern}=fp32")
    assert (code, out) == (2, "")
    assert f"{pattern!r} selects no operation of a training step" in err
    assert not (tmp_path / "results.csv").exists()
    assert halfulp("train", "lenet5", *words, "--layer", "11 @forward=fp32")[0] == 0


@pytest.mark.parametrize("mac", ["int8*int8+int32.rn", "e5m2*e5m2+e6m5.rn, weights=fp64.rn"])
def test_run_rejects_formats_wider_than_network(mac, tmp_path):
    plan = Plan("lenet5", (("*", mac),), 0, 1, 8, 0.1)
    with pytest.raises(ValueError, match=r"torch\.float32 does not hold every number of (int32|fp64)"):
        Run(plan, NETWORKS["lenet5"].load(None).limited(8), tmp_path / "run")
    assert not (tmp_path / "run").exists()


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
