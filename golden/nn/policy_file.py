"""Policies in TOML files: by pattern, and their changes during a run."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from halfulp.tools.texts import text_of, toml_of

from .policy import Policy, expanded, prefixed

Table = Mapping[str, Any]
Rules = dict[str, Policy]


@dataclass(frozen=True)
class PolicyFile:
    """Policies of a file by pattern, in the order of the file, with ``*`` for those of all other layers.

    Attributes
    ----------
    rules : dict
        Policies at the beginning.
    epochs : dict
        Policies by the number of finished epochs after which they hold.
    plateaus : tuple of dict
        Policies after each plateau of the loss.
    settings : dict
        ``patience`` and ``threshold`` of plateaus, as parameters of `Schedule`.
    """

    rules: Rules
    epochs: dict[int, Rules] = field(default_factory=dict)
    plateaus: tuple[Rules, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path | str) -> "PolicyFile":
        """Read a TOML file.

        Its keys are those of a policy, for all layers. Tables ``[layers."PATTERN"]`` change keys for layers with
        matching names; the first match counts. Tables ``[epochs.5]`` change keys after 5 finished epochs, and tables
        ``[[plateaus]]``, one after the other, when the loss no longer decreases, with ``patience`` and ``threshold`` of
        `Schedule` as keys of the file. Both change layers by ``[epochs.5.layers."PATTERN"]`` and
        ``[plateaus.layers."PATTERN"]``; other keys stay.

        Raises
        ------
        TypeError, ValueError
            If the file cannot be read, or a policy or a table is invalid.
        """
        path = Path(path)
        text = text_of(path)
        with prefixed(path.name):
            return cls._of(toml_of(text))

    @classmethod
    def _of(cls, table: dict[str, Any]) -> "PolicyFile":
        epochs, plateaus = table.pop("epochs", {}), table.pop("plateaus", [])
        if not _are_tables(epochs) or not all(name.isdecimal() and int(name) for name in epochs):
            raise ValueError("epochs must be tables by the number of finished epochs, such as [epochs.5]")
        if not isinstance(plateaus, list) or not all(isinstance(plateau, dict) for plateau in plateaus):
            raise ValueError("plateaus must be tables [[plateaus]]")
        if epochs and plateaus:
            raise ValueError("policies change by epochs or by plateaus, not both")
        names = ("patience", "threshold") if plateaus else ()
        settings = {name: table.pop(name) for name in names if name in table}
        state, changes = table, []
        for change in plateaus or [epochs[name] for name in sorted(epochs, key=int)]:
            state = _changed(state, change)
            changes.append(_rules(state))
        if plateaus:
            return cls(_rules(table), {}, tuple(changes), settings)
        return cls(_rules(table), dict(zip(sorted(map(int, epochs)), changes, strict=True)))

    @property
    def choices(self) -> list[Rules]:
        """Policies by pattern, in the order in which they hold."""
        return [self.rules, *self.epochs.values(), *self.plateaus]

    @property
    def policies(self) -> list[Policy]:
        """All policies."""
        return [policy for rules in self.choices for policy in rules.values()]

    def __str__(self) -> str:
        texts = [_text(self.rules), *(f"after epoch {epoch}: {_text(rules)}" for epoch, rules in self.epochs.items())]
        return "; ".join(
            texts + [f"after plateau {place}: {_text(rules)}" for place, rules in enumerate(self.plateaus, 1)]
        )

    @property
    def choice(self) -> dict[int, Rules] | list[Rules]:
        """Policies as `Schedule` takes them."""
        return [self.rules, *self.plateaus] if self.plateaus else {0: self.rules} | self.epochs


def rules(path: Path | str) -> Rules:
    """Read policies by layer name from a TOML file (see `PolicyFile.read`); ValueError if they change during a run."""
    file = PolicyFile.read(path)
    if file.epochs or file.plateaus:
        raise ValueError(f"{Path(path).name}: policies change during a run; use Schedule.of_file")
    return file.rules


def _text(rules: Rules) -> str:
    """Return the policies by pattern, or the only one."""
    if len(rules) == 1:
        return str(*rules.values())
    return "; ".join(f"{pattern}: {policy}" for pattern, policy in rules.items())


def _are_tables(tables: object) -> bool:
    return isinstance(tables, dict) and all(isinstance(table, dict) for table in tables.values())


def _layers(table: Table) -> dict[str, dict[str, Any]]:
    layers = table.get("layers", {})
    if not _are_tables(layers):
        raise ValueError('layers must be tables, such as [layers."fc*"]')
    return {pattern: expanded(layer) for pattern, layer in layers.items()}


def _changed(table: Table, change: Table) -> dict[str, Any]:
    """Return a table with the changed keys, also in its layers."""
    before, own = _layers(table), _layers(change)
    layers = before | {pattern: before.get(pattern, {}) | layer for pattern, layer in own.items()}
    return expanded(table) | expanded(change) | {"layers": layers}


def _rules(table: Table) -> Rules:
    """Make the policies of a table with tables of layers."""
    common = {key: value for key, value in expanded(table).items() if key != "layers"}
    policies = {pattern: Policy.from_table(common | own) for pattern, own in _layers(table).items()}
    return policies | {"*": Policy.from_table(common)}
