"""Training of networks of users, and of their whole programs."""

import json
import sys

import pytest
import torch

from halfulp.fpga.report.study import _trained
from halfulp.lab.train.loop import Run, read
from halfulp.lab.train.results import rows
from halfulp.lab.train.user import network as user_network
from tests.training_runs import SR, bits, plan

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
    code, out, err = halfulp("train", *words, "-o", "runs", "--table", "results.csv")
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


OWN = """
from halfulp import golden
from user_networks import small

golden.register_format("of_user", 8, lambda x: golden.encode(x, "e5m2"), lambda codes: golden.decode(codes, "e5m2"))
golden.register_operator("of_user", lambda x, y: x, "bf16", "bf16")
"""


def test_train_command_has_formats_and_operators_of_the_file(user, halfulp):
    """The rows of other units are no hindrance to a study."""
    (user / "own.py").write_text(OWN)
    macs = "custom:of_user*custom:of_user+fp32.rn", "bf16*bf16+fp32.rn, multiplier=of_user", "h100.wgmma.e4m3", SR
    words = [word for mac in macs for word in ("--mac", mac)]
    out, _ = trained(halfulp, "own.py:small", *words, "--epochs", 1)
    assert [line.partition(", own.py")[0] for line in out.splitlines()] == [macs[0], "bf16*bf16+fp32.rn", *macs[2:]]
    first, *others = rows(user / "results.csv")
    assert [first["mac"], *(row["policy"] for row in others)] == [*macs]
    assert [getattr(run.mac, "expression", run.mac) for run in _trained(user / "results.csv")][2:] == [*macs[2:]]


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
