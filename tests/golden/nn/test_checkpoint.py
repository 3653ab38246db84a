"""Policies of quantized checkpoints."""

import pytest
import torch

from halfulp import golden
from halfulp.golden import nn

FP8 = {"num_bits": 8, "type": "float", "symmetric": True}
NVFP4 = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16, "symmetric": True}
INT4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": True}
MX = {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32, "scale_dtype": "torch.uint8"}


def compressed(weights, activations, **more):
    group = {"targets": ["Linear"], "weights": weights, "input_activations": activations, "output_activations": None}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group | more}, "ignore": ["lm_head"]}


def torchao(kind, **data):
    return {"quant_method": "torchao", "quant_type": {"default": {"_type": kind, "_version": 2, "_data": data}}}


def dynamic(part, **more):
    return part | {"dynamic": True} | more


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (
            compressed(FP8 | {"strategy": "channel"}, dynamic(FP8, strategy="token")),
            "forward=e4m3fn*e4m3fn+fp32.rn, activations=rn scale=channel.real, weights=rn scale=channel.real",
        ),
        (
            compressed(FP8 | {"strategy": "tensor", "type": "int"}, None),
            "forward=bf16*int8+fp32.rn, weights=rn scale=tensor.real",
        ),
        (compressed(NVFP4, NVFP4 | {"dynamic": "local"}), "forward=nvfp4*nvfp4+fp32.rn"),
        (compressed(MX, dynamic(MX, num_bits=8)), "forward=mxfp8_e4m3*mxfp4+fp32.rn"),
        (
            torchao("torchao.quantization.Float8DynamicActivationFloat8WeightConfig", granularity={"_type": "PerRow"}),
            "forward=e4m3fn*e4m3fn+fp32.rn, activations=rn scale=channel.real, weights=rn scale=channel.real",
        ),
        (
            torchao("Float8WeightOnlyConfig", weight_dtype={"_type": "torch.dtype", "_data": "float8_e5m2"}),
            "forward=bf16*e5m2+fp32.rn, weights=rn scale=channel.real",
        ),
        (
            torchao("MXDynamicActivationMXWeightConfig", weight_dtype={"_data": "float4_e2m1fn_x2"}),
            "forward=block(e4m3fn,32,e8m0fnu,ceil)*block(e2m1fn,32,e8m0fnu,ceil)+fp32.rn",
        ),
        (torchao("NVFP4DynamicActivationNVFP4WeightConfig"), "forward=nvfp4*nvfp4+fp32.rn"),
        (
            compressed(INT4 | {"symmetric": False}, None),
            "forward=bf16*bf16+fp32.rn, weights=int4.rn scale=group128.real.affine",
        ),
        (
            compressed(INT4, dynamic(INT4, num_bits=8, strategy="token", symmetric=False)),
            "forward=int8*bf16+fp32.rn, activations=rn scale=channel.real.affine, weights=int4.rn scale=group128.real",
        ),
        (
            torchao("Int8DynamicActivationInt8WeightConfig", act_mapping_type={"_data": "ASYMMETRIC"}),
            "forward=int8*int8+fp32.rn, activations=rn scale=channel.real.affine, weights=rn scale=channel.real",
        ),
        (
            torchao("Int8WeightOnlyConfig", group_size=64),
            "forward=bf16*bf16+fp32.rn, weights=int8.rn scale=group64.real",
        ),
    ],
)
def test_policies_of_configurations(config, text):
    found = nn.policies_of(config)
    assert nn.Policy.parse(found.pop(torch.nn.Linear)) == nn.Policy.parse(text)
    assert found == ({"lm_head": "fp32"} if "ignore" in config else {})


@pytest.mark.parametrize(
    ("config", "keyword"),
    [
        ({"quant_method": "gptq"}, "gptq"),
        (compressed(None, None), "weights are not quantized"),
        (compressed(MX, None), "both in blocks"),
        (compressed(FP8 | {"strategy": "channel"}, FP8 | {"strategy": "tensor", "dynamic": False}), "static"),
        (compressed(FP8 | {"strategy": "channel", "symmetric": False}, None), "zero point"),
        (compressed(MX | {"group_size": 128}, None), "group_size 128"),
        (compressed(MX | {"scale_dtype": "torch.bfloat16"}, None), "scale_dtype bfloat16"),
        (compressed(FP8 | {"strategy": "tensor"}, None, output_activations=FP8), "output_activations"),
        (compressed(FP8 | {"strategy": "tensor"}, None, targets=["re:.*proj"]), "regular expression"),
        (torchao("Int4WeightOnlyConfig"), "Int4WeightOnlyConfig"),
        (torchao("Float8WeightOnlyConfig", granularity={"_type": "PerBlock"}), "PerBlock"),
        (torchao("Float8WeightOnlyConfig", group_size=64), "groups of 64"),
        (torchao("NVFP4InferenceConfig", mm_config={"_data": "WEIGHT_ONLY"}), "weights only"),
        (torchao("MXFPInferenceConfig", scaling_mode={"_data": "CEIL"}), "scaling_mode"),
        ({"quant_method": "torchao", "quant_type": "int8wo"}, "default"),
    ],
)
def test_policies_of_rejects_other_quantization(config, keyword):
    with pytest.raises(ValueError, match=keyword):
        nn.policies_of(config)


def test_policies_of_a_configuration_convert_a_model():
    model = torch.nn.Sequential()
    model.add_module("fc", torch.nn.Linear(32, 4))
    model.add_module("lm_head", torch.nn.Linear(4, 2))
    x = torch.randn(3, 32)
    mixed = "mxfp8_e4m3*mxfp4+fp32.rn"
    blocks = golden.quantize_blocks(model.fc.weight.detach().mT, "mxfp4", dim=0)
    wanted = golden.decode(golden.gemm(golden.quantize_blocks(x, "mxfp8_e4m3"), blocks, mixed), "fp32").float()
    model.fc.bias.data.zero_()
    converted = nn.convert(model, nn.policies_of(compressed(MX, dynamic(MX, num_bits=8))))
    assert [swap.name for swap in converted.swaps if swap.policy] == ["fc"]
    assert converted.model.fc(x).equal(wanted)
