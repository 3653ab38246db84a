"""Arithmetic of layers: multiply-accumulates, and roundings of tensors."""

import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from halfulp.golden.check import check_bool
from halfulp.hdl.specs import MacSpec

from .cast import Cast

FLOAT = "fp32"
"""Name of torch's own arithmetic in place of a multiply-accumulate."""

PRODUCTS = ("forward", "input_gradient", "weight_gradient")
"""The three matrix products of a layer."""

PLAIN = Cast()
"""Rounding to nearest, to the format of the use."""

DEVICES = ("rtl",)
"""Devices that may compute products in place of the golden model."""

_CASTS = ("weights", "activations", "gradients", "bias")


@dataclass(frozen=True)
class Policy:
    """Arithmetic of a layer.

    Parameters
    ----------
    forward : MacSpec or str, optional
        Multiply-accumulate of the layer's result; operand ``a`` are activations and ``b`` weights. None, or the text
        ``fp32``, is torch's own arithmetic here and in the next two.
    input_gradient : MacSpec or str, optional
        The same for the gradient of the layer's input: ``a`` are gradients and ``b`` weights.
    weight_gradient : MacSpec or str, optional
        The same for the gradient of weights and bias: ``a`` are gradients and ``b`` activations.
    weights, activations, gradients, bias : Cast or str
        Roundings of these tensors: ``rn`` rounds to nearest, to the operand's format; ``e5m2.sr3`` rounds to e5m2 at
        random first. Sums start from the bias, in the format of the result.
    update : Cast or str, optional
        Format and rounding of parameters after each step of the optimiser, such as ``e6m5.sr10``; see `WeightUpdate`.
    master : bool
        The optimiser steps a copy of the parameters that is not rounded.
    device : str, optional
        ``rtl``: a Verilated kernel around an array computes the products, to the same bits; for small ones, after
        importing `halfulp.fpga.kernel.layers`. For stochastic rounding the multiply-accumulates of the array have
        sources of their own, with other words than the golden layer (see `halfulp.fpga.kernel.layers.expected`).

    Raises
    ------
    TypeError, ValueError
        If a part is invalid, or ``master`` is given without ``update``.

    Notes
    -----
    ``str()`` gives a text such as ``e5m2*e5m2+e6m5.sr10`` if one multiply-accumulate computes all products, then the
    parts that differ from their defaults: ``e5m2*e5m2+e6m5.rn, weights=e5m2.sr3``. `Policy.parse` reads it back.
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
        readers: dict[str, Callable[[Any], Any]] = dict.fromkeys(PRODUCTS, _mac) | dict.fromkeys(_CASTS, Cast.parse)
        if self.update is not None:
            readers["update"] = check_update
        for name, read in readers.items():
            with _prefixed(name):
                object.__setattr__(self, name, read(getattr(self, name)))
        check_bool("master", self.master)
        if self.master and self.update is None:
            raise ValueError("master is a copy of rounded parameters; name an update too")
        if self.device is not None and self.device not in DEVICES:
            raise ValueError(f"unknown device {self.device!r}; expected {', '.join(DEVICES)}, or none")

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
        """Policy of a table of a TOML file; its keys are the parameters, and ``mac`` for the other products."""
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
        """Multiply-accumulates of forward, input gradient and weight gradient."""
        return self.forward, self.input_gradient, self.weight_gradient

    @property
    def casts(self) -> tuple[Cast, Cast, Cast, Cast]:
        """Roundings of weights, activations, gradients and bias."""
        return self.weights, self.activations, self.gradients, self.bias

    @property
    def plain(self) -> bool:
        """True if a layer computes as torch's own does."""
        return self.macs == (None, None, None) and all(cast.fmt is None for cast in self.casts)

    @property
    def stochastic(self) -> bool:
        """True if a layer rounds anything at random."""
        return any(mac.words for mac in self.macs if mac) or any(cast.rounding.bits for cast in self.casts)


def rules(path: Path | str) -> dict[str, Policy]:
    """Policies by patterns of names, from a TOML file.

    Its keys are those of a policy for all layers; tables ``[layers."PATTERN"]`` change keys for the layers whose names
    match; the first match counts.

    Raises
    ------
    TypeError, ValueError
        If the file cannot be read or describes no policy.
    """
    path = Path(path)
    try:
        with _prefixed(path.name):
            table = tomllib.loads(path.read_text(encoding="utf-8"))
            layers = table.pop("layers", {})
            if not isinstance(layers, dict) or not all(isinstance(one, dict) for one in layers.values()):
                raise ValueError('layers are tables, such as [layers."fc*"]')
            found = {pattern: Policy.from_table(_each(table) | _each(own)) for pattern, own in layers.items()}
            return found | {"*": Policy.from_table(table)}
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from error


def _each(table: Mapping[str, Any]) -> dict[str, Any]:
    """The same table with each product in place of ``mac``."""
    parts = dict(table)
    return dict.fromkeys(PRODUCTS, parts.pop("mac")) | parts if "mac" in parts else parts


def check_update(given: Cast | str) -> Cast:
    """Cast of parameters; ValueError unless it has a format."""
    cast = Cast.parse(given)
    if cast.fmt is None:
        raise ValueError(f"an update rounds parameters to a format, and {cast} names none; write it like e6m5.{cast}")
    return cast


def _mac(given: object) -> MacSpec | None:
    return None if given is None or given == FLOAT else MacSpec.parse(given)  # type: ignore[arg-type]  # it refuses


def _text(mac: MacSpec | None) -> str:
    return FLOAT if mac is None else mac.formula


@contextmanager
def _prefixed(name: str) -> Iterator[None]:
    """Begin the messages of errors with a name."""
    try:
        yield
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{name}: {error}") from error
