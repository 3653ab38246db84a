"""Random words of layers: in evaluation, in several processes, and in loaded states."""

import itertools
import subprocess
import sys

import pytest
import torch
from torch import nn as tnn

from halfulp.golden import nn
from tests.layers_by_hand import E5M2, SEED, SR, network, normal


@pytest.mark.slow
@pytest.mark.parametrize(("evaluation", "equal"), [("repeat", False), ("freeze", True), ("continue", False)])
def test_evaluation_uses_chosen_random_words(evaluation, equal):
    model = nn.convert(tnn.Linear(64, 64), SR, evaluation=evaluation).model
    x = normal(8, 64)
    trained = [model(x).detach() for _ in range(2)]
    first, second = ([model.eval()(x).detach(), model(x).detach()] for _ in range(2))
    assert torch.equal(first[0], first[1]) is equal
    assert torch.equal(first[0], second[0]) is (evaluation != "continue")
    assert torch.equal(first[1], second[1]) is (evaluation != "continue")
    assert not any(torch.equal(one, first[0]) for one in trained)
    assert model.rounding_state[1] == (6 if evaluation == "continue" else 2)


@pytest.mark.slow
def test_ranks_have_different_random_words(monkeypatch):
    x, found = normal(8, 64), []
    for rank in (0, 1, 2):
        monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
        monkeypatch.setattr(torch.distributed, "get_rank", lambda rank=rank: rank)
        torch.manual_seed(0)
        found.append(nn.Linear(64, 64, policy=SR, seed=SEED)(x).detach())
    assert not any(torch.equal(one, other) for one, other in itertools.combinations(found, 2))


RANK = """
import sys
import torch
from halfulp.golden import nn

rank, folder = int(sys.argv[1]), sys.argv[2]
torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(nn.convert(torch.nn.Linear(64, 8), sys.argv[3], seed=1).model)
x = torch.randn(16, 64)
results = []
for _ in range(2):
    results.append(model(x))
    results[-1].square().sum().backward()
torch.save([*(one.detach() for one in results), *(one.grad for one in model.parameters())], f"{folder}/{rank}.pt")
torch.distributed.destroy_process_group()
"""


@pytest.mark.slow
def test_ranks_of_two_processes_repeat_random_words(tmp_path):
    found = []
    for run in map(str, range(2)):
        (tmp_path / run).mkdir()
        ranks = [subprocess.Popen([sys.executable, "-c", RANK, rank, str(tmp_path / run), SR]) for rank in "01"]
        assert [rank.wait() for rank in ranks] == [0, 0]
        found.append([torch.load(tmp_path / run / f"{rank}.pt") for rank in "01"])
    for one, again in zip(itertools.chain(*found[0]), itertools.chain(*found[1]), strict=True):
        assert torch.equal(one, again)
    (first, second, *gradients), (other, _, *others) = found[0]
    assert not torch.equal(first, other)
    assert not torch.equal(first, second)
    assert all(torch.equal(one, of_other) for one, of_other in zip(gradients, others, strict=True))


def test_stochastic_state_loads_into_rn_model_with_warning():
    state = nn.convert(network(), SR).model.state_dict()
    rn = nn.convert(network(), E5M2).model
    with pytest.warns(RuntimeWarning, match="stochastic") as warned:
        rn.load_state_dict(state)
    assert len({str(one.message) for one in warned}) == 1
    assert torch.equal(rn[2].weight, state["2.weight"])
    with pytest.raises(RuntimeError, match="rounding_state"):
        network().load_state_dict(state)
