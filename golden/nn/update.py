"""Rounding of parameters after each step of an optimiser."""

import functools
import warnings
from collections.abc import Iterable, MutableMapping
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.weak import WeakIdKeyDictionary

from halfulp.golden.check import check_bool
from halfulp.golden.torch_internals import without_dispatch_modes

from .cast import Cast, parse_update
from .draw import check_seed, fresh_state, mix, next_key

_expected: MutableMapping[Tensor, str] = WeakIdKeyDictionary()
"""Texts of the updates that policies of converted layers name, by parameter."""

_rounding: MutableMapping[Tensor, bool] = WeakIdKeyDictionary()
"""Parameters with a `WeightUpdate`."""

_updates: MutableMapping[torch.optim.Optimizer, int] = WeakKeyDictionary()
"""Number of the `WeightUpdate` of an optimiser."""

STATES = "weight_updates"
"""Entry of the state dict of an optimiser for the states of each `WeightUpdate`, in the order of their making."""


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
    parameters = [
        parameter for group in optimizer.param_groups for parameter in group["params"] if parameter in _expected
    ]
    texts = dict.fromkeys(_expected.pop(parameter) for parameter in parameters if parameter not in _rounding)
    if texts:
        warn_of_update(", ".join(texts))


def lacks_update(optimizer: torch.optim.Optimizer) -> bool:
    """Return True if no parameter of an optimiser has a `WeightUpdate`."""
    return all(parameter not in _rounding for group in optimizer.param_groups for parameter in group["params"])


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
        Parameters to round; default: all parameters of the optimiser, with those of later calls of ``add_param_group``.
    seed : int
        Seed of the random words.

    Raises
    ------
    TypeError, ValueError
        If a parameter has the wrong type, or the cast has no format.

    Notes
    -----
    Elements of the parameters that other code writes between steps, such as ``load_state_dict``, clipping or averaging,
    replace those of the copy. The state dict of the optimiser includes `state_dict`, with the copy and the state of the
    random words, in its entry ``weight_updates``. An optimiser reads this entry only after the `WeightUpdate` is made.
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
        known = {id(parameter): parameter for group in optimizer.param_groups for parameter in group["params"]}
        # Tied weights occur twice and are rounded once.
        chosen = known if parameters is None else {id(parameter): parameter for parameter in parameters}
        if any(key not in known for key in chosen):
            raise ValueError("parameters must be parameters of the optimizer; one is not")
        self._state = fresh_state(check_seed(seed))
        self._parameters: list[Tensor] = []
        self._masters: list[Tensor] = []
        self._rounded: list[Tensor] = []
        """Roundings of the masters, as last written to the parameters."""
        self._before_step: list[Tensor] = []
        self._take(chosen.values())
        if master and optimizer.state:
            warnings.warn(
                "halfulp: the optimizer has a state, and the master copies start from the rounded parameters; make "
                "nn.WeightUpdate before optimizer.load_state_dict, which then loads the copies, too",
                RuntimeWarning,
                stacklevel=2,
            )
        optimizer.register_step_pre_hook(self._before)
        optimizer.register_step_post_hook(self._after)
        self._place = _updates.get(optimizer, 0)
        _updates[optimizer] = self._place + 1
        optimizer.register_state_dict_post_hook(self._save)
        optimizer.register_load_state_dict_pre_hook(self._load)
        if parameters is None:
            add = optimizer.add_param_group

            @functools.wraps(add)
            def add_and_round(group: dict[str, Any]) -> None:
                add(group)
                held = set(map(id, self._parameters))
                self._take(parameter for parameter in optimizer.param_groups[-1]["params"] if id(parameter) not in held)

            optimizer.add_param_group = add_and_round  # type: ignore[method-assign, assignment]  # torch has no hook

    def _take(self, parameters: Iterable[Tensor]) -> None:
        """Round more parameters, at once and after each step."""
        first = len(self._parameters)
        self._parameters += parameters
        _rounding.update(dict.fromkeys(self._parameters[first:], True))
        if self.master:
            self._masters += [parameter.detach().clone() for parameter in self._parameters[first:]]
        if not first:
            self._key = next_key(self._state)
        self._round(first)

    # The step may be emulated; its masks and roundings are no part of the program.
    @without_dispatch_modes()
    @torch.no_grad()
    def _before(self, *_: Any) -> None:
        for parameter, master, rounded in zip(self._parameters, self._masters, self._rounded, strict=False):
            written = _bits(parameter) != _bits(rounded.to(parameter))
            parameter.copy_(torch.where(written, parameter, master.to(parameter)))
        if self.cast.sparsity is not None:
            self._before_step = [parameter.detach().clone() for parameter in self._parameters]

    @without_dispatch_modes()
    @torch.no_grad()
    def _after(self, *_: Any) -> None:
        for parameter, before in zip(self._parameters, self._before_step, strict=False):
            if self.cast.sparsity is not None and parameter.dim() > 1:
                changed = self.cast.sparsity.mask(parameter - before, (1,))
                parameter.copy_(torch.where(changed, parameter, before))
        self._before_step = []
        for parameter, master in zip(self._parameters, self._masters, strict=False):
            master.copy_(parameter)
        self._key = next_key(self._state)
        self._round()

    @without_dispatch_modes()
    @torch.no_grad()
    def _round(self, first: int = 0) -> None:
        for place, parameter in enumerate(self._parameters[first:], first):
            # A distributed tensor is rounded in parts, each by the process that holds it.
            part = parameter.to_local() if hasattr(parameter, "to_local") else parameter
            part.copy_(self.cast.real(part, mix(self._key, place)))
        if self.master:
            self._rounded[first:] = [parameter.detach().clone() for parameter in self._parameters[first:]]

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {"random": self._state.clone(), "masters": [master.clone() for master in self._masters]}

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state; ValueError if it belongs to other parameters."""
        shapes = [tuple(master.shape) for master in state["masters"]]
        if shapes != [tuple(master.shape) for master in self._masters]:
            raise ValueError(f"the state has master copies of shapes {shapes}, but the parameters have other shapes")
        self._state.copy_(state["random"])
        self._key = next_key(self._state - torch.tensor([0, 1, 0]))
        for place, (master, saved) in enumerate(zip(self._masters, state["masters"], strict=True)):
            master.copy_(saved)
            self._rounded[place].copy_(self.cast.real(master.to(self._parameters[place]), mix(self._key, place)))

    def _save(self, _: Any, state: dict[str, Any]) -> None:
        state.setdefault(STATES, []).append(self.state_dict())

    def _load(self, _: Any, state: dict[str, Any]) -> None:
        if self._place < len(state.get(STATES, ())):
            self.load_state_dict(state[STATES][self._place])


def _bits(x: Tensor) -> Tensor:
    """Return the bits of numbers as integers, so that signs of zeros and NaN are compared too."""
    return x.detach().view(_INTEGERS[x.element_size()])


_INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
