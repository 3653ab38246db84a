"""Bins between a sum of terms and its code: alignment, normalisation, rounding and range."""

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from halfulp.golden import register
from halfulp.golden.codec import stages_of, truncate
from halfulp.golden.raw import ZERO_EXPONENT, Raw, add, align, mask
from halfulp.golden.round import Truncated
from halfulp.hdl.formats import RN, Format, Rounding, Saturation
from halfulp.hdl.formats.base import floor_log2
from halfulp.hdl.specs import QuireRegister, ValueRange
from halfulp.hdl.specs.dot import Alignment
from halfulp.hdl.specs.ranges import window_of
from halfulp.sim.classes import NONE, Classes, Places, Regimes
from halfulp.sim.fields import Codes, Grid

from .bins import Axis, Group

SIGNS = ("+", "-")
RESTS = ("exact", "below the tie", "at the tie", "above the tie")
"""Values of the discarded bits, in the order of `rest_of`: guard and sticky 00, 01, 10 and 11."""


@dataclass(frozen=True)
class Term:
    """Term of a sum.

    Parameters
    ----------
    ports : dict of str to int
        Widths of the ports that the term depends on, including random words and controls.
    make : callable
        Function from codes by port to numbers.
    span : ValueRange
        Bounds on the numbers.
    fixed : bool
        True for fixed point, whose numbers are not normalised.
    words : tuple of str
        Ports of random words.
    """

    ports: Mapping[str, int]
    make: Callable[[Mapping[str, Tensor]], Raw]
    span: ValueRange
    fixed: bool
    words: tuple[str, ...] = ()


