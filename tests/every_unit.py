"""Comparison of the RTL, golden and exact results of every unit of the catalogue in a format."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from amaranth.hdl import Shape

from halfulp.hdl.formats import Float, Format, Rounding
from halfulp.hdl.formats.rounding import EXACT, MODE_BITS
from halfulp.hdl.formats.rounding import MODES as ROUNDING_MODES
from halfulp.hdl.specs import UNITS, RequantizeSpec, UnitSpec
from halfulp.sim.bench import result_formats
from halfulp.sim.corner_cases import corner_cases
from halfulp.sim.corner_middles import middles
from halfulp.sim.fields import words
from halfulp.sim.model import CompiledModel
from halfulp.sim.ports import MODE, Codes, Ports
from halfulp.sim.reference import reference
from halfulp.sim.report import exact_codes
from halfulp.sim.space import Space
from halfulp.sim.vectors import random_words, sampled
from halfulp.units.catalogue import CATALOGUE, component
from tests.agreement.test_exhaustive import Bundle
from tests.short_form import BLOCK

MODES = (*ROUNDING_MODES, "sr3")
CHUNK = 1 << 17


def specs(fmt: Format, name: str) -> list[UnitSpec]:
    """Return descriptions of a unit in a format, rounded to nearest, with all kinds of sums and start values.

    Every operand has the format, except accumulators that it cannot initialise. Empty if the unit does not accept the
    format.
    """
    cls = UNITS[name]
    # Fits of functions support formats of up to 16 bits.
    if not cls.takes(fmt, None) or ("function" in cls.form.parts and fmt.width > 16):
        return []
    # The formats of an fpu differ.
    parts = ("a",) if name == "fpu" else cls.form.parts
    given = {part: fmt for part in parts if part not in ("function", "product", *cls.INTEGERS)}
    given |= dict.fromkeys(cls.BLOCKS, BLOCK)
    if name == "mma" and not (isinstance(fmt, Float) and fmt.has_inf and fmt.subnormals):
        given["o"] = Float(5, 4)
    if "acc" in given:
        given["acc"] = given["o"] = fmt if fmt.decode(0) == 0 else fmt.default_accumulator()
    spec = cls.filled(**{"a": fmt, **given, **({"k": 2} if cls.form.count else {})})
    found = [spec]
    if "acc" in given:
        found.append(replace(spec, acc="exact"))
    if "product" in cls.form.parts:
        found.append(replace(spec, product=fmt, product_rounding=spec.rounding))
    if name == "mma":
        found.append(replace(spec, order="aligned2", zero=1))
    elif "order" in cls.__dataclass_fields__:
        found += [replace(spec, order="sequential"), replace(spec, c=None), replace(spec, c=None, order="sequential")]
        if isinstance(fmt, Float):
            found += [replace(spec, order="aligned3.trunc"), replace(spec, c=None, order="aligned2.floor")]
    return found


def built(spec: UnitSpec) -> Any:
    """Return the component of a description; it is iterative if the unit has no combinational form."""
    return component(spec, CATALOGUE[spec.form.unit].unit.default_build(spec))


def rounded(spec: UnitSpec, mode: str, saturate: bool = False) -> UnitSpec:
    """Return a description with another rounding of the result and of a rounded product, if it rounds."""
    if not spec.ROUNDS:
        return spec
    rounding = Rounding.parse(mode)
    product = {} if getattr(spec, "product_rounding", EXACT) == EXACT else {"product_rounding": rounding}
    if isinstance(spec, RequantizeSpec) and rounding.bits:
        # Its rounded product has no random words.
        product = {}
    return replace(spec, rounding=rounding, saturate=saturate, **product)


def vectors(unit: Any, most_bits: int, count: int, seed: int = 1) -> Iterator[dict[str, Codes]]:
    """Yield all inputs of a unit in chunks if there are at most 2^most_bits, and directed and random ones otherwise."""
    inputs = Ports.inputs_of(unit)
    space = Space.of(inputs)
    rng = np.random.default_rng(seed)
    if space.bits > most_bits:
        for size in [CHUNK] * (count // CHUNK) + [count % CHUNK] * (count % CHUNK > 0):
            yield sampled(inputs, result_formats(unit), size, rng, corners=corner_cases(unit))
        return
    every_word = space.bits + space.random_bits <= most_bits
    total = 1 << (space.bits + (space.random_bits if every_word else 0))
    for start in range(0, total, CHUNK):
        size = min(CHUNK, total - start)
        codes = space.codes(start, size, with_random=every_word)
        yield codes if every_word else codes | random_words(inputs, size, rng)


def near_middles(unit: Any, count: int, seed: int = 1) -> Iterator[dict[str, Codes]]:
    """Yield operands of a division or root, in chunks, whose results are next to the middle between two numbers."""
    inputs = Ports.inputs_of(unit)
    rng = np.random.default_rng(seed)
    codes = middles(unit.spec, count, seed)
    for start in range(0, count, CHUNK):
        chunk = {name: column[start : start + CHUNK] for name, column in codes.items()}
        size = len(chunk["a"])
        modes = {MODE: words(rng, size, MODE_BITS)} if MODE in inputs.names else {}
        yield chunk | modes | random_words(inputs, size, rng)


def rtl_mismatches(
    pairs: dict[UnitSpec, UnitSpec],
    *,
    most_bits: int = 24,
    count: int = 10**6,
    choose: Callable[[Any], Iterable[dict[str, Codes]]] | None = None,
) -> tuple[int, list[str]]:
    """Compare the RTL of descriptions (keys) with the golden model of descriptions with equal results (values).

    All descriptions have the same latency. Returns the number of compared results, and the mismatches as texts.
    ``choose`` makes the vectors of a unit; default: `vectors`.
    """
    choose = choose or partial(vectors, most_bits=most_bits, count=count)
    units = {f"u{place}": built(spec) for place, spec in enumerate(pairs)}
    twins = [built(spec) for spec in pairs.values()]
    bundle = Bundle(units)
    idle = {name: np.zeros(1, dtype=np.uint64) for name in bundle.inputs}
    checks, failed = 0, []
    with CompiledModel.of_unit(bundle) as loop:
        groups: dict[tuple[tuple[str, int], ...], list[tuple[str, Any, Any]]] = {}
        for (label, unit), twin in zip(units.items(), twins, strict=True):
            inputs = tuple((name, Shape.cast(shape).width) for name, shape in unit.inputs.items())
            groups.setdefault(inputs, []).append((label, unit, twin))
        for members in groups.values():
            for codes in choose(members[0][1]):
                size = max(map(len, codes.values()))
                found = loop.run(idle | codes, size)
                for label, unit, twin in members:
                    for port, expected in reference(twin, codes).items():
                        got = found[f"{label}_{port}"]
                        checks += size
                        wrong = np.flatnonzero(got != expected)
                        failed += [text(unit, codes, at, port, expected[at], got[at]) for at in wrong[:3]]
    return checks, failed


def text(unit: Any, codes: dict[str, Codes], at: int, port: str, expected: int, got: int) -> str:
    """Return the text of a mismatch."""
    operands = {name: hex(int(column[at % len(column)])) for name, column in codes.items()}
    return f"{unit.name} {port}: {operands} expected {int(expected):#x}, got {int(got):#x}"


def exact_mismatches(
    spec: UnitSpec,
    *,
    most_bits: int = 16,
    count: int = 1 << 12,
    choose: Callable[[Any], Iterable[dict[str, Codes]]] | None = None,
) -> tuple[int, list[str]]:
    """Compare the golden model of a description with exact fractions; arguments as in `rtl_mismatches`."""
    unit = built(spec)
    choose = choose or partial(vectors, most_bits=most_bits, count=count)
    checks, failed = 0, []
    for codes in choose(unit):
        size = max(map(len, codes.values()))
        columns = {name: np.broadcast_to(column, size).tolist() for name, column in codes.items()}
        expected = reference(unit, codes)
        for at in range(size):
            found = {port: int(column[at]) for port, column in expected.items()}
            results = exact_codes(unit, {name: column[at] for name, column in columns.items()}, found)
            checks += 1
            failed += [
                text(unit, codes, at, port, result, found[port])
                for port, result in results.items()
                if found[port] != result
            ]
    return checks, failed
