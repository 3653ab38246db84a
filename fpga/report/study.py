"""Description of a study: multiply-accumulates to compare, devices and measures."""

import hashlib
import itertools
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

from msgspec import Meta, Struct, ValidationError, convert, structs

from halfulp.boards.targets import ASIC, TARGETS, Target, check_route, target_of
from halfulp.fpga.synth.liberty import Library
from halfulp.hdl.formats.custom import PREFIX
from halfulp.hdl.specs import MacSpec, UnitSpec
from halfulp.tools.records import finite, read_records
from halfulp.tools.texts import text_of, toml_of

TRAINED = "trained"
"""Distribution of operands from the activations and weights of a trained layer."""

NO_MAC = ("fp32", "mixed")
"""Entries of a table of training runs that name no multiply-accumulate: torch's arithmetic, and several."""

MOST_PRODUCTS = 1 << 24
"""Maximum number of products in all dot products of one length."""

NO_ACCURACY = "none"
"""Accuracy of a training run whose targets are no classes."""

PORT = "port"
"""Value in place of a source, for random words from a port."""

Value = TypeVar("Value")


@dataclass(frozen=True)
class Layer:
    """Operands of a trained layer.

    Parameters
    ----------
    path : Path
        File written by `torch.save` with two tensors: ``activations`` of shape (examples, k) and ``weights`` of shape
        (outputs, k).
    digest : str
        Digest of the file.
    """

    path: Path
    digest: str

    @classmethod
    def of(cls, path: Path) -> "Layer":
        """Return the layer in a file; ValueError if the file cannot be read."""
        try:
            return cls(path, hashlib.sha256(path.read_bytes()).hexdigest()[:20])
        except OSError as error:
            raise ValueError(f"{path} cannot be read: {error.strerror or error}") from error

    def __str__(self) -> str:
        return self.digest


@dataclass(frozen=True)
class Dots:
    """Dot products that measure the error of a multiply-accumulate.

    Parameters
    ----------
    lengths : tuple of int
        Products per dot product; Pareto flags use the first length.
    distributions : tuple of str
        ``normal`` (mean 0, standard deviation 1), ``uniform`` (-1 to 1), ``trained`` (from a layer); Pareto flags use
        the first one.
    count : int
        Dot products of each length and distribution.
    seed : int
        Seed of operands, and of random words from ports.
    scale : float
        Factor of the operands.
    against : str
        ``rounded``: exact sums are of the rounded operands. ``drawn``: of the operands before rounding to the operand
        formats, so that this rounding counts as error.
    trained : Layer, optional
        Operands of the distribution ``trained``.
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
    """Accuracy of a network in one training run with a step of products; a study shows those of its own ``macs``."""

    mac: UnitSpec | str
    network: str
    accuracy: float


@dataclass(frozen=True)
class Study:
    """Multiply-accumulates with the measures that compare them.

    Parameters
    ----------
    title : str
    macs : tuple of MacSpec
    targets : tuple of str
        Names of devices, or ``asic`` for standard cells.
    library : Library, optional
        Standard cells of ``asic``.
    route : bool
        Place and route on devices that nextpnr supports.
    clock : float, optional
        Requested clock on these devices, in MHz.
    pipelines : tuple of int
        Numbers of register stages to try for that clock.
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
    library: Library | None = None

    @property
    def routed(self) -> tuple[str, ...]:
        """Names of the devices with place and route."""
        return tuple(name for name in self.targets if self.route and name != ASIC and TARGETS[name].nextpnr)


def read(path: Path) -> Study:
    """Read a study from a TOML file; TypeError or ValueError name the wrong key."""
    text = text_of(path)
    try:
        return _study(toml_of(text), path.parent)
    except (TypeError, ValueError) as error:
        raise (TypeError if isinstance(error, TypeError) else ValueError)(f"{path.name}: {error}") from error


