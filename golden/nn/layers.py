"""Layers of torch that compute in the arithmetic of a policy."""

from typing import Any

import torch
from torch import Tensor, nn

from halfulp.hdl.specs import MacSpec

from .cast import Cast
from .draw import STATE, check_seed, fresh_state, next_key
from .functional import bmm, conv2d, linear, padded, quantize
from .policy import Policy


class Computed(nn.Module):
    """What all layers have: a policy, and where something is rounded at random a state in a buffer.

    The state is a seed and the number of uses, so that `state_dict` of a run holds what it needs to go on with the
    same random words. A state dict without it, such as that of torch's own layer, is loaded and leaves it as it is.
    """

    policy: Policy
    rounding_state: Tensor

    def compute_with(self, policy: Policy | MacSpec | str, seed: int | None = None) -> None:
        """Set the arithmetic, and start the random words anew.

        Parameters
        ----------
        policy : Policy, MacSpec or str
        seed : int, optional
            Of random words; without one torch's generator draws it.
        """
        self.policy = Policy.parse(policy)
        self._set_state(self.policy.stochastic, seed)

    def _set_state(self, stochastic: bool, seed: int | None) -> None:
        self._buffers.pop(STATE, None)
        if stochastic:
            drawn = int(torch.randint(1 << 62, ())) if seed is None else check_seed(seed)
            self.register_buffer(STATE, fresh_state(drawn))

    def next_key(self) -> int:
        """Key of the random words of one use."""
        return next_key(self.rounding_state) if STATE in self._buffers else 0

    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )
        if prefix + STATE in missing_keys:
            missing_keys.remove(prefix + STATE)

    def extra_repr(self) -> str:
        """What a printed model shows of it."""
        own = super().extra_repr()
        return f"{own}, policy='{self.policy}'" if own else f"policy='{self.policy}'"


class Linear(Computed, nn.Linear):
    """`torch.nn.Linear` in the arithmetic of a policy.

    Parameters
    ----------
    in_features, out_features : int
    bias : bool
        Whether there is one: sums start from it, and its gradient is a sum of products with 1.
    policy : Policy, MacSpec or str
    seed : int, optional
        Of random words; without one torch's generator draws it.
    **parts
        As of `torch.nn.Linear`.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        policy: Policy | MacSpec | str,
        seed: int | None = None,
        **parts: Any,
    ) -> None:
        super().__init__(in_features, out_features, bias, **parts)
        self.compute_with(policy, seed)

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  # torch's name
        """The layer's result."""
        if self.policy.plain:
            return super().forward(input)
        return linear(input, self.weight, self.bias, self.policy, self.next_key())


class Conv2d(Computed, nn.Conv2d):
    """`torch.nn.Conv2d` in the arithmetic of a policy, as a matrix product.

    Parameters
    ----------
    in_channels, out_channels : int
    kernel_size : int or tuple of int
    policy : Policy, MacSpec or str
    seed : int, optional
        Of random words; without one torch's generator draws it.
    **parts
        As of `torch.nn.Conv2d`, all of which mean the same.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, int],
        *,
        policy: Policy | MacSpec | str,
        seed: int | None = None,
        **parts: Any,
    ) -> None:
        super().__init__(in_channels, out_channels, kernel_size, **parts)
        self.compute_with(policy, seed)

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  # torch's name
        """The layer's result."""
        if self.policy.plain:
            return super().forward(input)
        return conv2d(
            padded(input, tuple(self._reversed_padding_repeated_twice), self.padding_mode),  # type: ignore[arg-type]
            self.weight,
            self.bias,
            self.policy,
            self.next_key(),
            stride=self.stride,  # type: ignore[arg-type]  # torch makes tuples of numbers
            dilation=self.dilation,  # type: ignore[arg-type]
            groups=self.groups,
        )


class Bmm(Computed):
    """Matrix product of two tensors of activations, ``a @ b``, whose batches broadcast.

    Parameters
    ----------
    policy : Policy, MacSpec or str
        ``input_gradient`` is that of ``a``, and ``weight_gradient`` that of ``b``.
    seed : int, optional
        Of random words; without one torch's generator draws it.
    """

    def __init__(self, *, policy: Policy | MacSpec | str, seed: int | None = None) -> None:
        super().__init__()
        self.compute_with(policy, seed)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """The product."""
        return a @ b if self.policy.plain else bmm(a, b, self.policy, self.next_key())


class Quantize(Computed):
    """Rounding of every element, and of its gradient.

    Parameters
    ----------
    forward, backward : Cast or str, optional
        Such as ``e5m2.sr3``; None rounds nothing. Gradients pass as if nothing had been rounded forward.
    seed : int, optional
        Of random words; without one torch's generator draws it.
    """

    def __init__(
        self, forward: Cast | str | None, backward: Cast | str | None = None, *, seed: int | None = None
    ) -> None:
        super().__init__()
        self.forward_cast, self.backward_cast = _element("forward", forward), _element("backward", backward)
        casts = [cast for cast in (self.forward_cast, self.backward_cast) if cast]
        self._set_state(any(cast.rounding.bits for cast in casts), seed)

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  # torch's name
        """The rounded values."""
        return quantize(input, self.forward_cast, self.backward_cast, self.next_key())

    def extra_repr(self) -> str:
        """What a printed model shows of it."""
        return f"'{self.forward_cast}', '{self.backward_cast}'"


def _element(name: str, given: Cast | str | None) -> Cast | None:
    if given is None:
        return None
    cast = Cast.parse(given)
    if cast.fmt is None:
        raise ValueError(f"{name} is {cast}, which names no format to round to; write it like e5m2.{cast}")
    return cast
