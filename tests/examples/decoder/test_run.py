"""The decoder in RTL computes the tokens and the bits of the model under the same policy."""

import pytest
import torch

from examples.decoder import run
from examples.decoder.arithmetic import Arithmetic
from examples.decoder.engine import Engine
from examples.decoder.model import Decoder, Shape
from examples.decoder.run import POLICY, Comparison, compare

SHAPE = Shape(layers=1, width=16, heads=2, context=16, vocabulary=32)


def engine_of(policy, shape=SHAPE, lanes=4):
    """Return the engine of a policy file."""
    return Engine(shape, Arithmetic.read(policy, lanes))


def model(seed=1):
    """Return a model whose parameters are large enough for logits that differ."""
    torch.manual_seed(seed)
    decoder = Decoder(SHAPE).eval()
    with torch.no_grad():
        for parameter in decoder.parameters():
            parameter.mul_(2)
    return decoder


@pytest.mark.sampled(4)
@pytest.mark.parametrize("policy", ["e4m3fn", "bf16", "mxfp4", "e5m2_sr"])
def test_engine_gives_tokens_and_bits_of_torch(policy):
    both = compare(model(), engine_of(POLICY.with_name(f"{policy}.toml")), [3], 20)
    # After 16 of 20 tokens the engine reads the last 8 again.
    assert both.logits.shape == (28, 32)
    assert both.logits.isfinite().all()
    assert len(set(both.tokens)) > 2
    assert both.equal, f"{both.mismatches} logits differ"


@pytest.mark.slow
def test_layers_with_their_own_formats_have_bits_of_torch(tmp_path):
    path = tmp_path / "policy.toml"
    layers = {"head": "bf16*bf16+fp32.rn", "*.attention*": "mxfp4*mxfp4+fp32.rn", "*.up": "e5m2*e5m2+e6m5.sr10@lfsr16"}
    tables = [f'[layers."{pattern}"]\nmac = "{mac}"' for pattern, mac in layers.items()]
    tables[1] += '\nactivations = "rn"'
    tables[2] += '\ndevice = "decoder"'
    path.write_text("\n".join([POLICY.read_text(), *tables]))
    both = compare(model(), engine_of(path), [3], 10)
    assert len(set(both.tokens)) > 2
    assert both.equal, f"{both.mismatches} logits differ"


@pytest.mark.slow
def test_full_size_engine_generates_256_tokens_with_bits_of_torch():
    torch.manual_seed(1)
    decoder = Decoder(Shape()).eval()
    both = compare(decoder, engine_of(POLICY, decoder.shape, 8), [3], 256)
    assert len(both.tokens) == 257
    assert both.logits.shape == (256 + 32 * 6, 64)
    assert both.equal, f"{both.mismatches} logits differ"


def test_comparison_counts_bits():
    logits = torch.tensor([[0.0, 1.0], [torch.nan, 2.0]])
    same = Comparison([1, 2], [1, 2], logits, logits.clone())
    assert same.equal
    assert Comparison([1, 2], [1, 2], logits, torch.tensor([[-0.0, 1.0], [torch.nan, 2.5]])).mismatches == 2
    assert not Comparison([1, 2], [1, 3], logits, logits).equal


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--model", "other.pt"], "no model other.pt; `python -m examples.decoder.train` trains one"),
        (["--tokens", "0"], "--tokens is at least 1"),
        (["--prompt", "\u00df"], "--prompt has characters of"),
    ],
)
def test_run_refuses(arguments, words, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["run", *arguments])
    with pytest.raises(SystemExit) as stopped:
        run.main()
    assert stopped.value.code == 2
    assert words in capsys.readouterr().err.splitlines()[-1]
