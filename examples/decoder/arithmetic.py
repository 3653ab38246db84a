"""Formats and roundings of the engine, from the policy that emulates the model."""

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from halfulp import golden
from halfulp.golden import nn
from halfulp.golden.check import product_shape
from halfulp.golden.entries import elements_of
from halfulp.golden.nn.cast import Cast
from halfulp.golden.nn.policy import Policy
from halfulp.golden.nn.select import Candidate, check_pattern, matches
from halfulp.hdl.formats import FP32, Format
from halfulp.hdl.specs import BlockMacSpec, MacSpec, PwlSpec, ValueRange

from .program import Operands

OPERATORS = ("exp", "gelu")
"""Functions for which a policy names piecewise linear units."""


SHARED = ("elementwise", "functions", "reductions")
"""Parts of policies for which the engine has one unit each, so that all layers share them."""


class Product(NamedTuple):
    """Multiply-accumulate of a product, and the rounding of its operands."""

    mac: Any
    rounding: Cast

    @property
    def block(self) -> int:
        """Number of elements of an operand that have one scale; 1 for numbers."""
        return self.mac.a.length if isinstance(self.mac, BlockMacSpec) else 1

    @property
    def bits(self) -> tuple[int, int]:
        """Bits of an entry of each operand."""
        a, b = (sum(fmt.width for fmt in self.mac.entries[name].values()) for name in "ab")
        return a, b


def _check_product(policy: Policy) -> None:
    """Raise ValueError if the lanes have no unit for the products of a policy."""
    mac = policy.forward
    if not isinstance(mac, (MacSpec, BlockMacSpec)):
        raise ValueError(
            f"the engine has multiply-accumulates of numbers or blocks, such as e4m3fn*e4m3fn+fp32.rn or "
            f"fp32*fp32+fp32.rn, not {mac or 'the FP32 of torch'}"
        )
    if mac.words and (mac.random is None or policy.device != "decoder"):
        raise ValueError(f'random words of {mac} are those of sources in the lanes; give @lfsr16 and device="decoder"')
    if not isinstance(mac, BlockMacSpec):
        return
    if mac.k != mac.a.length:
        raise ValueError(f"the engine takes whole blocks, not steps of {mac.k} elements")
    for block in (mac.a, mac.b):
        if block.has_tensor_scale:
            raise ValueError(
                f"{block} has a scale of all numbers of a tensor, for which the engine has no unit; expected blocks "
                "with scales of powers of two, such as mxfp4"
            )


