"""Formats and roundings of the engine, from the policy that emulates the model."""

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from halfulp import golden
from halfulp.golden import nn
from halfulp.golden.entries import elements_of
from halfulp.golden.nn.cast import Cast
from halfulp.golden.nn.policy import Policy
from halfulp.hdl.formats import FP32, Format
from halfulp.hdl.specs import BlockMacSpec, MacSpec, PwlSpec, ValueRange

OPERATORS = ("exp", "gelu")
"""Functions for which a policy names piecewise linear units."""


@dataclass(frozen=True)
class Arithmetic:
    """Policy of a model, as far as the engine has units for it.

    Parameters
    ----------
    policy : Policy
        ``mac`` of numbers or of whole blocks, deterministic roundings, ``exp`` and ``gelu`` as ``pwl`` units, and
        sequential ``reductions``.
    lanes : int
        Multiply-accumulates of the engine, a power of two; they decide which random words a product takes.

    Raises
    ------
    ValueError
        If a part of the policy is missing, or the engine has no unit for it.
    """

    policy: Policy
    lanes: int = 8

    def __post_init__(self) -> None:
        policy, mac = self.policy, self.policy.forward
        if not isinstance(mac, (MacSpec, BlockMacSpec)):
            raise ValueError(f"the engine has multiply-accumulates of numbers or blocks, not {mac}")
        if isinstance(mac, BlockMacSpec) and mac.k != mac.a.length:
            raise ValueError(f"the engine takes whole blocks, not steps of {mac.k} elements")
        missing = [name for name in ("elementwise", "functions", "reductions") if getattr(policy, name) is None]
        missing += [f"functions=...; {name}=pwl ..." for name in OPERATORS if policy.operator_of(name) is None]
        if missing:
            raise ValueError(f"the engine needs a policy with {', '.join(missing)}")
        if policy.reductions.order != "sequential" or policy.reductions.accumulator is None:
            raise ValueError(f"the engine has sequential sums with an accumulator, not {policy.reductions}")
        if policy.normalisation is not None or policy.hadamard is not None:
            raise ValueError("the engine has neither a format of normalisations nor rotations")
        for cast in (policy.activations, policy.weights, self.element, self.function, self.total):
            if cast.rounding.bits or cast.before or cast.scale or cast.sparsity:
                raise ValueError(f"the engine rounds vectors without random words, scales and sparsity, not by {cast}")
        for cast in (policy.activations, policy.weights):
            if cast.fmt is not None:
                raise ValueError(f"the engine rounds operands to the format of the product only, not to {cast.fmt}")

    @classmethod
    def read(cls, path: Path, lanes: int = 8) -> "Arithmetic":
        """Read the policy of a TOML file, which may name the lanes of the engine as ``device = "decoder"``."""
        register_lanes(lanes)
        return cls(nn.rules(path)["*"], lanes)

    @property
    def mac(self) -> Any:
        """Multiply-accumulate of products."""
        return self.policy.forward

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

    @property
    def block(self) -> int:
        """Number of elements of an operand that have one scale; 1 for numbers."""
        return self.mac.a.length if isinstance(self.mac, BlockMacSpec) else 1

    @functools.cached_property
    def storage(self) -> Format:
        """Format of the vector memory: the narrowest one that holds all results without rounding.

        Torch stores each result in binary32 and rounds it again only as an operand, so the engine does too.
        """
        formats = [self.mac.o, self.element.fmt, self.function.fmt, self.total.fmt]
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
    shape = (*torch.broadcast_shapes(x.shape[:-2], y.shape[:-2]), x.shape[-2], y.shape[-1])
    return golden.gemm(a, b, mac, start=start, seed=torch.cat(states)[: y.shape[-1]].expand(shape))
