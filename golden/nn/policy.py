"""What a layer computes in: its multiply-accumulates, and how its tensors are rounded."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from halfulp.golden.check import check_bool
from halfulp.hdl.specs import MacSpec

from .cast import Cast

FLOAT = "fp32"
"""In place of a multiply-accumulate: torch's own arithmetic."""

PRODUCTS = ("forward", "input_gradient", "weight_gradient")
"""The three matrix products of a layer."""

PLAIN = Cast()
"""To nearest, in the format that is needed."""

DEVICES = ("rtl",)
"""What may make products in place of the golden model."""

_CASTS = ("weights", "activations", "gradients", "bias")


@dataclass(frozen=True)
class Policy:
    """Arithmetic of a layer.

    Parameters
    ----------
    forward : MacSpec or str, optional
        Multiply-accumulate of the layer's result, whose operand ``a`` are activations and ``b`` weights. None, and the
        text ``fp32``, is torch's own arithmetic; as for the other two.
    input_gradient : MacSpec or str, optional
        Of the gradient of the layer's input: ``a`` are gradients and ``b`` weights.
    weight_gradient : MacSpec or str, optional
        Of the gradient of weights and bias: ``a`` are gradients and ``b`` activations.
    weights, activations, gradients, bias : Cast or str
        How these become codes: ``rn`` rounds to nearest, to the operand's format; ``e5m2.sr3`` first rounds to e5m2, at
        random. The bias is what sums start from, so that its format is the result's unless it has one of its own.
    update : Cast or str, optional
        Format and rounding of parameters after each step of the optimiser, such as ``e6m5.sr10``; see `WeightUpdate`.
    master : bool
        Whether the optimiser steps a copy of the parameters that is not rounded so.
    device : str, optional
        ``rtl``: products are made by a Verilated kernel around an array, to the same bits; for small ones, once
        `halfulp.fpga.kernel.layers` has been imported. Where they round at random the array's multiply-accumulates have
        sources of their own, whose words are not those of the golden layer (`halfulp.fpga.kernel.layers.expected` has
        them).

    Raises
    ------
    TypeError, ValueError
        If a part is of the wrong kind or none, or ``master`` has nothing to be the copy of.

    Notes
    -----
    ``str()`` gives a text such as ``e5m2*e5m2+e6m5.sr10`` where one multiply-accumulate does all, followed by what else
    is not as by default: ``e5m2*e5m2+e6m5.rn, weights=e5m2.sr3``. `Policy.parse` reads it back.
    """

    forward: MacSpec | None = None
    input_gradient: MacSpec | None = None
    weight_gradient: MacSpec | None = None
    weights: Cast = PLAIN
    activations: Cast = PLAIN
    gradients: Cast = PLAIN
    bias: Cast = PLAIN
    update: Cast | None = None
    master: bool = False
    device: str | None = None

    def __post_init__(self) -> None:
        for name in PRODUCTS:
            object.__setattr__(self, name, _named(name, _mac, getattr(self, name)))
        for name in _CASTS:
            object.__setattr__(self, name, _named(name, Cast.parse, getattr(self, name)))
        if self.update is not None:
            object.__setattr__(self, "update", check_update(_named("update", Cast.parse, self.update)))
        check_bool("master", self.master)
        if self.master and self.update is None:
            raise ValueError("master keeps a copy of parameters that are rounded after each step; name an update too")

        if self.device is not None and self.device not in DEVICES:
            raise ValueError(f"unknown device {self.device!r}; products are made on {', '.join(DEVICES)}, or by golden")

    @classmethod
    def of(cls, mac: MacSpec | str | None, **parts: Any) -> "Policy":
        """One multiply-accumulate for all three products; other parts as of `Policy`."""
        return cls(**(dict.fromkeys(PRODUCTS, mac) | parts))

    @classmethod
    def parse(cls, text: "str | MacSpec | Policy") -> "Policy":
        """Policy that ``str()`` wrote, or of a multiply-accumulate; a policy is taken as it is."""
        if isinstance(text, cls):
            return text
        if isinstance(text, MacSpec):
            return cls.of(text)
        if not isinstance(text, str):
            raise TypeError(
                f"a policy is a Policy, a MacSpec or a text such as 'e5m2*e5m2+e6m5.sr10', not {type(text).__name__}"
            )
        parts: dict[str, Any] = {}
        for piece in (piece.strip() for piece in text.split(",")):
            key, equals, value = piece.partition("=")
            # Between operands and a rounded product there is an equals sign too.
            name, value = ("mac", piece) if "*" in key or not equals else (key.strip(), value.strip())
            if name in parts:
                raise ValueError(f"policy {text!r} says {name} twice")
            parts[name] = value
        return cls.from_table(parts)

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> "Policy":
        """Policy of a table of a TOML file: its keys are the parameters, and ``mac`` for the products not named."""
        parts = _each(table)
        known = [field.name for field in fields(cls)]
        for key in parts:
            if key not in known:
                raise ValueError(f"a policy has no {key!r}; its parts are mac, {', '.join(known)}")
        if isinstance(parts.get("master"), str):
            parts["master"] = {"true": True, "false": False}.get(parts["master"], parts["master"])
        return cls(**parts)

    def __str__(self) -> str:
        macs = [_text(getattr(self, name)) for name in PRODUCTS]
        if len(set(macs)) == 1:
            pieces = [macs[0]]
        else:
            pieces = [f"{name}={mac}" for name, mac in zip(PRODUCTS, macs, strict=True)]
        pieces += [f"{name}={getattr(self, name)}" for name in _CASTS if getattr(self, name) != PLAIN]
        pieces += [f"update={self.update}"] if self.update else []
        pieces += ["master=true"] if self.master else []
        pieces += [f"device={self.device}"] if self.device else []
        return ", ".join(pieces)

    @property
    def macs(self) -> tuple[MacSpec | None, MacSpec | None, MacSpec | None]:
        """Of forward, input gradient and weight gradient."""
        return self.forward, self.input_gradient, self.weight_gradient

    @property
    def plain(self) -> bool:
        """Whether a layer computes as torch's own does."""
        return self.macs == (None, None, None) and all(getattr(self, name).fmt is None for name in _CASTS)

    @property
    def stochastic(self) -> bool:
        """Whether anything in a layer is rounded at random."""
        casts = [getattr(self, name) for name in _CASTS]
        return any(mac.words for mac in self.macs if mac) or any(cast.rounding.bits for cast in casts)


