"""Description of a study: which multiply-accumulates are compared, on which devices and by what."""

import contextlib
import hashlib
import itertools
import math
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from halfulp.boards.targets import TARGETS, check_route, target_of
from halfulp.hdl.specs import MacSpec
from halfulp.tools.records import finite, read_records

ENDINGS = (".toml", ".yaml", ".yml")
"""Endings of the names of files that describe a study."""

TRAINED = "trained"
"""Operands that are activations and weights of a trained layer."""

DISTRIBUTIONS = ("normal", "uniform", TRAINED)
"""Distributions of operands: of mean 0 and standard deviation 1, even between -1 and 1, or a trained layer's."""

NO_MAC = ("fp32", "mixed")
"""Entries of a table of training runs for runs in torch's own arithmetic and in several ones, which are of no row."""

REFERENCES = ("rounded", "drawn")
"""Operands whose exact sums results are held against: those that units get, or those that were drawn before they were
rounded to the operand formats."""

MOST_PRODUCTS = 1 << 24
"""Of all dot products of one length."""

PORT = "port"
"""In place of a source: random words come from outside."""

Value = TypeVar("Value")


@dataclass(frozen=True)
class Layer:
    """Operands of a trained layer.

    Parameters
    ----------
    path : Path
        File that `torch.save` made of two tensors, ``activations`` of shape (examples, k) and ``weights`` of shape
        (outputs, k).
    digest : str
        Differs whenever the file does.
    """

    path: Path
    digest: str

    @classmethod
    def of(cls, path: Path) -> "Layer":
        """The layer in a file.

        Raises
        ------
        ValueError
            If the file cannot be read.
        """
        try:
            return cls(path, hashlib.sha256(path.read_bytes()).hexdigest()[:20])
        except OSError as error:
            raise ValueError(f"{path} cannot be read: {error.strerror or error}") from error

    def __str__(self) -> str:
        return self.digest


@dataclass(frozen=True)
class Dots:
    """Dot products by which the error of a multiply-accumulate is measured.

    Parameters
    ----------
    lengths : tuple of int
        Products in each; the first one's error is what the Pareto flags go by.
    distributions : tuple of str
        Of the operands, names of `DISTRIBUTIONS`; the first one is the one of the flags.
    count : int
        Dot products of each length and distribution.
    seed : int
        Of the operands, and of random words that come from ports.
    scale : float
        The operands drawn are so many times as large.
    against : str
        One of `REFERENCES`: ``drawn`` counts the rounding of operands as error too.
    trained : Layer, optional
        Where operands of the distribution ``trained`` are from.
    """

    lengths: tuple[int, ...] = (64,)
    distributions: tuple[str, ...] = ("normal",)
    count: int = 1024
    seed: int = 0
    scale: float = 1.0
    against: str = "rounded"
    trained: Layer | None = None


@dataclass(frozen=True)
class Trained:
    """Accuracy that a network reached in one training run with a multiply-accumulate."""

    mac: MacSpec
    network: str
    accuracy: float


@dataclass(frozen=True)
class Study:
    """Multiply-accumulates to be compared, and the measures by which they are.

    Parameters
    ----------
    title : str
    macs : tuple of MacSpec
    targets : tuple of str
        Names of devices.
    route : bool
        Place and route on those devices for which that can be done here.
    clock : float, optional
        MHz that a unit is to reach there.
    pipelines : tuple of int
        Register stages that it may have for that.
    dots : Dots
    trained : tuple of Trained
    """

    title: str
    macs: tuple[MacSpec, ...]
    targets: tuple[str, ...] = ("vu9p",)
    route: bool = False
    clock: float | None = None
    pipelines: tuple[int, ...] = (0,)
    dots: Dots = Dots()
    trained: tuple[Trained, ...] = ()

    @property
    def routed(self) -> tuple[str, ...]:
        """Devices on which the clock is measured."""
        return tuple(name for name in self.targets if self.route and TARGETS[name].nextpnr)


def read(path: Path) -> Study:
    """The study that a TOML or YAML file describes.

    Parameters
    ----------
    path : Path

    Raises
    ------
    TypeError, ValueError
        If the file describes none; one sentence names the key that is wrong.
    """
    try:
        return _study(_loaded(path), path.parent)
    except TypeError as error:
        raise TypeError(f"{path.name}: {error}") from error
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from error


