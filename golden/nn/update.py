"""Rounding of parameters after each step of an optimiser."""

import functools
import warnings
from collections.abc import Iterable, MutableMapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.weak import WeakIdKeyDictionary

from halfulp.golden.check import check_bool

from .cast import Cast, parse_update
from .draw import check_seed, fresh_state, mix, next_key

_expected: MutableMapping[Tensor, str] = WeakIdKeyDictionary()
"""Texts of the updates that policies of converted layers name, by parameter."""

_rounded: MutableMapping[Tensor, bool] = WeakIdKeyDictionary()
"""Parameters with a `WeightUpdate`."""


@functools.cache
def _watch() -> None:
    """Watch the steps of all optimisers."""
    register_optimizer_step_pre_hook(_warn_of_expected)


def expect_update(parameters: Iterable[Tensor], cast: Cast | None) -> None:
    """Expect a `WeightUpdate` of parameters before the first step of their optimiser; none for None."""
    for parameter in parameters:
        _expected.pop(parameter, None)
        if cast is not None:
            _expected[parameter] = str(cast)
            _watch()


def _warn_of_expected(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    parameters = [one for group in optimizer.param_groups for one in group["params"] if one in _expected]
    texts = dict.fromkeys(_expected.pop(one) for one in parameters if one not in _rounded)
    if texts:
        warn_of_update(", ".join(texts))


def lacks_update(optimizer: torch.optim.Optimizer) -> bool:
    """Return True if no parameter of an optimiser has a `WeightUpdate`."""
    return all(one not in _rounded for group in optimizer.param_groups for one in group["params"])


def warn_of_update(text: str) -> None:
    """Warn of an update that a policy names and nothing applies."""
    warnings.warn(
        f"halfulp: update={text} of a policy has no effect, because the optimizer steps without a WeightUpdate; make "
        "nn.WeightUpdate(optimizer, policy.update, master=policy.master) before the first step",
        RuntimeWarning,
        stacklevel=3,
    )


class WeightUpdate:
    """Rounding of parameters to a format, at once and after each step of an optimiser.

    Parameters
    ----------
    optimizer : torch.optim.Optimizer
        Any optimiser; hooks on its steps round the parameters.
    cast : Cast or str
        Format and rounding, such as ``e6m5.sr10``. With a sparsity, such as ``2:4`` or ``e6m5.sr10 2:4``, a step
        changes only N of M consecutive elements along the second dimension of each parameter that has one: those whose
        changes have the highest scores.
    master : bool
        The optimiser updates a copy of the parameters that is not rounded. If False, it updates the rounded parameters,
        and changes below their last place may be lost.
    parameters : iterable of Parameter, optional
        Parameters to round; default: all parameters of the optimiser.
    seed : int
        Seed of the random words.

    Raises
    ------
    TypeError, ValueError
        If a parameter has the wrong type, or the cast has no format.

    Notes
    -----
    A checkpoint needs its `state_dict` in addition to those of model and optimiser.
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
            raise TypeError(f"optimizer must be an optimizer of torch.optim, not {type(optimizer).__name__}")
        check_bool("master", master)
        self.cast = parse_update(cast)
        self.master = master
        known = {id(one): one for group in optimizer.param_groups for one in group["params"]}
        # Tied weights occur twice and are rounded once.
        chosen = known if parameters is None else {id(one): one for one in parameters}
        if any(key not in known for key in chosen):
            raise ValueError("parameters must be parameters of the optimizer; one is not")
        self._parameters = list(chosen.values())
        _rounded.update(dict.fromkeys(self._parameters, True))
        self._state = fresh_state(check_seed(seed))
        self._masters: list[Tensor] = []
        self._before_step: list[Tensor] = []
        if master:
            self._masters = [parameter.detach().clone() for parameter in self._parameters]
        self._round()
        optimizer.register_step_pre_hook(self._before)
        optimizer.register_step_post_hook(self._after)

    # The step may be emulated; its masks and roundings are no part of the program.
    @_disable_current_modes()
    @torch.no_grad()
    def _before(self, *_: Any) -> None:
        for parameter, master in zip(self._parameters, self._masters, strict=False):
            parameter.copy_(master)
        if self.cast.sparsity is not None:
            self._before_step = [parameter.detach().clone() for parameter in self._parameters]

    @_disable_current_modes()
    @torch.no_grad()
    def _after(self, *_: Any) -> None:
        for parameter, before in zip(self._parameters, self._before_step, strict=False):
            if self.cast.sparsity is not None and parameter.dim() > 1:
                changed = self.cast.sparsity.mask(parameter - before, (1,))
                parameter.copy_(torch.where(changed, parameter, before))
        self._before_step = []
        for parameter, master in zip(self._parameters, self._masters, strict=False):
            master.copy_(parameter)
        self._round()

    @_disable_current_modes()
    @torch.no_grad()
    def _round(self) -> None:
        key = next_key(self._state)
        for place, parameter in enumerate(self._parameters):
            parameter.copy_(self.cast.real(parameter, mix(key, place)))

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {"random": self._state.clone(), "masters": [master.clone() for master in self._masters]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state; ValueError if it belongs to other parameters."""
        shapes = [tuple(master.shape) for master in state["masters"]]
        if shapes != [tuple(master.shape) for master in self._masters]:
            raise ValueError(f"the state has master copies of shapes {shapes}, but the parameters have other shapes")
        self._state.copy_(state["random"])
        for master, saved in zip(self._masters, state["masters"], strict=True):
            master.copy_(saved)
