"""Torch layers that compute in the arithmetic of a policy."""

import itertools
import warnings
from typing import Any, Self

import torch
from torch import Tensor, nn

from halfulp.golden.torch_internals import StateReader, buffers_of, padding_of
from halfulp.hdl.specs import MacSpec

from .amax import ROLES, Delay
from .cast import Cast, check_real
from .convolution import conv2d, padded
from .draw import CONTINUE, REPEAT, STATE, check_seed, fresh_state
from .matmul import bmm, linear
from .operands import Use, quantize
from .operator import random_key
from .policy import PROGRAM, Policy

HISTORY = "amax_history"
"""Buffer of a layer with delayed scaling: histories by product of the layer and by operand."""


class Stateful(StateReader):
    """Module that rounds, with a state in buffers.

    With stochastic rounding the state is a seed and the number of uses, so that a run restored from `state_dict`
    continues with the same random words; with delayed scaling, the histories of operands. Loading a state dict without
    it, such as one of torch's own layer, does not change the state.
    """

    rounding_state: Tensor
    amax_history: Tensor
    evaluation = REPEAT
    """Random words in evaluation: one of `draw.EVALUATIONS`."""

    def _set_state(self, stochastic: bool, seed: int | None) -> None:
        buffers_of(self).pop(STATE, None)
        if stochastic:
            drawn = int(torch.randint(1 << 62, ())) if seed is None else check_seed(seed)
            self.register_buffer(STATE, fresh_state(drawn))

    def next_key(self, x: Tensor) -> Tensor | None:
        """Return the key of the random words of one use on a tensor; None without stochastic rounding."""
        check_real(x, "the input")
        if STATE not in buffers_of(self):
            return None
        key: Tensor = random_key(self.rounding_state, x.detach(), CONTINUE if self.training else self.evaluation)
        return key

    def train(self, mode: bool = True) -> Self:
        """Set training or evaluation mode; evaluation restarts its random words."""
        if not mode and STATE in buffers_of(self):
            with torch.no_grad():
                self.rounding_state[2] = 0
        return super().train(mode)

    def accept_keys(self, prefix: str, missing: list[str], unexpected: list[str]) -> None:
        """Let a state dict have no state, and warn of one that the module has no use for."""
        for name, needs in ((STATE, "stochastic rounding"), (HISTORY, "delayed scaling")):
            if prefix + name in missing:
                missing.remove(prefix + name)
            if prefix + name in unexpected:
                unexpected.remove(prefix + name)
                warnings.warn(
                    f"halfulp: {name} in a state dict is ignored, because the layers have no {needs}",
                    RuntimeWarning,
                    stacklevel=2,
                )


