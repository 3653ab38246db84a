"""Parameters in a format of their own, with any optimiser."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from halfulp.golden.check import check_bool

from .cast import Cast
from .draw import check_seed, fresh_state, mix, next_key
from .policy import check_update


class WeightUpdate:
    """Rounds parameters to a format, now and after each step of an optimiser.

    Parameters
    ----------
    optimizer : torch.optim.Optimizer
        Any; it is used as before, and this class acts by its hooks.
    cast : Cast or str
        Format and rounding, such as ``e6m5.sr10``.
    master : bool
        The optimiser steps a copy of the parameters that is not rounded, in their own dtype. Without it a step starts
        from the rounded parameters, so that smaller changes than their last place may be lost.
    parameters : iterable of Parameter, optional
        Parameters to round; default: all of the optimiser's.
    seed : int
        Seed of the random words.

    Raises
    ------
    TypeError, ValueError
        If a part is of the wrong kind, or the cast names no format.

    Notes
    -----
    The state that a checkpoint needs beside those of model and optimiser is in `state_dict`.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        cast: Cast | str,
        *,
        master: bool = False,
        parameters: Iterable[nn.Parameter] | None = None,
        seed: int = 0,
    ) -> None:
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise TypeError(f"an optimizer is one of torch.optim, not {type(optimizer).__name__}")
        check_bool("master", master)
        self.cast = check_update(cast)
        self.master = master
        known = {id(one): one for group in optimizer.param_groups for one in group["params"]}
        # Tied weights, which are given twice, are rounded once.
        chosen = known if parameters is None else {id(one): one for one in parameters}
        if any(key not in known for key in chosen):
            raise ValueError("parameters has one that the optimizer does not step")
        self._parameters = list(chosen.values())
        self._state = fresh_state(check_seed(seed))
        self._masters: list[Tensor] = []
        if master:
            self._masters = [parameter.detach().clone() for parameter in self._parameters]
        self._round()
        optimizer.register_step_pre_hook(self._before)
        optimizer.register_step_post_hook(self._after)

    @torch.no_grad()
    def _before(self, *_: Any) -> None:
        for parameter, master in zip(self._parameters, self._masters, strict=False):
            parameter.copy_(master)

    @torch.no_grad()
    def _after(self, *_: Any) -> None:
        for parameter, master in zip(self._parameters, self._masters, strict=False):
            master.copy_(parameter)
        self._round()

    @torch.no_grad()
    def _round(self) -> None:
        key = next_key(self._state)
        for place, parameter in enumerate(self._parameters):
            parameter.copy_(self.cast.real(parameter, mix(key, place)))

    def state_dict(self) -> dict[str, Any]:
        """State to go on from."""
        return {"random": self._state.clone(), "masters": [master.clone() for master in self._masters]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there.

        Raises
        ------
        ValueError
            If the state is of other parameters.
        """
        shapes = [tuple(master.shape) for master in state["masters"]]
        if shapes != [tuple(master.shape) for master in self._masters]:
            raise ValueError(f"the state has master copies of shapes {shapes}, which are not those of the parameters")
        self._state.copy_(state["random"])
        for master, saved in zip(self._masters, state["masters"], strict=True):
            master.copy_(saved)
