"""Unreachable bins, proved by enumeration of all operands, or of all terms of a sum.

No bin is waived. An enumeration of all cases that does not reach a bin proves that no input reaches it; with too many
cases, there is no proof.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from halfulp.golden.codec import unpack
from halfulp.golden.raw import Raw, mask
from halfulp.golden.wide import Wide
from halfulp.hdl.formats import Fixed
from halfulp.hdl.specs.formula import Port, Role
from halfulp.sim.classes import ALL_BITS, some_codes
from halfulp.sim.fields import Codes
from halfulp.sim.ports import MODE
from halfulp.sim.reference import reference
from halfulp.sim.space import Space
from halfulp.tools.progress import Progress, silent
from halfulp.tools.threads import threads

from . import limits
from .bins import Counts, Group
from .model import Alone, Joint, Model
from .stages import RESTS, Stage, Term, is_number
from .sums import result_of

Flags = npt.NDArray[np.bool_]

JOINT_BITS = 20
"""Largest total width of ports that are enumerated together."""

PAIRS = 1 << 28
"""Maximum number of enumerated pairs of terms."""

SHARED_BITS = 24
"""Largest total width of the ports of terms that share an operand."""

SUMS = 1 << 24
"""Maximum range of enumerated sums of fixed-point terms, in last places."""

CHUNK = 1 << 15


@dataclass(frozen=True)
class Reach:
    """Bins of a group that are proved unreachable.

    Attributes
    ----------
    excluded : array of bool
        Bins that are proved unreachable.
    proof : str
        Enumerated set of cases.
    """

    excluded: Flags
    proof: str


def reach(model: Model, counts: Mapping[str, Counts] | None = None, progress: Progress = silent) -> dict[str, Reach]:
    """Prove which bins of a unit are unreachable.

    Parameters
    ----------
    model : Model
    counts : mapping of str to array, optional
        Hit counts of bins; bins with hits need no proof.
    progress : Progress
    """
    reaches = {
        part.group.name: _alone(model, part) if isinstance(part, Alone) else _joint(model, part) for part in model.ports
    }
    with threads(1):
        for stage in model.stages:
            waiting = {group.name: ~hits(counts, group) for group in stage.groups}
            reaches |= of_stage(stage, waiting, progress)
    return reaches


def hits(counts: Mapping[str, Counts] | None, group: Group) -> Flags:
    """Return the bins of a group with hits."""
    return np.zeros(group.size, dtype=bool) if counts is None else counts[group.name] > 0


# Ports ---------------------------------------------------------------------------------------------------------


def _alone(model: Model, part: Alone) -> Reach:
    """Combine the labels that the codes of each port reach."""
    flags, proofs = np.zeros(part.group.shape, dtype=bool), set()
    for ports in part.over:
        axes = []
        for place, port, length in zip(part.places, ports, part.group.shape, strict=True):
            codes, proof = _codes(model, port)
            axes.append(np.bincount(place(codes)[place(codes) >= 0], minlength=length) > 0)
            proofs.add(proof)
        flags |= functools.reduce(np.logical_and.outer, axes)
    independent = "" if len(part.group.shape) == 1 else ", which are independent"
    proof = "" if "" in proofs else f"{' and '.join(sorted(proofs))}{independent}"
    return _complete(flags.ravel(), proof)


def _complete(reached: Flags, proof: str) -> Reach:
    """Declare the other bins unreachable if there is a proof."""
    return Reach(~reached if proof else np.zeros_like(reached), proof)


def _codes(model: Model, port: str) -> tuple[Codes, str]:
    """Return all codes of a narrow port, with the text of the proof, or some codes of every kind of a wide one."""
    width, fmt = model.widths[port], model.formats.get(port)
    if width <= ALL_BITS:
        return np.arange(1 << width, dtype=np.uint64), f"all 2^{width} codes of {fmt or port}"
    assert fmt is not None
    return some_codes(fmt), ""


def _joint(model: Model, part: Joint) -> Reach:
    """Enumerate the codes of several ports together."""
    flags, proofs = np.zeros(part.group.size, dtype=bool), set()
    for ports in part.over:
        bits = sum(model.widths[port] for port in ports)
        if bits > JOINT_BITS:
            return _complete(flags, "")
        columns = _product({port: model.widths[port] for port in ports})
        for words in _words(model, columns):
            outputs = reference(model.unit, words) if model.unit.inputs.keys() <= words.keys() else {}
            numbers = part.group.bins(part.places([columns[port] for port in ports], outputs))
            flags |= part.group.count(numbers) > 0
        formats = " and ".join(str(model.formats.get(port, port)) for port in ports)
        proofs.add(f"all 2^{bits} {'pairs of ' * (len(ports) == 2)}codes of {formats}")
    return _complete(flags, " and ".join(sorted(proofs)))


def _words(model: Model, columns: dict[str, Codes]) -> Iterator[dict[str, Codes]]:
    """Yield the columns with all rounding modes, and the smallest and the largest random words, which bound results."""
    modes = [{MODE: code} for code in range(len(model.unit.spec.rounding.choices))] or [{}]
    for mode in modes:
        for words in _extreme_words({port: model.widths[port] for port in model.inputs.having(Role.RANDOM)}):
            yield columns | {port: np.full(1, code, dtype=np.uint64) for port, code in (mode | words).items()}


def _extreme_words(widths: Mapping[str, int]) -> list[dict[str, int]]:
    """Return the smallest and largest random words of ports with some widths; one empty set without ports."""
    words = {port: mask(width) for port, width in widths.items()}
    return [dict.fromkeys(words, 0), words] if words else [{}]


def _product(widths: Mapping[str, int]) -> dict[str, Codes]:
    """Return all combinations of the codes of ports."""
    ports = tuple(Port(name, width) for name, width in widths.items())
    return Space(ports, (), {}).codes(0, 1 << sum(widths.values()))


# Stages --------------------------------------------------------------------------------------------------------


def of_stage(stage: Stage, waiting: dict[str, Flags], progress: Progress = silent) -> dict[str, Reach]:
    """Prove which bins of a stage without hits are unreachable."""
    known = {group.name: np.zeros(group.size, dtype=bool) for group in stage.groups}
    nothing = {name: Reach(np.zeros_like(flags), "") for name, flags in known.items()}
    if not any(flags.any() for flags in waiting.values()):
        return nothing
    proof = _by_enumeration(stage, waiting, known, progress)
    reaches = {name: Reach(waiting[name] & ~flags, proof) for name, flags in known.items()} if proof else nothing
    for more in (_zeros(stage, waiting), _multiples(stage, waiting), by_bounds(stage, waiting)):
        reaches |= {name: _either(reaches[name], proved) for name, proved in more.items()}
    return reaches


def _by_enumeration(stage: Stage, waiting: dict[str, Flags], known: dict[str, Flags], progress: Progress) -> str:
    """Mark the bins that terms reach in ``known``, and return the proof; it is empty if there are too many terms."""
    fixed = stage.o.spacing == "uniform" and all(term.fixed for term in stage.terms)
    # The bounds on sums of pairs do not hold for truncated terms.
    few = len(stage.terms) <= (2 if stage.alignment is None else 1)
    shared = len(_operands(stage.terms)) < sum(len(_operands([term])) for term in stage.terms)
    terms = [_values(term) for term in stage.terms] if not shared and (fixed or few) else [None]
    if shared:
        return _together(stage, waiting, known, progress)
    if any(values is None for values in terms):
        return ""
    if fixed:
        return _sums(stage, terms, known)
    return _pairs(stage, terms, waiting, known, progress)


def _operands(terms: Sequence[Term]) -> dict[str, int]:
    """Return the widths of the ports of terms, without random words."""
    return {port: width for term in terms for port, width in term.ports.items() if port not in term.words}


def _together(stage: Stage, waiting: dict[str, Flags], known: dict[str, Flags], progress: Progress) -> str:
    """Enumerate the operands of terms that are not independent, until all open bins are reached."""
    operands = _operands(stage.terms)
    bits = sum(operands.values())
    if bits > SHARED_BITS:
        return ""
    space = Space(tuple(Port(name, width) for name, width in operands.items()), (), {})
    progress.total(f"proving {stage.name or 'sums'}", 1 << bits)
    count = min(CHUNK, 1 << bits)
    for start in range(0, 1 << bits, count):
        columns = {port: torch.from_numpy(codes.view(np.int64)) for port, codes in space.codes(start, count).items()}
        for words in _extreme_words({word: term.ports[word] for term in stage.terms for word in term.words}):
            given = {port: torch.full((count,), word) for port, word in words.items()}
            _mark_reached(stage, [term.make(columns | given) for term in stage.terms], known)
        progress.advance(count)
        if not any((flags & ~known[name]).any() for name, flags in waiting.items()):
            break
    return f"all 2^{bits} codes of {', '.join(operands)}"


def _either(first: Reach, second: Reach) -> Reach:
    """Return the bins that one proof or the other excludes."""
    if not (second.excluded & ~first.excluded).any():
        return first
    proofs = [reach.proof for reach in (first, second) if reach.excluded.any()]
    return Reach(first.excluded | second.excluded, "; ".join(proofs))


def by_bounds(stage: Stage, waiting: dict[str, Flags]) -> dict[str, Reach]:
    """Prove bins unreachable by bounds on the sums and terms of a stage."""
    reaches: dict[str, Reach] = {}
    every = limits.of_sums(stage), limits.of_common_factor(stage), limits.of_accumulator(stage)
    for group, excluded, proof in itertools.chain(*every):
        bound = Reach(excluded & waiting[group.name], proof)
        reaches[group.name] = _either(reaches[group.name], bound) if group.name in reaches else bound
    return reaches


def _zeros(stage: Stage, waiting: dict[str, Flags]) -> dict[str, Reach]:
    """Prove signs of a zero sum unreachable, from the signs of the terms alone."""
    if stage.signs is None:
        return {}
    (group,) = (group for group in stage.groups if group.name.endswith("range"))
    never = [label for sign, label in enumerate(("+zero, exact", "-zero, exact")) if sign not in stage.zero_signs]
    excluded = np.array([label in never for label in group.labels()]) & waiting[group.name]
    return {group.name: Reach(excluded, f"all {len(stage.terms) + 1} numbers of negative terms in a sum that is zero")}


def _multiples(stage: Stage, waiting: dict[str, Flags]) -> dict[str, Reach]:
    """Prove discarded bits unreachable if every term is a multiple of the last place of fixed point."""
    quantum = min(term.span.quantum for term in stage.terms)
    if stage.o.spacing != "uniform" or quantum < stage.o.quantum:
        return {}
    reaches = {}
    for group in stage.groups:
        dropped = [any(rest in label for rest in (*RESTS[1:], "inexact")) for label in group.labels()]
        excluded = np.array(dropped) & waiting[group.name]
        if excluded.any():
            proof = f"all terms: multiples of 2^{quantum}, and so of the last place 2^{stage.o.quantum}"
            reaches[group.name] = Reach(excluded, proof)
    return reaches


def _values(term: Term) -> Raw | None:
    """Return all different numbers of a term, or None if there are too many codes."""
    operands = _operands([term])
    if sum(operands.values()) > JOINT_BITS:
        return None
    columns = {port: torch.from_numpy(codes.view(np.int64)) for port, codes in _product(operands).items()}
    raws = []
    # The smallest random word rounds a product down, the largest one up where possible.
    for words in _extreme_words({port: term.ports[port] for port in term.words}):
        given = {port: torch.full_like(columns["a"], word) for port, word in words.items()}
        raws.append(term.make(columns | given))
    raw = _joined(raws)
    more = [] if raw.sticky is None else [raw.sticky]
    keys = torch.stack([raw.sign, raw.nan, raw.inf, raw.zero, *more, raw.exponent, *raw.significand.limbs], 1)
    _, first = np.unique(keys.to(torch.int64).numpy(), axis=0, return_index=True)
    return _taken(raw, torch.from_numpy(first))


def _joined(raws: Sequence[Raw], join: Callable[..., Tensor] = torch.cat) -> Raw:
    """Concatenate numbers."""
    names = (
        "sign",
        "exponent",
        "nan",
        "inf",
        "zero",
        *(name for name in ("scale", "sticky") if getattr(raws[0], name) is not None),
    )
    limbs = tuple(map(join, zip(*(raw.significand.limbs for raw in raws), strict=True)))
    fields = {name: join([getattr(raw, name) for raw in raws]) for name in names}
    return Raw(significand=Wide(limbs, raws[0].significand.width), **fields)


def _taken(raw: Raw, index: Tensor) -> Raw:
    return _joined([raw], lambda tensors: tensors[0][index])


def _pairs(
    stage: Stage, terms: Sequence[Raw | None], waiting: dict[str, Flags], known: dict[str, Flags], progress: Progress
) -> str:
    """Enumerate all pairs of different terms, or all numbers of a single term, until all open bins are reached."""
    used = [values for values in terms if values is not None]
    words = ", with the random words that matter" if stage.rounding.bits else ""
    counts = [len(raw.sign) for raw in used]
    if len(used) == 1:
        for numbers in torch.arange(counts[0]).split(CHUNK):
            _mark_reached(stage, [_taken(used[0], numbers)], known)
        return f"all {counts[0]:,} different numbers before rounding{words}"
    blocks = _blocks(stage, used[0], used[1], waiting)
    total = sum(len(first) * len(second) for first, second in blocks)
    if total > PAIRS:
        return ""
    progress.total(f"proving {stage.name or 'sums'}", total)
    for first, second in _batches(blocks):
        _mark_reached(stage, [_taken(used[0], first), _taken(used[1], second)], known)
        progress.advance(len(first))
        if not any((flags & ~known[name]).any() for name, flags in waiting.items()):
            break
    count = math.prod(counts)
    return f"all {count:,} pairs of different terms{words}; {total:,} candidates among them were added"


Block = tuple[Tensor, Tensor]
"""Indices of terms: each first term is added to each second term."""


def _blocks(stage: Stage, left: Raw, right: Raw, waiting: dict[str, Flags]) -> list[Block]:
    """Choose pairs of terms that may reach an open bin, by exponent and sign.

    If terms are further apart than the window, the sum is the larger term and a sticky bit, so one smaller term of each
    sign represents all. Pairs whose sum cannot have the exponent of an open bin are omitted. Without cancellation the
    exponent of a sum is that of the larger term, plus or minus one; it is never below the last place of a term.
    """
    wanted = {stage.bounds(name, int(index)) for name, flags in waiting.items() for index in np.flatnonzero(flags)}
    first, second = _by_exponent(left), _by_exponent(right)
    specials = [torch.nonzero(~is_number(raw)).flatten() for raw in (left, right)]
    everything = [torch.arange(len(raw.sign)) for raw in (left, right)]
    blocks = [(specials[0], everything[1]), (everything[0], specials[1])]
    far, last = stage.window + 3, tuple(1 - term.span.precision for term in stage.terms)
    for (e, sign), x in first.items():
        above = [(key, y) for key, y in second.items() if key[0] >= e + far]
        for (f, other_sign), y in _not_above(second, e, far):
            low, high = _exponents_of_sum((e, f), last, sign != other_sign)
            least, most = max(e, f) - high, max(e, f) - low
            if any(low <= w.until and w.since <= high and least <= w.most and w.least <= most for w in wanted):
                blocks.append((x, y))
        blocks += [(x[:1], y) for key, y in above if e == max(f for f, s in first if f <= key[0] - far and s == sign)]
    return blocks


def _not_above(
    terms: Mapping[tuple[int, bool], Tensor], exponent: int, far: int
) -> list[tuple[tuple[int, bool], Tensor]]:
    """Return terms within the window around an exponent, and one of each sign for all smaller ones below it."""
    near = [(key, y) for key, y in terms.items() if abs(exponent - key[0]) < far]
    for sign in (False, True):
        below = [key for key in terms if key[0] <= exponent - far and key[1] == sign]
        near += [(max(below), terms[max(below)][:1])] if below else []
    return near


def _batches(blocks: Sequence[Block]) -> Iterator[Block]:
    """Yield pairs of indices in batches; small blocks are merged and large ones are split."""
    held: list[Block] = []
    for first, second in blocks:
        rows = max(CHUNK // max(len(second), 1), 1)
        for start in range(0, len(first), rows):
            some = first[start : start + rows]
            held.append((some.repeat_interleave(len(second)), second.repeat(len(some))))
            if sum(len(first) for first, _ in held) >= CHUNK:
                yield _concatenated(held)
                held = []
    if held:
        yield _concatenated(held)


def _concatenated(held: Sequence[Block]) -> Block:
    return torch.cat([first for first, _ in held]), torch.cat([second for _, second in held])


def _exponents_of_sum(terms: tuple[int, int], last: tuple[int, ...], opposite: bool) -> tuple[int, int]:
    """Return the smallest and largest exponent of a nonzero sum; ``last`` are the offsets of the terms' last places."""
    top = max(terms)
    if not opposite:
        return top, top + 1
    if abs(terms[0] - terms[1]) > 1:
        return top - 1, top
    return min(exponent + place for exponent, place in zip(terms, last, strict=True)), top