@dataclass(frozen=True)
class Stage:
    """Sum of terms that is rounded to a format.

    Parameters
    ----------
    name : str
        Prefix of group names; empty if the unit has only one stage.
    terms : tuple of Term
        Terms; those of a running sum are a product and any number of the result format.
    quire : QuireRegister, optional
        Register of an exact sum; without ``signs`` it has no -0. With ``alignment`` its scale is relative.
    alignment : Alignment, optional
        Truncation of the terms of the sum, which have scales.
    signs : callable, optional
        Function from the signs of the terms, along the last dimension, to the sign of a zero sum.
    sums : ValueRange, optional
        Bounds on the exact sums.
    common : pair of ValueRange, optional
        Bounds on the terms without a factor that all have, and on this factor.
    flags : bool or str
        Exception flags of the rounding, as in `UnitSpec`.
    word : str, optional
        Port of the random word.
    """

    name: str
    terms: tuple[Term, ...]
    o: Format
    rounding: Rounding
    saturate: Saturation
    quire: QuireRegister | None = None
    alignment: Alignment | None = None
    signs: Callable[[Tensor], Tensor] | None = None
    sums: ValueRange | None = None
    common: tuple[ValueRange, ValueRange] | None = None
    flags: bool | str = False
    word: str | None = None

    # Numbers ---------------------------------------------------------------------------------------------------

    def total(self, raws: Sequence[Raw]) -> Raw:
        """Return the exact sum, with a sticky bit below the bits that rounding needs."""
        if self.quire is not None:
            return self._in_register(raws, self.quire)
        if len(raws) == 1:
            return raws[0]
        x, y = raws
        return add(align(x, y, self._window), self.rounding)

    def _in_register(self, raws: Sequence[Raw], quire: QuireRegister) -> Raw:
        if self.alignment is not None:
            return register.aligned([raw.at(None) for raw in raws], self.alignment, quire.width)
        return in_register(raws, quire, self.signs)

    @cached_property
    def zero_signs(self) -> frozenset[bool]:
        """Possible signs of a sum that is zero; True is negative."""
        if self.signs is None:
            return frozenset((False, True))
        # The sign depends only on the number of negative terms.
        count = len(self.terms)
        negative = torch.arange(count) < torch.arange(count + 1).unsqueeze(1)
        return frozenset(self.signs(negative).tolist())

    @cached_property
    def _window(self) -> int:
        first, *rest = (term.span for term in self.terms)
        results = sum(rest, first)
        # Flags need one more bit.
        own = replace(self.rounding, guard=1) if self.flags else self.rounding
        return max(window_of(self.o, mode, results.magnitude) for mode in (RN, own))

    @property
    def places(self) -> int:
        """Number of bits below the last place that rounding examines."""
        return max(self.rounding.bits, 1)

    # Groups ----------------------------------------------------------------------------------------------------

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """Groups, in the order of `bins`."""
        groups = [self._named("terms", self._origins)]
        if self._shifts:
            groups += [self._named("alignment", *self._alignments), self._named("normalisation", self._normalisations)]
        groups += [self._named("range", self._ranges), self._named(f"rounding {self.rounding}", *self._roundings)]
        if self.rounding.bits:
            edge = Axis("discarded bits plus random word", ("one below the carry", "carry"))
            groups += [self._named("random words", *self._words), self._named("random edge", edge)]
        if self.flags:
            groups.append(self._named("flags", self._raised))
        groups.append(self._named("result", Axis("result", Classes(self.o).signed)))
        if self.o.regimes:
            groups.append(self._named("regime of the result", Axis("result", Regimes(self.o).signed)))
        return tuple(groups)

    def bins(self, raws: Sequence[Raw], word: Tensor | None, result: Codes) -> list[Places]:
        """Return the bin indices of sums, for each group.

        Parameters
        ----------
        raws : sequence of Raw
            Terms of the sums.
        word : Tensor, optional
            Random words of the rounding.
        result : array
            Codes of the results.
        """
        x = self.total(raws)
        where = truncate(x, self.o, self.places)
        places: list[tuple[Places, ...]] = [(self._origin(raws, x),)]
        if self._shifts:
            places += [self._alignment(raws), (self._normalisation(raws, x),)]
        places += [(self._range(x, where),), self._rounding(x, where)]
        if self.rounding.bits:
            assert word is not None
            places += list(self._word(x, where, word))
        if self.flags:
            places.append((self._flags(x, word),))
        places.append((Classes(self.o).signed_places(result),))
        if self.o.regimes:
            places.append((Regimes(self.o).places(result),))
        return [group.bins(places) for group, places in zip(self.groups, places, strict=True)]

    def _named(self, name: str, *axes: Axis) -> Group:
        return Group(f"{self.name}: {name}" if self.name else name, axes)

    # Terms -----------------------------------------------------------------------------------------------------

    @cached_property
    def _origins(self) -> Axis:
        spans = [term.span for term in self.terms]
        kinds = ["NaN"] * any(span.nan for span in spans)
        kinds += ["inf - inf"] * (sum(span.inf for span in spans) > 1)
        kinds += ["infinite"] * any(span.inf for span in spans)
        kinds += ["cancelled"] * (len(spans) > 1)
        return Axis("terms", (*kinds, "zeros", "other"))

    def _origin(self, raws: Sequence[Raw], x: Raw) -> Places:
        nan, inf, zero = raws[0].nan, raws[0].inf, raws[0].zero
        for raw in raws[1:]:
            nan, inf, zero = nan | raw.nan, inf | raw.inf, zero & raw.zero
        kinds = [("NaN", nan), ("inf - inf", x.nan), ("infinite", inf), ("zeros", zero), ("cancelled", x.zero)]
        labels = self._origins.labels
        place = torch.full(x.zero.shape, labels.index("other"))
        for kind, condition in reversed(kinds):
            if kind in labels:
                place = torch.where(condition, labels.index(kind), place)
        return _numpy(place)

    # Alignment and normalisation -------------------------------------------------------------------------------

    @cached_property
    def _shifts(self) -> bool:
        """True if terms are aligned and the sum is normalised, which fixed point does not need."""
        return len(self.terms) > 1 and not all(term.fixed for term in self.terms)

    @cached_property
    def window(self) -> int:
        """Number of bits in which terms overlap; a smaller term beyond them is only a sticky bit."""
        return max(*(term.span.precision for term in self.terms), self.o.precision + self.places)

    @cached_property
    def _most(self) -> int:
        """Largest distance with its own bin: the window plus two."""
        return self.window + 2

    @cached_property
    def _alignments(self) -> tuple[Axis, ...]:
        most = self._most
        if len(self.terms) == 2:
            far = (f"{-most - 1} or less", *map(str, range(-most, most + 1)), f"{most + 1} or more")
            return Axis("exponents of the terms differ by", far), Axis("signs", ("equal", "opposite"))
        names = tuple(f"term {number}" for number in range(len(self.terms)))
        near = (*map(str, range(most + 1)), f"{most + 1} or more")
        return Axis("term", names), Axis("below the largest by", near)

    def _alignment(self, raws: Sequence[Raw]) -> tuple[Places, ...]:
        most = self._most
        numbers = [is_number(raw) for raw in raws]
        if len(raws) == 2:
            x, y = raws
            distance = (x.exponent - y.exponent).clamp(-most - 1, most + 1) + most + 1
            both = numbers[0] & numbers[1]
            return _numpy(torch.where(both, distance, NONE)), _numpy((x.sign ^ y.sign).to(torch.int64))
        exponents = _exponents(raws)
        below = (exponents.amax(0) - exponents).clamp(max=most + 1)
        index = torch.arange(len(raws)).unsqueeze(1).expand(below.shape)
        return _numpy(index.flatten()), _numpy(torch.where(torch.stack(numbers), below, NONE).flatten())

    def difference(self, index: int) -> int:
        """Return the exponent of the first of two terms minus that of the second, in a bin of the alignments."""
        return index // len(SIGNS) - (self._most + 1)

    def distance(self, index: int) -> int:
        """Return the distance of exponents in a bin of the group of alignments."""
        return abs(self.difference(index)) if len(self.terms) == 2 else index % (self._most + 2)

    @cached_property
    def _normalisations(self) -> Axis:
        up, most = self._carries, self._most
        moves = (*(f"{n} up" for n in range(up, 0, -1)), "stays", *(f"{n} down" for n in range(1, most + 1)))
        if len(self.terms) > 2:
            return Axis("first bit", (*moves, f"{most + 1} or more down"))
        # Equal signs never move the first bit down, and opposite signs never move it up.
        equal = (f"equal signs, {move}" for move in moves[: up + 1])
        opposite = (f"opposite signs, {move}" for move in moves[up:])
        return Axis("first bit", (*equal, *opposite, f"{most + 1} or more down"))

    @cached_property
    def _carries(self) -> int:
        """Maximum number of places between the first bit of the largest term and that of the sum."""
        largest_significands = [2 - 2.0 ** (1 - term.span.precision) for term in self.terms]
        return int(math.log2(sum(largest_significands)))

    def _normalisation(self, raws: Sequence[Raw], x: Raw) -> Places:
        moved = (_exponents(raws).amax(0) - (x.exponent - x.leading_zeros)).clamp(max=self._most + 1) + self._carries
        if len(raws) == 2:
            moved = torch.where(raws[0].sign ^ raws[1].sign, moved + 1, moved)
        several = torch.stack([is_number(raw) for raw in raws]).sum(0) > 1
        return _numpy(torch.where(several & ~(x.nan | x.inf | x.zero), moved, NONE))

    # Range -----------------------------------------------------------------------------------------------------

    @cached_property
    def _edges(self) -> tuple[dict[int, str], dict[int, str]]:
        """Magnitude codes where ranges start, with their names, for each sign."""
        return self._grid.edges(0), self._grid.edges(1)

    @property
    def _grid(self) -> Grid:
        return Grid.of(self.o)

    @property
    def _normal(self) -> int:
        """Magnitude code of the smallest normal number."""
        return self._grid.code_of(Fraction(2) ** self._grid.first_normal)

    @cached_property
    def _range_places(self) -> dict[tuple[int, int | str, int], int]:
        """Index of each label on the range axis, by sign, edge and class of the discarded bits."""
        keys: list[tuple[int, int | str, int]] = []
        for negative in (0, 1):
            zero_signs = 2 if self.o.has_negative_zero else 1
            for code in self._edges[negative]:
                rests = range(4)
                if self.o.rounds == "string" and code in (0, self._grid.max_code):
                    # With rounding on the code string there is no tie below the smallest number or above the largest.
                    rests = range(2) if code == 0 else range(1)
                keys += [(negative, code, rest) for rest in rests if code or rest or negative < zero_signs]
            if self.o.lowest < 0 or not negative:
                keys += [(negative, "between", rest) for rest in range(4)]
            keys.append((negative, "beyond", 0))
            if self.o.flushes:
                keys.append((negative, "flushed", 0))
        return {key: place for place, key in enumerate(keys)}

    @cached_property
    def _ranges(self) -> Axis:
        def label(negative: int, code: int | str, rest: int) -> str:
            match code:
                case "between":
                    return f"{SIGNS[negative]}elsewhere, {RESTS[rest]}"
                case "beyond":
                    return f"{SIGNS[negative]}beyond the largest"
                case "flushed":
                    return f"{SIGNS[negative]}far below the smallest normal"
            return f"{SIGNS[negative]}{self._edges[negative][int(code)]}, {RESTS[rest]}"

        return Axis("exact result at", tuple(label(*key) for key in self._range_places))

    @cached_property
    def _range_table(self) -> tuple[Tensor, Tensor]:
        """Edges in ascending order, and label indices by sign, position among the edges, and rest.

        The position is twice the number of edges below, plus one at an edge.
        """
        codes = sorted({*self._edges[0], *self._edges[1]})
        table = torch.full((2, 2 * len(codes) + 1, 4), NONE)
        for negative, at, rest in itertools.product((0, 1), range(table.shape[1]), range(4)):
            key = codes[at // 2] if at % 2 else "between"
            key = key if (negative, key, rest) in self._range_places or key == "between" else "between"
            if key == "between" and at % 2 and codes[at // 2] in self._edges[negative]:
                continue
            table[negative, at, rest] = self._range_places.get((negative, key, rest), NONE)
        return torch.from_numpy(np.array(codes, dtype=np.uint64).view(np.int64)), table

    def _range(self, x: Raw, where: Truncated) -> Places:
        negative, code = x.sign.to(torch.int64), where.code
        if not self.o.has_negative_zero:
            negative = torch.where(x.zero, 0, negative)
        codes, table = self._range_table
        code = torch.where(x.zero, 0, code)
        below = torch.bucketize(code, codes)
        at = 2 * below + (codes[below.clamp(max=len(codes) - 1)] == code)
        place = table[negative, at, torch.where(x.zero, 0, rest_of(where))]
        for sign in (0, 1):
            here = (negative == sign) & ~x.zero
            place = torch.where(here & where.beyond, self._range_places[sign, "beyond", 0], place)
            if (sign, "flushed", 0) in self._range_places:
                low = here & (code < self._normal - 1)
                place = torch.where(low, self._range_places[sign, "flushed", 0], place)
        return _numpy(torch.where(x.nan | x.inf, NONE, place))

    def bounds(self, group: str, index: int) -> "Bounds":
        """Return bounds on the exact results in a bin of a group."""
        axes = {self._named("range", self._ranges).name: self._range_bounds}
        axes[self._named("flags", self._raised).name] = self._flags_bounds
        if self._shifts:
            axes[self._named("normalisation", self._normalisations).name] = self._normalisation_bounds
        named = self._named(f"rounding {self.rounding}", *self._roundings)
        if group == named.name and self._has_subnormals and named.label(index).endswith("subnormal"):
            return Bounds(until=self._grid.first_normal)
        return axes[group](index) if group in axes else Bounds()

    def _range_bounds(self, index: int) -> "Bounds":
        negative, edge, rest = next(key for key, place in self._range_places.items() if place == index)
        # A zero sum has no exponent.
        return _bounds_at(self.o, negative, edge) if edge or rest else Bounds()

    def _normalisation_bounds(self, index: int) -> "Bounds":
        """Return bounds for a normalisation bin; sums of equal signs have the first bins, differences the others."""
        equal = self._carries + 1 if len(self.terms) == 2 else 0
        down = index - equal - (self._carries if not equal else 0)
        if index < equal:
            return Bounds(least=index - self._carries, most=index - self._carries)
        return Bounds(least=down, most=math.inf if index == len(self._normalisations.labels) - 1 else down)

    # Rounding --------------------------------------------------------------------------------------------------

    @cached_property
    def _roundings(self) -> tuple[Axis, ...]:
        axes = [Axis("last bit", ("even", "odd")), Axis("discarded bits", RESTS), Axis("sign", SIGNS)]
        if self._has_subnormals:
            axes.append(Axis("result", ("subnormal", "normal")))
        return tuple(axes)

    @property
    def _has_subnormals(self) -> bool:
        return self.o.floor_exponent is not None and self.o.precision > 1

    def _rounding(self, x: Raw, where: Truncated) -> tuple[Places, ...]:
        counted = ~(x.nan | x.inf | x.zero | where.beyond)
        last = _numpy(torch.where(counted, where.last, NONE))
        places = [last, _numpy(rest_of(where)), _numpy(x.sign.to(torch.int64))]
        if self._has_subnormals:
            places.append(_numpy((where.code >= self._normal).to(torch.int64)))
        return tuple(places)

    # Exception flags -------------------------------------------------------------------------------------------

    @property
    def _raised(self) -> Axis:
        """Flags of rounding a number; underflow and overflow are inexact too."""
        more = ("invalid",) if self.o.spacing == "uniform" else ("underflow", "overflow")
        return Axis("flags", ("none", "inexact", *more))

    def _flags(self, x: Raw, word: Tensor | None) -> Places:
        function = stages_of(self.o).flags
        assert function is not None
        assert isinstance(self.flags, str)
        rounding_flags = function(x, self.o, self.rounding, word, self.flags)
        kinds = {
            "inexact": rounding_flags.inexact,
            "underflow": rounding_flags.underflow,
            "overflow": rounding_flags.overflow,
        }
        place = torch.zeros_like(x.exponent)
        for name, raised in (kinds | {"invalid": rounding_flags.lost_nan}).items():
            if name in self._raised.labels:
                place = torch.where(raised, self._raised.labels.index(name), place)
        return _numpy(torch.where(x.nan | x.inf, NONE, place))

    def _flags_bounds(self, index: int) -> "Bounds":
        match self._raised.labels[index]:
            case "underflow":
                return Bounds(until=self._grid.first_normal)
            case "overflow":
                return Bounds(since=floor_log2(self.o.largest))
        return Bounds()

    # Random words ----------------------------------------------------------------------------------------------

    @cached_property
    def _words(self) -> tuple[Axis, ...]:
        inside = ("between",) if self.rounding.bits > 1 else ()
        return Axis("discarded bits", ("zeros", *inside, "ones")), Axis("random word", ("zeros", *inside, "ones"))

    def _word(self, x: Raw, where: Truncated, word: Tensor) -> tuple[tuple[Places, ...], tuple[Places, ...]]:
        bits = self.rounding.bits
        ones = (1 << bits) - 1
        dropped = first_bits(where, x.sign, self.o)
        counted = ~(x.nan | x.inf | x.zero | where.beyond)
        last = len(self._words[0].labels) - 1

        def extreme(value: Tensor) -> Places:
            place = torch.where(value == 0, 0, torch.where(value == ones, last, 1))
            return _numpy(torch.where(counted, place, NONE))

        edge = dropped + word - ones
        return (extreme(dropped), extreme(word)), (_numpy(torch.where(counted & (edge >> 1 == 0), edge, NONE)),)

    def extreme_words(self, raws: Sequence[Raw]) -> list[Tensor | None]:
        """Return the random words that together reach every bin that any word reaches."""
        if not self.rounding.bits:
            return [None]
        x = self.total(raws)
        ones = torch.full_like(x.exponent, (1 << self.rounding.bits) - 1)
        dropped = first_bits(truncate(x, self.o, self.places), x.sign, self.o)
        few = [torch.zeros_like(ones), torch.ones_like(ones), ones, ones - dropped]
        return [*few, torch.minimum(ones - dropped + 1, ones)]


def in_register(raws: Sequence[Raw], quire: QuireRegister, signs: Callable[[Tensor], Tensor] | None) -> Raw:
    """Return the exact sum of terms; ``signs`` as in `Stage`."""
    held = functools.reduce(register.add, (register.place(raw, quire.quantum, quire.width) for raw in raws))
    zero_signs = None if signs is None else signs(torch.stack([raw.sign for raw in raws], -1))
    return register.as_raw(held, quire.quantum, zero_signs)


def rest_of(z: Truncated) -> Tensor:
    """Return the class of the truncated rest: 0 exact, 1 below the tie, 2 at the tie, 3 above the tie."""
    guard = z.seen >> (z.places - 1)
    below = ((z.seen & mask(z.places - 1)) != 0) | z.sticky
    return 2 * guard + below.to(torch.int64)


def first_bits(z: Truncated, negative: Tensor, o: Format) -> Tensor:
    """Return the first discarded bits for stochastic rounding; with floors, those of the signed number."""
    if o.rounds != "floor":
        return z.seen
    return torch.where(negative, -(z.seen + z.sticky), z.seen) & mask(z.places)


@dataclass(frozen=True)
class Bounds:
    """Bounds on the sums in a bin.

    Attributes
    ----------
    since, until : float
        Smallest and largest exponent of the sums.
    least, most : float
        Bounds on the distance from the first bit of the largest term to that of the sum.
    """

    since: float = -math.inf
    until: float = math.inf
    least: float = -math.inf
    most: float = math.inf


def _bounds_at(o: Format, negative: int, edge: int | str) -> Bounds:
    """Return bounds on the exponents of numbers that are truncated to a magnitude code."""
    if isinstance(edge, str):
        return Bounds(since=floor_log2(o.largest)) if edge == "beyond" else Bounds()
    grid = Grid.of(o)

    def exponent(magnitude: int) -> int:
        value = grid.value(magnitude, negative)
        return floor_log2(value) if value else grid.first_normal - 1

    last = grid.code_of(o.lowest if negative else o.largest)
    return Bounds(exponent(edge) if edge else -math.inf, math.inf if edge >= last else exponent(edge + 1))


def is_number(raw: Raw) -> Tensor:
    """Return True for finite nonzero terms."""
    return ~(raw.zero | raw.nan | raw.inf)


def _exponents(raws: Sequence[Raw]) -> Tensor:
    """Return the exponents of terms; NaN, infinities and zeros have the lowest exponent."""
    return torch.stack([torch.where(is_number(raw), raw.exponent, ZERO_EXPONENT) for raw in raws])


def _numpy(tensor: Tensor) -> Places:
    array: Places = tensor.to(torch.int64).numpy()
    return array if array.ndim else array[np.newaxis]
