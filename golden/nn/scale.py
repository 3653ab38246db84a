"""Loss scaling: gradients large enough for the formats that they pass through."""

import math
from typing import Any

import torch
from torch import Tensor

from halfulp.golden.check import check_bool, check_int


class LossScaler:
    """Multiplies the loss, and divides the gradients before the optimiser's step.

    Parameters
    ----------
    start : float
        Factor at the beginning; a power of two is exact.
    adaptive : bool
        Halve the factor and skip the step if a gradient is infinite or NaN; double it after ``interval`` good steps. A
        static factor stays, and no step is skipped.
    interval : int
        Good steps before the factor is doubled.

    Raises
    ------
    TypeError, ValueError
        If a part is of the wrong kind or out of range.

    Attributes
    ----------
    factor : float
        Present factor of the loss.
    skipped : int
        Steps that were skipped.

    Notes
    -----
    Before `step` divides them, gradients are ``factor`` times as large: ``clip_grad_norm_(parameters, scaler.factor)``
    clips their norm at 1.
    """

    def __init__(self, start: float = 256.0, *, adaptive: bool = True, interval: int = 2000) -> None:
        check_bool("adaptive", adaptive)
        if not isinstance(start, (int, float)) or isinstance(start, bool):
            raise TypeError(f"a loss scale is a number, not {type(start).__name__}")
        if not (start > 0 and math.isfinite(start)):
            raise ValueError(f"a loss scale is more than 0 and finite, not {start}")
        check_int("interval", interval, 1)
        self.factor, self.adaptive, self.interval = float(start), adaptive, interval
        self.skipped = self._good = 0

    def scale(self, loss: Tensor) -> Tensor:
        """The loss times the factor."""
        return loss * self.factor

    @torch.no_grad()
    def step(self, optimizer: torch.optim.Optimizer) -> bool:
        """Divide the gradients and step the optimiser; False if the step was skipped."""
        finite = True
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.grad /= self.factor
                    finite = finite and bool(parameter.grad.isfinite().all())
        if finite or not self.adaptive:
            optimizer.step()
        if self.adaptive:
            self._adapt(finite)
        return finite or not self.adaptive

    def _adapt(self, finite: bool) -> None:
        if not finite:
            # A factor of zero would not make gradients finite.
            self.factor, self._good = max(self.factor / 2, 2.0**-64), 0
            self.skipped += 1
            return
        self._good += 1
        # A loss in float32 stays finite.
        if self._good >= self.interval and self.factor < 2.0**64:
            self.factor, self._good = self.factor * 2, 0

    def state_dict(self) -> dict[str, Any]:
        """State to go on from."""
        return {"factor": self.factor, "good": self._good, "skipped": self.skipped}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self.factor, self._good, self.skipped = state["factor"], state["good"], state["skipped"]