class Constant(Stateful):
    """Module whose parameters are read-only, because others are derived from them."""

    parameters_of_module: tuple[str, ...] = ()
    """Names of these parameters."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.parameters_of_module and name in self.__dict__:
            raise AttributeError(f"{name} of a {type(self).__name__} is read-only; make a new one")
        super().__setattr__(name, value)


class Computed(Stateful):
    """Layer that computes in the arithmetic of a policy.

    Parameters
    ----------
    *sizes, **parts
        Parameters of the torch layer with the same name.
    policy : Policy, MacSpec or str
        Arithmetic of the layer.
    seed : int, optional
        Seed of the random words; default: drawn from torch's generator.
    """

    layer = ""
    """Name of the layer in messages."""
    products: tuple[bool, ...] = (False,)
    """Products of a call, in order; True for those of two activations."""
    called = False
    """True after the first call."""

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        self.called = True
        return super().__call__(*arguments, **named)

    def __init__(self, *sizes: Any, policy: Policy | MacSpec | str, seed: int | None = None, **parts: Any) -> None:
        super().__init__(*sizes, **parts)
        self.compute_with(policy, seed)

    @property
    def policy(self) -> Policy:
        """Arithmetic of the layer; an assignment is `compute_with`."""
        return self._policy

    @policy.setter
    def policy(self, policy: Policy | MacSpec | str) -> None:
        self.compute_with(policy)

    def compute_with(self, policy: Policy | MacSpec | str, seed: int | None = None) -> None:
        """Set the arithmetic and restart the random words."""
        given = Policy.parse(policy)
        for name in PROGRAM:
            if getattr(given, name) is not None:
                raise ValueError(
                    f"layers have no {name}; use golden.emulate, or halfulp train --emulate, for whole programs"
                )
        self._policy = given
        # torch.compile cannot trace a policy, but takes a text and a bool.
        self._text, self._plain = str(self.policy), self.policy.plain
        self._set_state(self.policy.stochastic, seed)
        self._lengths = [self.policy.histories(paired) for paired in self.products]
        before = buffers_of(self).pop(HISTORY, None)
        if longest := max(itertools.chain(*self._lengths)):
            kept = torch.zeros(len(self.products), len(ROLES), longest, dtype=torch.int64)
            self.register_buffer(HISTORY, kept if before is None or before.shape != kept.shape else before)

    def use(self, x: Tensor, number: int = 0) -> Use:
        """Return the arguments of the use of the layer on a tensor for one of its products, and advance its state."""
        delay = None
        if HISTORY in buffers_of(self):
            rows = zip(self.amax_history[number].unbind(), self._lengths[number], strict=True)
            x_row, w_row, gradient_row = (row[:length] if length else None for row, length in rows)
            delay = Delay((x_row, w_row, gradient_row), self.training)
        return Use(self._text, self.next_key(x), self.layer, delay)

    def extra_repr(self) -> str:
        """Return the text of the layer in a printed model."""
        own = super().extra_repr()
        return f"{own}, policy='{self.policy}'" if own else f"policy='{self.policy}'"


class Linear(Computed, nn.Linear):
    """`torch.nn.Linear` in the arithmetic of a policy; parameters as for `Computed`.

    Sums start from the bias, or with scaled operands it is added to the multiplied results. The gradient of the bias is
    a sum of products with 1.
    """

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  # torch's name
        """Compute the layer."""
        if self._plain:
            return super().forward(input)
        return linear(input, self.weight, self.bias, self.use(input))


class Conv2d(Computed, nn.Conv2d):
    """`torch.nn.Conv2d` in the arithmetic of a policy, as a matrix product; parameters as for `Computed`."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  # torch's name
        """Compute the layer."""
        if self._plain:
            return super().forward(input)
        padding = padding_of(self)
        if self.padding_mode == "zeros" and not isinstance(self.padding, str):
            # torch makes the other one with the layer, and then uses it for other modes only.
            padding = [border for border in reversed(self.padding) for _ in range(2)]
        return conv2d(
            padded(input, padding, self.padding_mode),
            self.weight,
            self.bias,
            self.use(input),
            stride=self.stride,  # type: ignore[arg-type]  # torch converts ints to tuples
            dilation=self.dilation,  # type: ignore[arg-type]  # like stride
            groups=self.groups,
        )


class Bmm(Computed):
    """Matrix product ``a @ b`` of two tensors of activations, whose batches broadcast; parameters as for `Computed`.

    The policy's ``input_gradient`` is for ``a``, its ``weight_gradient`` for ``b``.
    """

    products = (True,)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """Compute the product."""
        return a @ b if self._plain else bmm(a, b, self.use(a))


class Quantize(Constant):
    """Rounding of elements and of their gradients.

    Parameters
    ----------
    forward, backward : Cast or str, optional
        Rounding of elements and of gradients, such as ``e5m2.sr3``; None: no rounding. Rounding has the derivative 1.
    seed : int, optional
        Seed of the random words; default: drawn from torch's generator.
    """

    parameters_of_module = ("forward_cast", "backward_cast")

    def __init__(
        self, forward: Cast | str | None, backward: Cast | str | None = None, *, seed: int | None = None
    ) -> None:
        super().__init__()
        self.forward_cast, self.backward_cast = _element("forward", forward), _element("backward", backward)
        casts = [cast for cast in (self.forward_cast, self.backward_cast) if cast]
        self._texts = str(self.forward_cast or ""), str(self.backward_cast or "")
        self._set_state(any(cast.rounding.bits for cast in casts), seed)

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  # torch's name
        """Round the elements."""
        return quantize(input, *self._texts, Use("", self.next_key(input), "Quantize"))

    def extra_repr(self) -> str:
        """Return the text of the layer in a printed model."""
        return f"'{self.forward_cast}', '{self.backward_cast}'"


def _element(name: str, given: Cast | str | None) -> Cast | None:
    if given is None:
        return None
    cast = Cast.parse(given)
    if cast.fmt is None:
        raise ValueError(f"{name} cast {cast} has no format: expected e5m2.{cast}, for example")
    if cast.is_for_operands:
        raise ValueError(f"{name} cast {cast} has a sparsity, a scale or tiles, which are for operands of products")
    return cast
