"""Storage of fitted line segments, in the cache and in files."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from halfulp.hdl.formats import RN, Format, Rounding, parse
from halfulp.hdl.specs.pwl import BUDGET, PIECES, PwlSpec, is_table_name
from halfulp.hdl.specs.segments import Segments
from halfulp.tools.cache import Entry, cached_value
from halfulp.tools.digests import code
from halfulp.tools.paths import build_root, work_root, write_whole
from halfulp.tools.progress import Bar

SUFFIX = ".segments"
"""File name suffix of segments in text form."""

DIGEST = "digest"
"""First word of a segment file, followed by the digest; files written by hand need no such line."""

FitRequest = tuple[tuple[str, Any], ...]


def segments_of(
    fn: str | Callable[[Any], Any] | Segments,
    *,
    fmt: Format | str | None = None,
    out: Format | str | None = None,
    rounding: Rounding | str = RN,
    **budget: Any,
) -> Segments:
    """Return the segments of a function: given, read from a file, or fitted.

    Parameters
    ----------
    fn : str, callable or Segments
        Name of a function, name of a file that ends with ``.segments``, any function of one number, or segments.
    fmt : Format or str, optional
        Format of the argument; must be omitted or equal for given segments.
    out : Format or str, optional
        Format of the value; default: format of the argument.
    rounding : Rounding or str
        Rounding of the value, for which coefficients are chosen. Stochastic rounding uses ``rn``.
    **budget
        Options of `fit` that `BUDGET` names; default: 8 pieces.

    Raises
    ------
    TypeError, ValueError
        If an argument has the wrong type, is invalid, or has no effect on given segments.
    """
    if unknown := sorted(set(budget) - set(BUDGET)):
        raise TypeError(f"segments_of has no option {unknown[0]}; expected {', '.join(BUDGET)}")
    budget = {name: value for name, value in budget.items() if value is not None}
    ready = fn if isinstance(fn, Segments) else None
    if isinstance(fn, str) and fn.endswith(SUFFIX):
        ready = read(Path(fn))
    elif isinstance(fn, str) and is_table_name(fn):
        places = [_saved(fn), _saved(fn, build_root())]
        path = next((path for path in places if path.is_file()), places[0])
        ready = read(path)
        if str(ready) != fn:
            raise ValueError(f"{path} is damaged: it contains the segments {ready}, not {fn}; write it again")
    if ready is not None:
        return _checked(ready, fmt, out, budget)
    if fmt is None:
        raise TypeError("fmt is missing: a fit needs the format of the argument")
    request = _request(parse(fmt), out, Rounding.parse(rounding), budget)
    return _cached_fit(fn, request) if isinstance(fn, str) else _fitted(fn, request)


def entry_of(fn: str, *, fmt: Format, out: Format | None = None, rounding: Rounding = RN, **options: Any) -> Entry:
    """Return the cache entry of a fit, whose value is the text of the segments; options as in `segments_of`."""
    return Entry.of(*_place(fn, _request(fmt, out, rounding, options)))


def _request(fmt: Format, out: Format | str | None, rounding: Rounding, given: dict[str, Any]) -> FitRequest:
    options = given if {"pieces", "error"} & set(given) else given | {"pieces": PIECES}
    options = options | {"rounding": RN if rounding.mode in ("sr", "exact") else rounding}
    return (("fmt", fmt), ("out", fmt if out is None else parse(out)), *sorted(options.items()))


def _place(fn: str, request: FitRequest) -> tuple[str, tuple[Any, ...], str]:
    """Return kind, parts and name of the cache entry of a fit."""
    return "fits", (code("halfulp.hdl.fit.fit"), fn, *request), fn


def table_of(spec: PwlSpec) -> Segments:
    """Return the segments of a description, fitted or read from a saved table."""
    return segments_of(spec.function, fmt=spec.a, out=spec.o, rounding=spec.rounding, **spec.budget)


def read(path: Path) -> Segments:
    """Read segments from a file.

    Raises
    ------
    ValueError
        If the file is missing or invalid, or its content does not have the digest in its first line.
    """
    try:
        text = path.read_text()
        head, _, rest = text.partition("\n")
        if head.partition(" ")[0] != DIGEST:
            return Segments.read(text)
        table = Segments.read(rest)
        if head != f"{DIGEST} {table.digest}":
            raise ValueError(f"the file is damaged: its digest is {table.digest}, not the one in its first line")
        return table
    except (OSError, UnicodeError) as error:
        raise ValueError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    except (TypeError, ValueError, ZeroDivisionError) as error:
        raise ValueError(f"{path} is no valid segment file: {error}") from None


def write(table: Segments) -> Path:
    """Write segments to a file in the build folder and return its path, which contains their name and digest."""
    path = _saved(str(table))
    text = f"{DIGEST} {table.digest}\n{table.text}"
    if not path.is_file() or path.read_bytes() != text.encode():
        write_whole(path, text)
    return path


def _saved(name: str, root: Path | None = None) -> Path:
    return (root or work_root()) / "segments" / f"{name}{SUFFIX}"


def _checked(ready: Segments, fmt: Format | str | None, out: Format | str | None, budget: dict[str, Any]) -> Segments:
    """Return given segments; raise ValueError if other formats or a budget are requested."""
    for name in budget:
        raise ValueError(f"{name} does nothing with the given segments {ready}; it is an option of fits")
    for name, request, there in (("fmt", fmt, ready.fmt), ("out", out, ready.out)):
        if request is not None and parse(request) != there:
            raise ValueError(f"{name} {request} differs from {there} in the segments {ready}")
    return ready


@functools.lru_cache(maxsize=256)
def _cached_fit(fn: str, request: FitRequest) -> Segments:
    """Return a fit from the cache, or make it."""
    kind, parts, name = _place(fn, request)
    return Segments.read(cached_value(kind, parts, lambda: _fitted(fn, request).text, name=name))


@functools.lru_cache(maxsize=256)
def _fitted(fn: Any, request: FitRequest) -> Segments:
    # The fit imports numpy and mpmath, which load slowly.
    from .fit import fit

    given = dict(request)
    budget = " ".join(f"{name}={given[name]}" for name in BUDGET if name in given)
    with Bar(f"fitting {fn} from {given['fmt']} to {given['out']} with {budget}; this is done once"):
        return fit(fn, **given).segments
