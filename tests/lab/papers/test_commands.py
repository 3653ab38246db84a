"""Commands for the cells of published tables: each one parses, reads its data and builds its network."""

import re
import shlex

import pytest

from halfulp.lab.papers import accuracy, commands, fase
from halfulp.lab.train import loop
from halfulp.lab.train.results import rows
from tests.lab.train.made import published

FASE, MPTORCH = list(commands.of_fase()), list(commands.of_mptorch())
EVERY = [command for _, command in (*MPTORCH, *FASE)]


def words_of(command):
    """Return the words of a command after `halfulp`, for a machine without a GPU."""
    program, *words = shlex.split(command)
    assert program == "halfulp"
    place = words.index("--device")
    assert words[place + 1] == "cuda"
    return [*words[:place], *words[place + 2 :]]


def test_every_cell_of_the_tables_has_a_command():
    counts = {name: sum(other == name for other, _ in MPTORCH) for name, _ in MPTORCH}
    assert counts == dict.fromkeys(accuracy.NETWORKS.values(), 10) | {commands.FIGURE: 3}
    cells = [name for name, row in fase.PUBLISHED.items() for figure in row if figure is not None]
    assert [name for name, _ in FASE] == cells
    assert len(set(EVERY)) == len(EVERY) == 77
    assert sum("--layer 'aten.*batch_norm*=fp32'" in command for command in EVERY) == 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("published")
    published(place)
    return place


@pytest.mark.sampled(8)
@pytest.mark.parametrize("command", EVERY)
def test_command_starts(command, folder, tmp_path, monkeypatch, halfulp):
    """The run is built with its data, its network and its policies, and its first step is left out."""
    started = []

    def train(run, *_, **__):
        started.append(run)
        run.epochs = [loop.Epoch(1, 2.0, 1.5, 50.0, 3.0)]

    monkeypatch.setattr(loop.Run, "train", train)
    monkeypatch.chdir(folder)
    code, _, err = halfulp(*words_of(command), "-o", tmp_path, "--table", tmp_path / "results.csv")
    assert code == 0, err
    (run,) = started
    name = words_of(command)[1]
    (row,) = rows(tmp_path / "results.csv")
    assert (row["network"].removesuffix(", emulated"), row["epochs"]) == (name, str(run.network.epochs))
    assert ("--emulate" in command) == run.plan.emulate
    if run.conversion is not None and run.scaler is not None:
        assert run.conversion.swapped


NETWORKS = {shlex.split(command)[2]: command for command in EVERY if command.endswith("--mac fp32")}


@pytest.mark.slow
@pytest.mark.sampled(5, 1)
@pytest.mark.parametrize("name", NETWORKS)
def test_network_of_command_trains(name, folder, tmp_path, monkeypatch, halfulp):
    monkeypatch.chdir(folder)
    effort = ["--epochs", 1, "--limit", 2, "--batch", 2, "-o", tmp_path, "--table", tmp_path / "results.csv"]
    code, out, err = halfulp(*words_of(NETWORKS[name]), *effort)
    assert code == 0, err
    result = {"lstm": "perplexity", "nanogpt": "perplexity", "transformer": "BLEU"}.get(name, "accuracy")
    assert re.fullmatch(rf"fp32, {name}, seed 0: accuracy \S+ %, ({result} \S+, )?loss \S+\n", out)
    assert result in out
