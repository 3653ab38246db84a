"""Loss scaling."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from halfulp.golden.check import check_bool, check_int
from halfulp.golden.torch_internals import without_dispatch_modes

MAX_FACTOR = torch.finfo(torch.float32).max
"""Largest factor: that of a loss in float32."""


class _Scaled(torch.autograd.Function):
    """Product with a factor, which is no part of an emulated program; its gradient is one, too."""

    generate_vmap_rule = True

    @staticmethod
    @without_dispatch_modes()
    def forward(x: Tensor, factor: float) -> Tensor:
        """Multiply."""
        return x * factor

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float], output: Tensor) -> None:
        """Keep the factor."""
        _, ctx.factor = inputs

    @staticmethod
    @without_dispatch_modes()
    def jvp(ctx: Any, tangent: Tensor, _: None) -> Tensor:
        """Multiply the tangent."""
        return tangent * ctx.factor

    @staticmethod
    @without_dispatch_modes()
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """Multiply the gradient."""
        return gradient * ctx.factor, None


class LossScaler:
    """Loss scaler: multiplies the loss by a factor, and divides gradients by it before a step of the optimiser.

    The methods are those of `torch.amp.GradScaler`: `scale` the loss, `step` each optimiser, and `update` the factor
    once for each iteration.

    Parameters
    ----------
    start : float
        Initial factor; with a power of two, scaling is exact.
    adaptive : bool
        Skip the step of an optimiser that has an infinite or NaN gradient, and halve the factor at the end of such an
        iteration; double it after ``interval`` iterations without that. If False, the factor is constant and no step is
        skipped.
    interval : int
        Number of iterations before the factor is doubled.

    Raises
    ------
    TypeError, ValueError
        If a parameter has the wrong type or is out of range.

    Attributes
    ----------
    factor : float
        Current factor.
    skipped : int
        Number of skipped steps.

    Notes
    -----
    Gradients include the factor until `unscale_` or `step` divides them. To clip their norm, call `unscale_` before.
    Unlike torch's scaler, gradients in float16 are allowed, and all sparse gradients are coalesced, because the sum of
    equal indices may overflow.
    """

    def __init__(self, start: float = 256.0, *, adaptive: bool = True, interval: int = 2000) -> None:
        check_bool("adaptive", adaptive)
        check_int("interval", interval, 1)
        self.factor, self.adaptive, self.interval = _factor("start", start), adaptive, interval
        self.skipped = self._good = 0
        # Optimisers since the last update: True if all gradients are finite, and those that have stepped.
        self._finite: dict[torch.optim.Optimizer, bool] = {}
        self._stepped: set[torch.optim.Optimizer] = set()

    def get_scale(self) -> float:
        """Return the current factor."""
        return self.factor

    def scale(self, outputs: Any) -> Any:
        """Multiply a loss, or each loss of an iterable, by the factor."""
        if isinstance(outputs, Tensor):
            scaled: Tensor = _Scaled.apply(outputs, self.factor)
            return scaled
        if isinstance(outputs, Iterable) and not isinstance(outputs, str):
            kind = type(outputs) if isinstance(outputs, (list, tuple)) else list
            return kind(map(self.scale, outputs))
        raise TypeError(f"outputs must be a tensor or an iterable of tensors, not {type(outputs).__name__}")

    # A training step may be emulated; its scaling is no part of the program.
    @without_dispatch_modes()
    @torch.no_grad()
    def unscale_(self, optimizer: torch.optim.Optimizer) -> None:
        """Divide the gradients of an optimiser by the factor, for example to clip them before its step.

        Raises
        ------
        RuntimeError
            If that was done already since the last `update`.
        """
        if optimizer in self._finite:
            done = "has already stepped" if optimizer in self._stepped else "has been unscaled already"
            raise RuntimeError(f"{type(optimizer).__name__} {done} since the last update(); call update() in between")
        finite = True
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    if parameter.grad.layout == torch.sparse_coo:
                        parameter.grad = parameter.grad.coalesce()
                    values = parameter.grad if parameter.grad.layout == torch.strided else parameter.grad.values()
                    values /= self.factor
                    finite = finite and bool(values.isfinite().all())
        self._finite[optimizer] = finite

    def step(self, optimizer: torch.optim.Optimizer, *arguments: Any, **named: Any) -> Any:
        """Step an optimiser, after `unscale_` if that was not called; None if a gradient is infinite or NaN.

        Parameters
        ----------
        optimizer : torch.optim.Optimizer
        *arguments, **named
            Arguments of the optimiser's step; a closure is not supported.

        Raises
        ------
        RuntimeError
            If the optimiser has stepped already since the last `update`, or there is a closure.
        """
        if named.get("closure") is not None or any(map(callable, arguments)):
            raise RuntimeError("LossScaler.step takes no closure, whose gradients it could not divide")
        if optimizer not in self._finite or optimizer in self._stepped:
            self.unscale_(optimizer)
        self._stepped.add(optimizer)
        if self.adaptive and not self._finite[optimizer]:
            self.skipped += 1
            return None
        return optimizer.step(*arguments, **named)

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """End an iteration: adapt the factor, or set it to ``new_scale``.

        Raises
        ------
        RuntimeError
            If no optimiser has stepped or been unscaled since the last update.
        """
        if new_scale is not None:
            self.factor = _factor("new_scale", new_scale.item() if isinstance(new_scale, Tensor) else new_scale)
        elif not self._finite:
            raise RuntimeError("update() follows step() or unscale_() of at least one optimizer; none was called")
        elif self.adaptive:
            self._adapt(all(self._finite.values()))
        self._finite, self._stepped = {}, set()

    def _adapt(self, finite: bool) -> None:
        if not finite:
            # The limit prevents a factor of zero.
            self.factor, self._good = max(self.factor / 2, 2.0**-64), 0
            return
        self._good += 1
        # The limit prevents overflow of a loss in float32.
        if self._good >= self.interval and self.factor < 2.0**64:
            self.factor, self._good = self.factor * 2, 0

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {"factor": self.factor, "good": self._good, "skipped": self.skipped}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state; TypeError or ValueError if it is none of a loss scaler."""
        if missing := self.state_dict().keys() - state.keys():
            raise ValueError(f"the state has no {', '.join(sorted(missing))}; it is none of a LossScaler")
        for name in ("good", "skipped"):
            check_int(name, state[name], 0)
        self.factor, self._good, self.skipped = _factor("factor", state["factor"]), state["good"], state["skipped"]


def _factor(name: str, given: Any) -> float:
    if not isinstance(given, (int, float)) or isinstance(given, bool):
        raise TypeError(f"{name} must be a number, not {type(given).__name__}")
    if not 0 < given <= MAX_FACTOR:
        raise ValueError(f"{name} must be greater than 0 and finite in float32, not {given}")
    return float(given)