def _by_exponent(raw: Raw) -> dict[tuple[int, bool], Tensor]:
    """Group the indices of numbers by exponent and sign."""
    index = torch.nonzero(is_number(raw)).flatten()
    keys = zip(raw.exponent[index].tolist(), raw.sign[index].tolist(), strict=True)
    numbers_of: dict[tuple[int, bool], list[int]] = {}
    for key, number in zip(keys, index.tolist(), strict=True):
        numbers_of.setdefault(key, []).append(number)
    return {key: torch.tensor(numbers) for key, numbers in numbers_of.items()}


def _mark_reached(stage: Stage, raws: Sequence[Raw], known: dict[str, Flags]) -> None:
    for word in stage.extreme_words(raws):
        for group, numbers in zip(stage.groups, stage.bins(raws, word, result_of(stage, raws, word)), strict=True):
            known[group.name] |= group.count(numbers) > 0


def _sums(stage: Stage, terms: Sequence[Raw | None], known: dict[str, Flags]) -> str:
    """Enumerate all sums of fixed-point terms, as sets of integers."""
    spans = [term.span for term in stage.terms]
    quantum = min(span.quantum for span in spans)
    if sum(span.magnitude for span in spans) / 2**quantum > SUMS:
        return ""
    sets = [np.unique(_integers(values, quantum)) for values in terms if values is not None]
    sums = functools.reduce(_sumset, sets)
    width = int(np.abs(sums).max()).bit_length() + 1
    fmt = Fixed(width + quantum, -quantum)
    stage_of_sums = replace(
        stage, terms=(Term({}, lambda codes: unpack(codes["sum"], fmt), spans[0], True),), quire=None
    )
    names = {group.name: np.zeros(group.size, dtype=bool) for group in stage_of_sums.groups}
    for start in range(0, len(sums), CHUNK):
        codes = torch.from_numpy(sums[start : start + CHUNK]) & mask(width)
        _mark_reached(stage_of_sums, [unpack(codes, fmt)], names)
    origins = stage.groups[0]
    labels = list(origins.labels())
    kinds = {
        "zeros": all((numbers == 0).any() for numbers in sets),
        "other": bool(sums.any()),
        "cancelled": len(sets) > 1 and _cancel(sets),
    }
    known[origins.name][:] = [kinds[label] for label in labels]
    for name in names.keys() - {origins.name}:
        known[name] |= names[name]
    return f"all {len(sums):,} different sums"