Word = Annotated[str, Meta(pattern=r"\A[^\x00-\x1f]*[^\s\x00-\x1f][^\x00-\x1f]*\Z")]
Words = Annotated[tuple[Word, ...], Meta(min_length=1)]
Count = Annotated[int, Meta(ge=1)]
Distribution = Annotated[str, Meta(pattern="^(normal|uniform|positive|trained)$")]
Positive = Annotated[float, Meta(gt=0, le=sys.float_info.max)]


class _Grid(Struct, frozen=True, forbid_unknown_fields=True):
    """Table ``grid``: parts of multiply-accumulates, which are combined."""

    operands: Words
    accumulators: Words
    roundings: Words
    sources: Words | None = None

    def macs(self) -> list[MacSpec]:
        """Return all combinations of the parts."""
        specs = []
        for operands, accumulator, rounding in itertools.product(self.operands, self.accumulators, self.roundings):
            pair = operands if "*" in operands else f"{operands}*{operands}"
            text = f"{pair}+{accumulator}.{rounding}"
            plain = _named("grid", MacSpec.parse, text)
            # Sources apply to stochastic rounding only.
            for source in (self.sources if plain.words else None) or (PORT,):
                specs.append(_named("grid", MacSpec.parse, text if source == PORT else f"{text}@{source}"))
        if self.sources and not any(spec.words for spec in specs):
            raise ValueError("grid.sources has no effect without a stochastic rounding, such as sr8, in grid.roundings")
        return specs


class _Dots(Struct, frozen=True, forbid_unknown_fields=True):
    """Table ``dots``, with the fields of `Dots`."""

    lengths: Annotated[tuple[Count, ...], Meta(min_length=1)] = Dots.lengths
    distributions: Annotated[tuple[Distribution, ...], Meta(min_length=1)] = Dots.distributions
    count: Count = Dots.count
    seed: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)] = Dots.seed
    scale: Positive = Dots.scale
    against: Annotated[str, Meta(pattern="^(rounded|drawn)$")] = Dots.against
    trained: Word | None = None

    def read(self, folder: Path) -> Dots:
        """Return the description with the layer of the file."""
        if (TRAINED in self.distributions) != (self.trained is not None):
            raise ValueError("dots.distributions has trained if and only if dots.trained names a file of operands")
        if (products := self.count * max(self.lengths)) > MOST_PRODUCTS:
            raise ValueError(
                f"dots.count times the longest of dots.lengths is at most {MOST_PRODUCTS:,}, not {products:,}"
            )
        layer = None if self.trained is None else _named("dots.trained", Layer.of, folder / self.trained)
        return Dots(**structs.asdict(self) | {"trained": layer})


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    """File that describes a study, with the fields of `Study`."""

    title: Word
    macs: Words | None = None
    grid: _Grid | None = None
    targets: Words = Study.targets
    liberty: Word | None = None
    route: bool = False
    clock: Positive | None = None
    pipelines: Annotated[tuple[Annotated[int, Meta(ge=0)], ...], Meta(min_length=1)] | None = None
    dots: _Dots = _Dots()
    accuracy: Word | None = None

    def read(self, folder: Path) -> Study:
        """Return the study, with the tables and layers of other files."""
        self._check_targets([_named("targets", target_of, name) for name in self.targets if name != ASIC])
        if self.macs is None and self.grid is None:
            raise ValueError("macs and grid are missing; expected one or both")
        listed = [_named("macs", _mac, text) for text in self.macs or ()]
        macs = _unlike("macs and grid", [*listed, *(self.grid.macs() if self.grid else ())])
        return Study(
            title=self.title,
            macs=tuple(macs),
            targets=self.targets,
            route=self.route,
            clock=self.clock,
            pipelines=tuple(sorted(self.pipelines or (0,))),
            dots=self.dots.read(folder),
            trained=() if self.accuracy is None else _trained(folder / self.accuracy),
            library=self._library(folder) if ASIC in self.targets else None,
        )

    def _check_targets(self, devices: Sequence[Target]) -> None:
        """Raise ValueError if a field of the measurements has no effect on the targets, or does not fit the devices."""
        if self.liberty is not None and ASIC not in self.targets:
            raise ValueError("liberty has the cells of asic; add asic to targets")
        if self.route and not devices:
            raise ValueError("route needs a device that nextpnr supports, and asic is none")
        if self.route and not any(device.nextpnr for device in devices):
            _named("route", check_route, devices[0])
        if self.clock is not None and not self.route:
            raise ValueError("clock needs place and route; add route = true")
        for device in devices:
            if self.clock is not None and device.nextpnr:
                _named("clock", device.check_clock, self.clock)
        if self.clock is None and self.pipelines:
            raise ValueError("pipelines needs a requested clock; add clock, in MHz")

    def _library(self, folder: Path) -> Library:
        """Read the standard cells."""
        return _named("liberty", Library.read, None if self.liberty is None else folder / self.liberty)


