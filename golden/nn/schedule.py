"""Policies that change during a run, by epoch or by loss."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from halfulp.golden.check import check_int

from .draw import REPEAT, check_seed, mix
from .layers import Stateful
from .policy import Policy
from .policy_file import PolicyFile
from .swap import Rules, convert

Choice = Mapping[int, Rules] | Sequence[Rules] | Callable[[int, float | None], Rules]
"""Policies from epochs on, policies for one plateau of the loss after the other, or a function of epoch and loss."""


class Schedule:
    """Change of the arithmetic of an emulated program or a converted model during a run, as in FASE (ECML-PKDD 2022).

    Parameters
    ----------
    target : emulate or Module
        Context of `halfulp.golden.emulate`, or a model, which is converted in place, as by `convert`.
    policies : mapping, sequence or callable
        Policies by the epoch from which they hold, such as ``{0: "fp16*fp16+fp16.rn", 5: "fp16*fp16+fp32.rn"}``; a
        sequence of policies, of which a plateau of the loss selects the next; or a function of the number of finished
        epochs and of the last loss, None at the beginning.
    patience : int
        For a sequence: number of epochs without a smaller loss after which the next policy holds.
    threshold : float
        Relative decrease below the smallest loss that is needed for a smaller one.
    seed : int
        For a model: seed of the random words, as for `convert`; each change mixes in its epoch.

    Raises
    ------
    TypeError, ValueError
        If a parameter is invalid, there is no policy for epoch 0, or policies differ in ``update`` or ``master``, which
        `WeightUpdate` applies.

    Attributes
    ----------
    epoch : int
        Number of finished epochs.

    Notes
    -----
    A checkpoint needs its `state_dict`. `load_state_dict` sets the policy, and comes before that of the model.
    """

    def __init__(
        self, target: Any, policies: Choice, *, patience: int = 3, threshold: float = 1e-3, seed: int = 0
    ) -> None:
        if not isinstance(target, nn.Module) and not hasattr(target, "set_policy"):
            raise TypeError(f"target must be a context of emulate or a Module, not {type(target).__name__}")
        self._target, self._choice, self.seed = target, policies, check_seed(seed)
        self.patience = check_int("patience", patience, 1)
        if not isinstance(threshold, (int, float)) or isinstance(threshold, bool) or not 0 <= threshold < 1:
            raise ValueError(f"threshold must be a number from 0 to below 1, not {threshold!r}")
        self.threshold = float(threshold)
        if isinstance(policies, Mapping):
            for epoch in policies:
                check_int("epoch of a policy", epoch, 0)
            if 0 not in policies:
                raise ValueError("a schedule by epoch needs a policy for epoch 0")
        elif not callable(policies) and (isinstance(policies, str) or not isinstance(policies, Sequence)):
            raise TypeError(f"policies must be a mapping, a sequence or a function, not {type(policies).__name__}")
        elif not callable(policies) and not policies:
            raise ValueError("a schedule needs at least one policy")
        self.epoch, self._smallest, self._waited, self._stage, self._changed = 0, math.inf, 0, 0, 0
        self._loss: float | None = None
        self._rules: Rules | None = None
        self._updates = {_update(rules) for rules in self._known()}
        if len(self._updates) > 1:
            raise ValueError("policies of a schedule must have the same update and master, which WeightUpdate applies")
        self._set()

    @classmethod
    def of_file(cls, target: Any, path: Path | str, *, seed: int = 0) -> "Schedule":
        """Make a schedule of the policies of a TOML file (see `PolicyFile`)."""
        file = PolicyFile.read(path)
        return cls(target, file.choice, seed=seed, **file.settings)

    def _known(self) -> list[Rules]:
        if callable(self._choice):
            return []
        return list(self._choice.values() if isinstance(self._choice, Mapping) else self._choice)

    @property
    def policy(self) -> Rules:
        """Policies that hold now."""
        if isinstance(self._choice, Mapping):
            return self._choice[max(epoch for epoch in self._choice if epoch <= self.epoch)]
        if callable(self._choice):
            return self._choice(self.epoch, self._loss)
        return self._choice[self._stage]

    def step(self, loss: float | None = None) -> None:
        """Finish an epoch with a loss, and set the policy of the next one; TypeError if a plateau needs a loss."""
        if loss is None and not isinstance(self._choice, Mapping) and not callable(self._choice):
            raise TypeError("a schedule by plateaus needs the loss: schedule.step(loss)")
        self.epoch += 1
        self._loss = None if loss is None else float(loss)
        if self._loss is not None:
            self._wait(self._loss)
        self._set()

    def _wait(self, loss: float) -> None:
        # NaN is no smaller loss.
        if loss < self._smallest - self.threshold * abs(self._smallest) or (loss < math.inf == self._smallest):
            self._smallest, self._waited = loss, 0
            return
        self._waited += 1
        if self._waited >= self.patience and isinstance(self._choice, Sequence):
            self._stage, self._waited = min(self._stage + 1, len(self._choice) - 1), 0

    def _set(self) -> None:
        """Set the policy of the target if it changed."""
        rules = self.policy
        if rules == self._rules:
            return
        if self._updates and _update(rules) not in self._updates:
            raise ValueError("policies of a schedule must have the same update and master, which WeightUpdate applies")
        self._updates = {_update(rules)}
        if self._rules is not None:
            self._changed = self.epoch
        self._apply(rules)

    def _apply(self, rules: Rules) -> None:
        self._rules = rules
        if hasattr(self._target, "set_policy"):
            self._target.set_policy(rules)
            return
        seed = mix(self.seed, self._changed) >> 1 if self._changed else self.seed
        evaluation = next(
            (module.evaluation for module in self._target.modules() if isinstance(module, Stateful)), REPEAT
        )
        convert(self._target, rules, seed=seed, inplace=True, evaluation=evaluation)

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {
            "epoch": self.epoch,
            "loss": self._loss,
            "smallest": self._smallest,
            "waited": self._waited,
            "stage": self._stage,
            "changed": self._changed,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state, and set its policy."""
        self.epoch, self._loss, self._smallest = state["epoch"], state["loss"], state["smallest"]
        self._waited, self._stage, self._changed = state["waited"], state["stage"], state["changed"]
        self._apply(self.policy)


def _update(rules: Rules) -> frozenset[tuple[Any, bool]]:
    """Return the updates of policies."""
    policies = rules.values() if isinstance(rules, Mapping) else [rules]
    return frozenset((policy.update, policy.master) for policy in map(Policy.parse, policies))
