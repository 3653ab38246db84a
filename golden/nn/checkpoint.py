"""Policies of quantized checkpoints, from the quantization in their configuration."""

from collections.abc import Callable, Mapping
from typing import Any

import torch

from halfulp.hdl.formats import BLOCKS, parse

from .policy import FLOAT, Policy

Config = Mapping[str, Any]
Pattern = str | type[torch.nn.Module]

SUM = "fp32.rn"
"""Accumulator of products; configurations do not name one."""

HALF = "bf16"
"""Format of activations that are not quantized."""

SCALES = {"tensor": "tensor", "channel": "channel", "token": "channel", "PerTensor": "tensor", "PerRow": "channel"}
"""Scales of policies by the strategies of compressed-tensors and the granularities of torchao."""

RULES = {"RCEIL": "ceil", "FLOOR": "floor", "EVEN": "even"}
"""Rules of blocks by the scaling modes of torchao."""


def policies_of(config: Config) -> dict[Pattern, str]:
    """Return the policies of a quantized checkpoint, by layers.

    Parameters
    ----------
    config : dict
        The entry ``quantization_config`` of ``config.json``, in the form of compressed-tensors or of torchao.

    Returns
    -------
    dict
        Texts of policies by classes and names of layers, for `convert` and `halfulp.golden.emulate`. They hold for the
        forward pass. Sums are in binary32, and activations that are not quantized are rounded to bf16.

    Raises
    ------
    TypeError, ValueError
        If a policy cannot express the quantization: groups of floats that are no block, static scales of activations,
        and blocks on one side of a product only.

    Notes
    -----
    Policies compute scales from the largest magnitudes of the tensors, so elements can differ from those of the
    library: a checkpoint has the scales of weights that its calibration chose. In nvfp4, activations have the scale of
    all numbers from the tensor itself, also where a configuration has a calibrated one (``dynamic: local``).
    """
    if not isinstance(config, Mapping):
        raise TypeError(f"config must be a dict, the quantization_config of a checkpoint, not {type(config).__name__}")
    method = config.get("quant_method")
    if method not in METHODS:
        raise ValueError(f"quant_method is {method!r}; policies express {' and '.join(METHODS)}")
    found = dict.fromkeys(_names(config, IGNORED[method]), FLOAT) | METHODS[method](config)
    return {pattern: str(Policy.parse(text)) for pattern, text in found.items()}


def _names(config: Config, key: str) -> list[str]:
    """Return names of layers of a configuration."""
    names = config.get(key) or []
    for name in names:
        if name.startswith("re:"):
            raise ValueError(f"{key} has the regular expression {name[3:]!r}; give the names of the layers")
    return list(names)


def _compressed_tensors(config: Config) -> dict[Pattern, str]:
    policies: dict[Pattern, str] = {}
    for group in config.get("config_groups", {}).values():
        if group.get("output_activations"):
            raise ValueError("output_activations are quantized, which a policy does not express")
        weights, activations = (_compressed(group.get(key), key) for key in ("weights", "input_activations"))
        text = _product(activations, weights)
        for target in _names(group, "targets"):
            policies[getattr(torch.nn, target, target)] = text
    if not policies:
        raise ValueError("config_groups is empty; it has the quantization of groups of layers")
    return policies


def _compressed(part: Config | None, name: str) -> tuple[str, str] | None:
    """Return the operand and the cast of weights or activations in compressed-tensors; None without quantization."""
    if part is None:
        return None
    bits, kind, strategy, length = (part.get(key) for key in ("num_bits", "type", "strategy", "group_size"))
    affine = not part.get("symmetric", True)
    if affine and kind != "int":
        raise ValueError(f"{name} are {kind} with a zero point, which only integers have")
    if name == "input_activations" and not part.get("dynamic"):
        raise ValueError("input_activations have static scales; a policy computes them from the tensor")
    if strategy in SCALES:
        formats: dict[tuple[Any, Any], str] = {(8, "float"): "e4m3fn", (4, "float"): "e2m1fn"}
        fmt = formats.get((bits, kind), f"int{bits}" if kind == "int" else None)
        if fmt is None:
            raise ValueError(f"{name} are {kind} of {bits} bits; policies have float of 4 or 8 bits, and int")
        return fmt, _cast(SCALES[strategy], affine)
    if (kind, strategy) == ("int", "group") and length:
        return HALF, _cast(f"group{length}", affine, f"int{bits}")
    blocks: dict[tuple[Any, ...], str] = {
        (4, "float", "tensor_group", 16): "nvfp4",
        (4, "float", "group", 32): "mxfp4",
        (8, "float", "group", 32): "mxfp8_e4m3",
    }
    block = blocks.get((bits, kind, strategy, length))
    scale = str(part.get("scale_dtype") or "uint8").removeprefix("torch.")
    if block is None or (block != "nvfp4" and scale not in ("uint8", "float8_e8m0fnu")):
        raise ValueError(
            f"{name} are {kind} of {bits} bits with strategy {strategy}, group_size {length} and scale_dtype {scale}; "
            f"blocks are nvfp4, mxfp4 and mxfp8_e4m3, other strategies {', '.join(list(SCALES)[:3])}"
        )
    return block, ""


