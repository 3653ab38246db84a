"""Loss scaling."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from halfulp.golden.check import check_bool, check_int


class LossScaler:
    """Loss scaler: multiplies the loss by a factor, and divides gradients by it before a step of the optimiser.

    Parameters
    ----------
    start : float
        Initial factor; with a power of two, scaling is exact.
    adaptive : bool
        Halve the factor and skip the step if a gradient is infinite or NaN; double it after ``interval`` steps without
        that. If False, the factor is constant and no step is skipped.
    interval : int
        Number of steps before the factor is doubled.

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
    Gradients include the factor until `step` divides them: ``clip_grad_norm_(parameters, scaler.factor)`` clips their
    norm to 1.
    """

    def __init__(self, start: float = 256.0, *, adaptive: bool = True, interval: int = 2000) -> None:
        check_bool("adaptive", adaptive)
        if not isinstance(start, (int, float)) or isinstance(start, bool):
            raise TypeError(f"start must be a number, not {type(start).__name__}")
        if not (start > 0 and math.isfinite(start)):
            raise ValueError(f"start must be finite and greater than 0, not {start}")
        check_int("interval", interval, 1)
        self.factor, self.adaptive, self.interval = float(start), adaptive, interval
        self.skipped = self._good = 0

    def scale(self, loss: Tensor) -> Tensor:
        """Multiply the loss by the factor."""
        return loss * self.factor

    @torch.no_grad()
    def step(self, optimizer: torch.optim.Optimizer, step: Callable[[], object] | None = None) -> bool:
        """Divide the gradients and step the optimiser, or call ``step``; return False if the step was skipped."""
        finite = True
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.grad /= self.factor
                    finite = finite and bool(parameter.grad.isfinite().all())
        if finite or not self.adaptive:
            (step or optimizer.step)()
        if self.adaptive:
            self._adapt(finite)
        return finite or not self.adaptive

    def _adapt(self, finite: bool) -> None:
        if not finite:
            # The limit prevents a factor of zero.
            self.factor, self._good = max(self.factor / 2, 2.0**-64), 0
            self.skipped += 1
            return
        self._good += 1
        # The limit prevents overflow of a loss in float32.
        if self._good >= self.interval and self.factor < 2.0**64:
            self.factor, self._good = self.factor * 2, 0

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {"factor": self.factor, "good": self._good, "skipped": self.skipped}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state."""
        self.factor, self._good, self.skipped = state["factor"], state["good"], state["skipped"]
