"""Verilog of the engine, its pipelined units, and the policies that it refuses."""

import pytest
import torch

from examples.decoder.arithmetic import Arithmetic
from examples.decoder.engine import Engine
from examples.decoder.model import Decoder, Shape, generate
from examples.decoder.run import POLICY
from examples.decoder.simulation import Simulation
from halfulp import golden
from halfulp.golden.nn import Policy
from halfulp.units.verilog import emit
from tests.verilog_lint import lint

SHAPE = Shape(layers=1, width=16, heads=2, context=16, vocabulary=32)
TEXT = str(Arithmetic.read(POLICY).policy)
SUMS = "e5m2*e5m2+e6m5.sr10"


@pytest.mark.slow
@pytest.mark.parametrize("policy", [POLICY, POLICY.with_name("mxfp4.toml")])
def test_verilog_of_engine_passes_lint(policy, tmp_path):
    engine = Engine(SHAPE, Arithmetic.read(policy, lanes=4))
    path = tmp_path / "decoder.v"
    path.write_text(emit(engine))
    lint([path], engine.name)


@pytest.mark.slow
def test_pipeline_changes_no_bit():
    torch.manual_seed(1)
    model, arithmetic = Decoder(SHAPE).eval(), Arithmetic.read(POLICY)
    with golden.emulate(arithmetic.rules, strict=True):
        tokens, logits = generate(model.stepper(), SHAPE.context, [5], 4)
    with Simulation(Engine(SHAPE, arithmetic, pipeline=3), model) as simulation:
        engine_tokens, engine_logits = simulation.generate([5], 4)
    assert engine_tokens == tokens
    assert torch.equal(engine_logits.view(torch.int32), logits.view(torch.int32))


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ("e4m3fn*e4m3fn+fp32.rn", "fp32", "multiply-accumulates"),
        ("e4m3fn*e4m3fn+fp32.rn", "mxfp4*mxfp4+fp32.rn step=8", "whole blocks"),
        ("e4m3fn*e4m3fn+fp32.rn", "nvfp4*nvfp4+fp32.rn", "all numbers of a tensor"),
        ("activations=rn.sat", "activations=sr3", "random words"),
        ("e4m3fn*e4m3fn+fp32.rn", SUMS, "device"),
        ("e4m3fn*e4m3fn+fp32.rn", f"{SUMS}@lfsr16", "device"),
        ("activations=rn.sat", "activations=e5m2.rn", "format of the product"),
        ("elementwise=bf16.rn", "elementwise=bf16.sr4", "random words"),
        ("reductions=fp32.rn sequential", "reductions=fp32.rn pairwise", "sequential"),
        ("; gelu=pwl gelu(fxp4.8)>bf16.rn pieces=16", "", "gelu=pwl"),
        ("; gelu=pwl", "; tanh=pwl tanh(fxp4.8)>bf16.rn pieces=4; gelu=pwl", "no operator for tanh"),
    ],
)
def test_engine_refuses_policy(old, new, word):
    assert old in TEXT
    with pytest.raises(ValueError, match=word):
        Arithmetic({"*": Policy.parse(TEXT.replace(old, new))})


@pytest.mark.parametrize(
    ("pattern", "old", "new", "word"),
    [
        ("head", "elementwise=bf16.rn", "elementwise=fp16.rn", "one unit for the elementwise of all layers"),
        ("head", "e4m3fn*e4m3fn+fp32.rn", "fp32", "multiply-accumulates"),
        ("head aten.mm", "e4m3fn*e4m3fn", "e5m2*e5m2", "names an operation"),
    ],
)
def test_engine_refuses_policy_of_a_layer(pattern, old, new, word):
    assert old in TEXT
    with pytest.raises(ValueError, match=word):
        Arithmetic({pattern: Policy.parse(TEXT.replace(old, new)), "*": Policy.parse(TEXT)})


def test_engine_refuses_pattern_without_a_layer():
    head = Policy.parse(TEXT.replace("e4m3fn*e4m3fn", "e5m2*e5m2"))
    with pytest.raises(ValueError, match="no layer has the policy of 'haed'; the layers are blocks"):
        Engine(SHAPE, Arithmetic({"haed": head, "*": Policy.parse(TEXT)}))


def test_memory_has_narrowest_format_of_all_results():
    storage = {name: str(Arithmetic.read(POLICY.with_name(f"{name}.toml")).storage) for name in ("e4m3fn", "e5m2_sr")}
    assert storage == {"e4m3fn": "fp32", "e5m2_sr": "bf16"}