def _cancel(sets: Sequence["np.ndarray"]) -> bool:
    """Return True if terms that are not all zero may have the sum zero."""
    return any(
        (functools.reduce(_sumset, [*sets[:n], *sets[n + 1 :]]) == -value).any()
        for n, numbers in enumerate(sets)
        for value in numbers[numbers != 0]
    )


def _integers(raw: Raw, quantum: int) -> "np.ndarray":
    """Convert numbers to integer multiples of 2^quantum."""
    down = quantum - (raw.exponent - (raw.significand.width - 1))
    low = torch.where(raw.zero, 0, (raw.significand.low << (-down).clamp(min=0)) >> down.clamp(0, 62))
    integers: np.ndarray = torch.where(raw.sign, -low, low).numpy()
    return integers


def _sumset(first: "np.ndarray", second: "np.ndarray") -> "np.ndarray":
    """Return all sums of one number of each set, computed by shifts of a long bit mask."""
    few, many = sorted((first, second), key=len)
    bits = int.from_bytes(np.packbits(np.bincount(many - many[0]).astype(bool), bitorder="little").tobytes(), "little")
    total = 0
    for value in few.tolist():
        total |= bits << (value - int(few[0]))
    data = np.frombuffer(total.to_bytes(total.bit_length() // 8 + 1, "little"), dtype=np.uint8)
    sums: np.ndarray = np.flatnonzero(np.unpackbits(data, bitorder="little")) + int(few[0]) + int(many[0])
    return sums
