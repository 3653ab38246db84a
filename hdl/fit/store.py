"""Line segments that were fitted, stored on disk under the request for them."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from halfulp.hdl.formats import RN, Format, Rounding, parse
from halfulp.hdl.specs.piecewise import PIECES, PwlSpec, is_table_name
from halfulp.hdl.specs.segments import Segments
from halfulp.tools.cache import Entry, cached_value
from halfulp.tools.digests import code
from halfulp.tools.paths import build_root, work_root, write_whole

SUFFIX = ".segments"
"""End of the name of a file that holds segments as text."""

DIGEST = "digest"
"""First word of a file of segments, before their digest; a file of a user's own needs no such line."""

_BUDGET = ("pieces", "error", "breakpoints", "slopes", "terms")

Asked = tuple[tuple[str, Any], ...]


def segments_of(
    fn: str | Callable[[Any], Any] | Segments,
    *,
    fmt: Format | str | None = None,
    out: Format | str | None = None,
    rounding: Rounding | str = RN,
    **budget: Any,
) -> Segments:
    """Segments of a function: as they are given, of a file, or fitted.

    Parameters
    ----------
    fn : str, callable or Segments
        The function's name or the name of a file that ends with ``.segments``, any function of one number, or the
        segments themselves.
    fmt : Format or str, optional
        Of the argument; segments that are there have it.
    out : Format or str, optional
        Of the value; that of the argument by default.
    rounding : Rounding or str
        Of the value. Coefficients are chosen for it, and for nearest where it is stochastic.
    **budget
        Options ``pieces``, ``error``, ``breakpoints``, ``slopes`` and ``terms`` of `fit`; default: 8 pieces.

    Raises
    ------
    TypeError, ValueError
        If something is of the wrong kind, or cannot be, or means nothing for segments that are there.
    """
    if unknown := sorted(set(budget) - set(_BUDGET)):
        raise TypeError(f"segments_of has no option {unknown[0]}; it has {', '.join(_BUDGET)}")
    budget = {name: value for name, value in budget.items() if value is not None}
    ready = fn if isinstance(fn, Segments) else None
    if isinstance(fn, str) and fn.endswith(SUFFIX):
        ready = read(Path(fn))
    elif isinstance(fn, str) and is_table_name(fn):
        places = [_saved(fn), _saved(fn, build_root())]
        path = next((path for path in places if path.is_file()), places[0])
        ready = read(path)
        if str(ready) != fn:
            raise ValueError(f"{path} is damaged: it holds the segments {ready} and not {fn}; write them again")
    if ready is not None:
        return _checked(ready, fmt, out, budget)
    if fmt is None:
        raise TypeError("fmt is missing: a function is fitted in a format")
    asked = _asked(parse(fmt), out, Rounding.parse(rounding), budget)
    return _of_disk(fn, asked) if isinstance(fn, str) else _fitted(fn, asked)


def entry_of(fn: str, *, fmt: Format, out: Format | None = None, rounding: Rounding = RN, **options: Any) -> Entry:
    """Place of a fit in the cache, whose value is the text of its segments; options as `segments_of` takes them."""
    return Entry.of(*_place(fn, _asked(fmt, out, rounding, options)))


def _asked(fmt: Format, out: Format | str | None, rounding: Rounding, given: dict[str, Any]) -> Asked:
    options = given if {"pieces", "error"} & set(given) else given | {"pieces": PIECES}
    options = options | {"rounding": RN if rounding.mode in ("sr", "exact") else rounding}
    return (("fmt", fmt), ("out", fmt if out is None else parse(out)), *sorted(options.items()))


def _place(fn: str, asked: Asked) -> tuple[str, tuple[Any, ...], str]:
    """Kind, parts and name of a fit in the cache."""
    return "fits", (code("halfulp.hdl.fit.fit"), fn, *asked), fn


def table_of(spec: PwlSpec) -> Segments:
    """Segments of a description: fitted, or a saved table."""
    return segments_of(spec.function, fmt=spec.a, out=spec.o, rounding=spec.rounding, **spec.budget)


def read(path: Path) -> Segments:
    """Segments of a file.

    Raises
    ------
    ValueError
        If there is no such file, it holds no segments, or others than those of the digest in its first line.
    """
    try:
        text = path.read_text()
        head, _, rest = text.partition("\n")
        if head.partition(" ")[0] != DIGEST:
            return Segments.read(text)
        table = Segments.read(rest)
        if head != f"{DIGEST} {table.digest}":
            raise ValueError(f"they have the digest {table.digest} and not that of the first line; the file is damaged")
        return table
    except (OSError, UnicodeError) as error:
        raise ValueError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    except (TypeError, ValueError, ZeroDivisionError) as error:
        raise ValueError(f"{path} holds no segments: {error}") from None


def write(table: Segments) -> Path:
    """A file of segments in the build folder, whose name tells them."""
    path = _saved(str(table))
    text = f"{DIGEST} {table.digest}\n{table.text}"
    if not path.is_file() or path.read_bytes() != text.encode():
        write_whole(path, text)
    return path


def _saved(name: str, root: Path | None = None) -> Path:
    return (root or work_root()) / "segments" / f"{name}{SUFFIX}"


def _checked(ready: Segments, fmt: Format | str | None, out: Format | str | None, budget: dict[str, Any]) -> Segments:
    """Segments that are there, where nothing else is asked of them."""
    for name in budget:
        raise ValueError(f"{name} does nothing to the segments {ready}, which are there; it is for a fit")
    for name, asked, there in (("fmt", fmt, ready.fmt), ("out", out, ready.out)):
        if asked is not None and parse(asked) != there:
            raise ValueError(f"{name} {asked} differs from {there} in the segments {ready}")
    return ready


@functools.lru_cache(maxsize=256)
def _of_disk(fn: str, asked: Asked) -> Segments:
    """The fit, from the cache if it was made before."""
    kind, parts, name = _place(fn, asked)
    return Segments.read(cached_value(kind, parts, lambda: _fitted(fn, asked).text, name=name))


@functools.lru_cache(maxsize=256)
def _fitted(fn: Any, asked: Asked) -> Segments:
    # The fit needs numpy and mpmath, which take long to load.
    from .fit import fit

    return fit(fn, **dict(asked)).segments