def _study(given: object, folder: Path) -> Study:
    try:
        file = convert(given, _File)
    except ValidationError as error:
        raise _refusal(str(error)) from None
    for table, prefix in ((file, ""), (file.grid, "grid."), (file.dots, "dots.")):
        for key, value in ({} if table is None else structs.asdict(table)).items():
            if isinstance(value, tuple):
                _unlike(prefix + key, value)
    return file.read(folder)


_WORDS = {
    "str": "a text",
    "array": "a list",
    "object": "a table of keys",
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
}
"""Plain words for the types in messages of msgspec."""


def _refusal(text: str) -> TypeError | ValueError:
    """Reword an error of msgspec, such as ``Expected `int`, got `str` - at `$.dots.count```, with the key first."""
    text, _, place = text.replace("`", "").partition(" - at $")
    place = place.removeprefix(".") or "a study"
    if "field" in text:
        table = {"grid": _Grid, "dots": _Dots}.get(place, _File)
        keys = ", ".join(table.__struct_fields__)
        text = text.removeprefix("Object ").replace("contains", "has").replace("missing", "is missing the")
        return ValueError(f"{place} {text}; the keys are {keys}")
    text = re.sub(r"str matching regex '\^\((.*)\)\$'", lambda match: f"one of {match[1].replace('|', ', ')}", text)
    text = re.sub(r"str matching regex .*", "a text of one line", text).replace(" | null", "")
    text = re.sub(rf"\b({'|'.join(_WORDS)})\b", lambda match: _WORDS[match[0]], text)
    kind = TypeError if ", got " in text else ValueError
    return kind(f"{place}: {text[0].lower()}{text[1:]}")


def _trained(path: Path) -> tuple[Trained, ...]:
    """Read the columns mac, network and accuracy of a table of training runs; keep rows with one of each."""

    def mac(text: str) -> UnitSpec | str | None:
        if text in NO_MAC:
            return None
        # Formats given by functions are registered in the process of the training only.
        return text if PREFIX in text else UnitSpec.parse(text)

    def network(text: str) -> str:
        if not text:
            raise ValueError("expected the name of a network")
        return text

    def accuracy(text: str) -> float | None:
        return None if text == NO_ACCURACY else finite(text)

    rows = _named("accuracy", partial(read_records, path), {"mac": mac, "network": network, "accuracy": accuracy})
    runs = [(row["mac"], row["network"], row["accuracy"]) for row in rows]
    return tuple(Trained(*run) for run in runs if None not in run)


def _mac(text: str) -> MacSpec:
    """Parse an entry of ``macs``; ValueError for the text of another unit."""
    spec = UnitSpec.parse(text)
    if not isinstance(spec, MacSpec):
        raise ValueError(f"a study compares multiply-accumulates (mac), and {text} is of the unit {spec.form.unit}")
    return spec


def _named(place: str, function: Callable[[Any], Value], argument: object) -> Value:
    """Apply a function to a field; put the name of the field before an error."""
    try:
        return function(argument)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{place}: {error}") from error


def _unlike(name: str, values: Sequence[Value]) -> Sequence[Value]:
    for index, value in enumerate(values):
        if value in values[:index]:
            raise ValueError(f"{name}: {value} appears twice; name each once")
    return values