def _torchao(config: Config) -> dict[Pattern, str]:
    kinds = config.get("quant_type")
    if not isinstance(kinds, Mapping) or list(kinds) != ["default"] or kinds["default"] is None:
        raise ValueError("quant_type of torchao must have the entry default, and no other")
    default = kinds["default"]
    name, data = _plain_type(default), default.get("_data", {})
    if name not in TORCHAO:
        raise ValueError(f"quant_type is {name}; policies express {', '.join(TORCHAO)}")
    return {torch.nn.Linear: TORCHAO[name](name, data)}


def _plain_type(value: Any) -> str:
    """Return the name of a serialized value of torchao, without its module."""
    return str(value.get("_type", "")).rsplit(".", 1)[-1] if isinstance(value, Mapping) else str(value)


def _torchao_scaled(name: str, data: Config) -> str:
    """Return the policy of float8 or int8, dynamic or of weights only."""
    fmt = "int8" if name.startswith("Int8") else "e4m3fn"
    mapping, length = _datum(data, "act_mapping_type", "SYMMETRIC"), data.get("group_size")
    if length and fmt != "int8":
        raise ValueError(f"{name} has groups of {length} weights; policies have groups of integers")
    types = [_datum(data, f"{side}_dtype", "float8_e4m3fn") for side in ("activation", "weight")]
    formats = [fmt if fmt == "int8" else str(parse(kind)) for kind in types]
    given = data.get("granularity")
    pair = given if isinstance(given, list) else [given] * 2
    default = "PerTensor" if name.startswith("Float8Dynamic") else "PerRow"
    kinds = [default if one is None else _plain_type(one) for one in pair]
    for kind in kinds:
        if kind not in SCALES:
            raise ValueError(f"granularity is {kind}; policies have PerTensor and PerRow")
    activations = formats[0], _cast(SCALES[kinds[0]], mapping == "ASYMMETRIC")
    weights = (HALF, _cast(f"group{length}", fmt="int8")) if length else (formats[1], _cast(SCALES[kinds[1]]))
    return _product(None if "WeightOnly" in name else activations, weights)


def _torchao_mx(name: str, data: Config) -> str:
    mode = _datum(data, "scaling_mode", "FLOOR" if name.startswith("MXFP") else "RCEIL")
    if mode not in RULES:
        raise ValueError(f"scaling_mode is {mode}; rules of blocks are {', '.join(RULES)}")
    length = data.get("block_size", 32)
    sides = [
        f"block({parse(_datum(data, f'{side}_dtype', 'float8_e4m3fn'))},{length},e8m0fnu,{RULES[mode]})"
        for side in ("activation", "weight")
    ]
    return _product(*((side, "") for side in sides))


def _torchao_nvfp4(name: str, data: Config) -> str:
    if _datum(data, "mm_config", "DYNAMIC") != "DYNAMIC" or data.get("use_dynamic_per_tensor_scale") is False:
        raise ValueError(f"{name} has weights only, or no scale of a tensor; nvfp4 of a policy has both")
    return _product(("nvfp4", ""), ("nvfp4", ""))


def _datum(data: Config, key: str, default: str) -> str:
    """Return a plain or serialized type or choice of torchao."""
    value = data.get(key)
    value = value.get("_data") if isinstance(value, Mapping) else value
    return default if value is None else str(value).rsplit(".", 1)[-1]


def _product(activations: tuple[str, str] | None, weights: tuple[str, str] | None) -> str:
    """Return the policy of a product of activations and weights, given by their operands and casts."""
    if weights is None:
        raise ValueError("weights are not quantized; a policy of activations only is written as text")
    (a, a_cast), (b, b_cast) = activations or (HALF, ""), weights
    if (a in BLOCKS or "(" in a) != (b in BLOCKS or "(" in b):
        raise ValueError(f"weights are {b} and activations {a}; a product of blocks needs both in blocks")
    casts = [f", {name}={cast}" for name, cast in (("activations", a_cast), ("weights", b_cast)) if cast]
    return f"forward={a}*{b}+{SUM}{''.join(casts)}"


def _cast(per: str, affine: bool = False, fmt: str = "") -> str:
    """Return the text of a cast with a scale."""
    return f"{fmt and fmt + '.'}rn scale={per}.real{'.affine' if affine else ''}"


TORCHAO: dict[str, Callable[[str, Config], str]] = {
    "Float8DynamicActivationFloat8WeightConfig": _torchao_scaled,
    "Float8WeightOnlyConfig": _torchao_scaled,
    "Int8DynamicActivationInt8WeightConfig": _torchao_scaled,
    "Int8WeightOnlyConfig": _torchao_scaled,
    "MXFPInferenceConfig": _torchao_mx,
    "MXDynamicActivationMXWeightConfig": _torchao_mx,
    "NVFP4InferenceConfig": _torchao_nvfp4,
    "NVFP4DynamicActivationNVFP4WeightConfig": _torchao_nvfp4,
}
"""Functions that return the policy of a configuration of torchao, by its name."""

METHODS = {"compressed-tensors": _compressed_tensors, "torchao": _torchao}
"""Functions that read the configuration of a library."""

IGNORED = {"compressed-tensors": "ignore", "torchao": "modules_to_not_convert"}
"""Keys of the names of layers that are not quantized."""
