"""The engine of the digits: lint, and the scores of the converted network, bit for bit."""

import pytest
import torch

from examples.digits.engine import Engine
from examples.digits.model import Network, train
from examples.digits.run import POLICY, computed, expected, mismatches
from halfulp.golden.nn import Policy, rules
from halfulp.lab.train.small import digits
from halfulp.units.verilog import emit
from tests.verilog_lint import lint

FP8 = rules(POLICY)["*"]


def test_verilog_of_engine_passes_lint(tmp_path):
    engine = Engine(Network(channels=4), FP8)
    path = tmp_path / "digits.v"
    path.write_text(emit(engine))
    lint([path], engine.name)


def scores(network, policy, images):
    """Return the scores of images by the network and by the engine."""
    return expected(network, policy, images), computed(Engine(network, policy), images)[0]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("policy", [FP8, Policy.parse("nf4*nf4+fp32.rn")], ids=["fp8", "nf4"])
def test_engine_gives_scores_of_converted_network(policy):
    """The code of 0 in nf4 is not 0: padded pixels and the start of ReLU."""
    torch.manual_seed(1)
    golden, own = scores(Network(channels=4), policy, torch.randn(3, 1, 8, 8))
    assert golden.shape == (3, 10)
    assert len(golden.unique()) > 20
    assert mismatches(golden, own) == 0


@pytest.mark.slow
@pytest.mark.parametrize("text", ["bf16*bf16+fp32.rn", "e5m2*e4m3fn+fp16.rz", "fxp4.4*fxp2.6+fxp10.12.rn"])
def test_trained_engine_gives_scores_of_all_images(text):
    _, (images, _) = digits()
    golden, own = scores(train(epochs=2), Policy.parse(text), images)
    assert mismatches(golden, own) == 0


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("fp32", "multiply-accumulates"),
        ("mxfp4*mxfp4+fp32.rn", "multiply-accumulates"),
        ("e5m2*e5m2+e6m5.sr10@lfsr16", "random words"),
        ("e4m3fn*e4m3fn+fp32.rn, weights=e2m1fn.rn", "operands"),
    ],
)
def test_engine_refuses_policy(text, word):
    with pytest.raises(ValueError, match=word):
        Engine(Network(channels=4), Policy.parse(text))


def test_mismatches_count_bits():
    assert mismatches(torch.tensor([0.0, 1.0, 2.0]), torch.tensor([-0.0, 1.0, 2.5])) == 2