def _loaded(path: Path) -> object:
    text = _text_of(path)
    if path.suffix == ".toml":
        return tomllib.loads(text)
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        # As plain data; a key that is there twice is an error.
        return YAML(typ="safe", pure=True).load(text)
    except YAMLError as error:
        place = getattr(error, "problem_mark", None)
        what = getattr(error, "problem", None) or "it cannot be read"
        raise ValueError(f"no YAML: {what}" + (f" (line {place.line + 1})" if place else "")) from error


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is no text in UTF-8") from error


def _study(given: object, folder: Path) -> Study:
    keys = ("title", "macs", "grid", "targets", "route", "clock", "pipelines", "dots", "accuracy")
    fields = _Fields("a study", given, keys)
    targets = fields.take("targets", _several(_word), ("vu9p",))
    for name in targets:
        _named("targets", target_of, name)
    route = fields.take("route", _switch, False)
    if route and not any(TARGETS[name].nextpnr for name in targets):
        _named("route", check_route, TARGETS[targets[0]])
    clock = fields.take("clock", _positive, None)
    if clock is not None and not route:
        raise ValueError("clock means something to units that are placed and routed only; add route = true")
    if clock is None and "pipelines" in fields.given:
        raise ValueError("pipelines are tried to reach a clock; add clock, in MHz")
    accuracy = fields.take("accuracy", _word, None)
    return Study(
        title=fields.take("title", _word),
        macs=_macs(fields),
        targets=targets,
        route=route,
        clock=clock,
        pipelines=tuple(sorted(fields.take("pipelines", _several(_whole(0)), (0,)))),
        dots=_dots(fields.take("dots", _table, {}), folder),
        trained=() if accuracy is None else _trained(folder / accuracy),
    )


def _macs(fields: "_Fields") -> tuple[MacSpec, ...]:
    """Those that are listed, then those of the grid."""
    if not {"macs", "grid"} & set(fields.given):
        raise ValueError("macs or grid is missing; a study lists its multiply-accumulates in one or both of them")
    texts = fields.take("macs", _several(_word), ())
    listed = [_named("macs", MacSpec.parse, text) for text in texts]
    grid = fields.take("grid", _table, None)
    found: dict[MacSpec, str] = {}
    for spec, place in [*((spec, "macs") for spec in listed), *((spec, "grid") for spec in _grid(grid))]:
        if spec in found:
            where = f"in {place}" if found[spec] == place else f"in {found[spec]} and in grid"
            raise ValueError(f"{spec} is twice {where}; name each multiply-accumulate once")
        found[spec] = place
    return tuple(found)


def _grid(given: Mapping[str, object] | None) -> list[MacSpec]:
    """All that can be made of lists of parts."""
    if given is None:
        return []
    fields = _Fields("grid", given, ("operands", "accumulators", "roundings", "sources"))
    axes = [fields.take(key, _several(_word)) for key in ("operands", "accumulators", "roundings")]
    sources = fields.take("sources", _several(_word), (PORT,))
    specs = []
    for operands, accumulator, rounding in itertools.product(*axes):
        pair = operands if "*" in operands else f"{operands}*{operands}"
        text = f"{pair}+{accumulator}.{rounding}"
        plain = _named("grid", MacSpec.parse, text)
        # Where nothing is stochastic there are no words to be had from anywhere.
        for source in sources if plain.words else (PORT,):
            specs.append(_named("grid", MacSpec.parse, text if source == PORT else f"{text}@{source}"))
    if "sources" in fields.given and not any(spec.words for spec in specs):
        raise ValueError("grid.sources does nothing, for no rounding of the grid is stochastic; only sr is")
    return specs


def _dots(given: Mapping[str, object], folder: Path) -> Dots:
    fields = _Fields("dots", given, ("lengths", "distributions", "count", "seed", "scale", "against", TRAINED))
    trained = fields.take(TRAINED, _word, None)
    found = Dots(
        lengths=fields.take("lengths", _several(_whole(1)), Dots.lengths),
        distributions=fields.take("distributions", _several(_word), Dots.distributions),
        count=fields.take("count", _whole(1), Dots.count),
        seed=fields.take("seed", _whole(0), Dots.seed),
        scale=fields.take("scale", _positive, Dots.scale),
        against=fields.take("against", _word, Dots.against),
        trained=None if trained is None else _named("dots.trained", Layer.of, folder / trained),
    )
    for name in found.distributions:
        if name not in DISTRIBUTIONS:
            raise ValueError(f"dots.distributions: unknown {name!r}; operands are {' or '.join(DISTRIBUTIONS)}")
    if (TRAINED in found.distributions) != (found.trained is not None):
        raise ValueError("dots.distributions has trained and dots.trained names a file with the operands, or neither")
    if found.against not in REFERENCES:
        raise ValueError(f"dots.against: unknown {found.against!r}; operands are {' or '.join(REFERENCES)}")
    if found.seed >= 1 << 63:
        raise ValueError(f"dots.seed is less than 2^63, not {found.seed}")
    if found.count * max(found.lengths) > MOST_PRODUCTS:
        raise ValueError(
            f"dots.count times the longest of dots.lengths is at most {MOST_PRODUCTS:,}, not "
            f"{found.count * max(found.lengths):,}"
        )
    return found