def rules(path: Path) -> dict[str, Policy]:
    """Policies by patterns of names, from a TOML file.

    Its keys are those of a policy for all layers; tables ``[layers."PATTERN"]`` say what is different in layers whose
    names match, the first that does.

    Raises
    ------
    TypeError, ValueError
        If the file cannot be read or describes none.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        layers = table.pop("layers", {})
        if not isinstance(layers, dict) or not all(isinstance(one, dict) for one in layers.values()):
            raise ValueError('layers are tables, such as [layers."fc*"]')
        found = {pattern: Policy.from_table(_over(table, own)) for pattern, own in layers.items()}
        return found | {"*": Policy.from_table(table)}
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from error
    except TypeError as error:
        raise TypeError(f"{path.name}: {error}") from error
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from error


def _over(table: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of all layers, and over them those of some."""
    return _each(table) | _each(own)


def _each(table: Mapping[str, Any]) -> dict[str, Any]:
    """The same table with each product in place of ``mac``."""
    parts = dict(table)
    return dict.fromkeys(PRODUCTS, parts.pop("mac")) | parts if "mac" in parts else parts


def check_update(cast: Cast) -> Cast:
    """A cast of parameters, refused unless it has a format."""
    if cast.fmt is None:
        raise ValueError(f"an update rounds parameters to a format, and {cast} names none; write it like e6m5.{cast}")
    return cast


def _mac(given: object) -> MacSpec | None:
    return None if given is None or given == FLOAT else MacSpec.parse(given)  # type: ignore[arg-type]  # it refuses


def _text(mac: MacSpec | None) -> str:
    return FLOAT if mac is None else str(mac)


def _named(name: str, function: Any, given: object) -> Any:
    try:
        return function(given)
    except TypeError as error:
        raise TypeError(f"{name}: {error}") from error
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