@dataclass(frozen=True)
class Arithmetic:
    """Policies of a model, as far as the engine has units for them.

    Parameters
    ----------
    rules : dict of str to Policy
        Policies by patterns of layers; the first match counts. Each has a ``mac`` of numbers or of whole blocks,
        deterministic roundings, ``exp`` and ``gelu`` as ``pwl`` units, and sequential ``reductions``. Layers differ in
        their products only.
    lanes : int
        Multiply-accumulates of the engine, a power of two; they decide which random words a product takes.

    Raises
    ------
    ValueError
        If a part of the policy is missing, or the engine has no unit for it.
    """

    rules: dict[str, Policy]
    lanes: int = 8

    def __post_init__(self) -> None:
        for pattern, policy in self.rules.items():
            check_pattern(pattern, operations=False)
            self._check(policy)

    def _check(self, policy: Policy) -> None:
        _check_product(policy)
        missing = [name for name in SHARED if getattr(policy, name) is None]
        missing += [f"functions=...; {name}=pwl ..." for name in OPERATORS if policy.operator_of(name) is None]
        if missing:
            raise ValueError(f"the engine needs a policy with {', '.join(missing)}")
        if policy.reductions.order != "sequential" or policy.reductions.accumulator is None:
            raise ValueError(f"the engine has sequential sums with an accumulator, not {policy.reductions}")
        if policy.normalisation is not None or policy.hadamard is not None:
            raise ValueError("the engine has neither a format of normalisations nor rotations")
        others = [name for part in (policy.elementwise, policy.functions) for name, _ in part.operators]
        others = sorted(set(others) - set(OPERATORS)) + [
            name for name in ("multiplier", "adder") if getattr(policy, name)
        ]
        if others:
            raise ValueError(f"the engine has units of the library only, no operator for {', '.join(others)}")
        for name in SHARED:
            if getattr(policy, name) != getattr(self.policy, name):
                raise ValueError(
                    f"the engine has one unit for the {name} of all layers; only mac, activations, weights and device "
                    f"differ by layer, not {name}={getattr(policy, name)}"
                )
        for cast in (policy.activations, policy.weights, self.element, self.function, self.total):
            if cast.rounding.bits or cast.before or cast.is_for_operands:
                raise ValueError(
                    f"the engine rounds vectors without random words, scales, tiles and sparsity, not by {cast}"
                )
        for cast in (policy.activations, policy.weights):
            if cast.fmt is not None:
                raise ValueError(f"the engine rounds operands to the format of the product only, not to {cast.fmt}")

    @classmethod
    def read(cls, path: Path, lanes: int = 8) -> "Arithmetic":
        """Read the policies of a TOML file, which may name the lanes of the engine as ``device = "decoder"``."""
        register_lanes(lanes)
        return cls(nn.rules(path), lanes)

    @property
    def policy(self) -> Policy:
        """Policy of layers that no pattern names."""
        return self.rules["*"]

    def of(self, module: str) -> Policy:
        """Return the policy of a module by its name in the model."""
        layer = Candidate((module,))
        return next(policy for pattern, policy in self.rules.items() if matches(pattern, layer))

    def products(self, modules: Iterable[str]) -> list[Product]:
        """Return the different products of modules; ValueError if a pattern names none of them."""
        policies = {module: self.of(module) for module in modules}
        for pattern, policy in self.rules.items():
            if pattern != "*" and not any(policy is used for used in policies.values()):
                raise ValueError(f"no layer has the policy of {pattern!r}; the layers are {', '.join(policies)}")
        return list(dict.fromkeys(Product(policy.forward, policy.activations) for policy in policies.values()))

    def operands(self, modules: list[str]) -> dict[str, Operands]:
        """Return the formats of the products of modules, with their numbers in `products`."""
        known = self.products(modules)
        own = {
            module: Product(policy.forward, policy.activations) for module in modules for policy in [self.of(module)]
        }
        return {module: Operands(known.index(product), product.block) for module, product in own.items()}

    @property
    def element(self) -> Cast:
        """Format and rounding of sums, differences, products and quotients of elements."""
        return self._cast("add")

    @property
    def function(self) -> Cast:
        """Format and rounding of the inverse square root."""
        return self._cast("rsqrt")

    @property
    def total(self) -> Cast:
        """Accumulator of sums of elements."""
        cast = self.policy.reductions.accumulator
        assert cast is not None
        return cast

    def _cast(self, operation: str) -> Cast:
        cast = self.policy.rounding_of(operation)
        assert cast is not None
        return cast

    @functools.cached_property
    def pwl(self) -> dict[str, PwlSpec]:
        """Units of functions by name."""
        return {name: PwlSpec.parse(str(self.policy.operator_of(name))) for name in OPERATORS}

    @functools.cached_property
    def storage(self) -> Format:
        """Format of the vector memory: the narrowest one that holds all results without rounding.

        Torch stores each result in binary32 and rounds it again only as an operand, so the engine does too.
        """
        formats = [policy.forward.o for policy in self.rules.values()]
        formats += [self.element.fmt, self.function.fmt, self.total.fmt]
        formats += [spec.o for spec in self.pwl.values()]
        candidates = [fmt for fmt in (*formats, FP32) if all(_holds(fmt, other) for other in formats)]
        if not candidates:
            raise ValueError(f"binary32 does not hold all numbers of {', '.join(map(str, formats))}")
        return min(candidates, key=lambda fmt: fmt.width)


def _holds(fmt: Format, other: Format) -> bool:
    """Return True if a format has all numbers of another one."""
    try:
        ValueRange.of(other).check_fits(fmt, f"number of {other}")
    except ValueError:
        return False
    return True


def register_lanes(lanes: int) -> None:
    """Register the device ``decoder`` of policies: products with the random words of an engine with so many lanes.

    Each lane has a source, which begins at its seed with each product of a vector and a matrix. Lane i computes the
    columns i, i + lanes, ... one after the other.
    """
    nn.register_device("decoder", functools.partial(_product, lanes))


def _product(lanes: int, a: Any, b: Any, mac: Any, start: Tensor | None, key: int) -> Tensor:
    """Multiply matrices of codes; parameters as `halfulp.golden.nn.product.Device`."""
    if mac.random is None:
        return golden.gemm(a, b, mac, start=start)
    x, y = elements_of(a), elements_of(b)
    seeds = torch.tensor(mac.random.seeds(lanes, mac.seed))
    groups = -(-y.shape[-1] // lanes)
    states = [golden.random.jump(mac.random, seeds, group * mac.steps(x.shape[-1])) for group in range(groups)]
    shape = product_shape(x, y)
    return golden.gemm(a, b, mac, start=start, seed=torch.cat(states)[: y.shape[-1]].expand(shape))