def _trained(path: Path) -> tuple[Trained, ...]:
    """Rows of a table of training runs: columns ``mac``, ``network`` and ``accuracy``; others say more to people.

    Runs of no one multiply-accumulate are left out.
    """

    def mac(text: str) -> MacSpec | None:
        return None if text in NO_MAC else MacSpec.parse(text)

    def network(text: str) -> str:
        if not text:
            raise ValueError("it is the name of a network")
        return text

    rows = _named("accuracy", partial(read_records, path), {"mac": mac, "network": network, "accuracy": finite})
    return tuple(Trained(row["mac"], row["network"], row["accuracy"]) for row in rows if row["mac"] is not None)


def _named(place: str, function: Callable[[Any], Value], argument: object) -> Value:
    """Apply a function to a field; errors begin with the name of the field."""
    try:
        return function(argument)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{place}: {error}") from error


_MISSING = object()


class _Fields:
    """A table of a study, refused if it has a key that means nothing."""

    def __init__(self, name: str, given: object, keys: Collection[str]) -> None:
        self._prefix = "" if name == "a study" else f"{name}."
        self._keys = keys
        self.given = _table(name, given)
        for key in self.given:
            if key not in keys:
                raise ValueError(f"{name} has no key {key!r}; the keys are {', '.join(keys)}")

    def take(self, key: str, kind: Callable[[str, object], Any], default: object = _MISSING) -> Any:
        """The value of a key, of a kind."""
        if key in self.given:
            return kind(self._prefix + key, self.given[key])
        if default is _MISSING:
            raise ValueError(f"{self._prefix}{key} is missing; the keys are {', '.join(self._keys)}")
        return default


def _table(name: str, value: object) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise TypeError(f"{name} is a table of keys, not {_kind(value)}")
    return value


def _word(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name} is a text, not {_kind(value)}")
    if not value.strip() or not value.isprintable():
        raise ValueError(f"{name} is a text of one line, not {value!r}")
    return value


def _switch(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{name} is true or false, not {_kind(value)}")
    return value


def _whole(least: int) -> Callable[[str, object], int]:
    def whole(name: str, value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise TypeError(f"{name} is a whole number, not {_kind(value)}")
        if value < least:
            raise ValueError(f"{name} is {least} or more, not {value}")
        return value

    return whole


def _number(name: str, value: object) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise TypeError(f"{name} is a number, not {_kind(value)}")
    with contextlib.suppress(OverflowError):
        if math.isfinite(number := float(value)):
            return number
    raise ValueError(f"{name} is a finite number of float64, not {value}")


def _positive(name: str, value: object) -> float:
    if (number := _number(name, value)) <= 0:
        raise ValueError(f"{name} is more than 0, not {value}")
    return number


def _several(one: Callable[[str, object], Value]) -> Callable[[str, object], tuple[Value, ...]]:
    """A list of things of a kind, of which none is there twice."""

    def several(name: str, value: object) -> tuple[Value, ...]:
        if not isinstance(value, list):
            raise TypeError(f"{name} is a list, not {_kind(value)}")
        if not value:
            raise ValueError(f"{name} is an empty list; name one or more")
        found = tuple(one(f"an entry of {name}", item) for item in value)
        return _unlike(name, found)

    return several


def _unlike(name: str, values: Sequence[Value]) -> tuple[Value, ...]:
    for index, value in enumerate(values):
        if value in values[:index]:
            raise ValueError(f"{name} has {value} twice; name each once")
    return tuple(values)


def _kind(value: object) -> str:
    names = {dict: "a table", list: "a list", str: "the text", bool: "the truth value", type(None): "nothing"}
    kind = names.get(type(value), f"the {type(value).__name__}")
    return kind if isinstance(value, (dict, list)) or value is None else f"{kind} {value!r}"
