"""Which kernels a description has: the fastest that is proved exact for it, and those for what that one refuses."""

import contextlib
import functools
import re

from halfulp.golden.round import looked_at
from halfulp.hdl.formats.source import Lfsr
from halfulp.hdl.specs import MacSpec, ValueRange

from .fixed_plan import fixed_text
from .float_plan import BINARY32, BINARY64, Lane, Refused, float_text, need
from .text import definitions, fits, spec_text

ROWS, VECTORS, WIDEST = 4, 2, 16
"""Of a block: rows, vectors in a row, and lanes in a vector where they are most."""

WINDOW = 118
"""Bits that exact.h looks at one by one; sums are cut to two more, and what is lower is one sticky bit."""


@functools.lru_cache(maxsize=4096)
def sources(spec: MacSpec, source: str | None, fma: bool) -> tuple[str, ...]:
    """C++ of the kernels of a description, in the order in which they are to be tried.

    Parameters
    ----------
    spec : MacSpec
    source : str, optional
        ``philox`` where random words are counter-based.
    fma : bool
        Whether the machine fuses multiplication and addition.
    """
    found: list[str] = []
    if not fits(spec.a, spec.b, spec.product, spec.o):
        return ()
    for bits in (32, 64):
        with contextlib.suppress(Refused):
            found.append(_fixed(spec, source, bits))
    for lane in (BINARY32, BINARY64):
        with contextlib.suppress(Refused):
            found.append(_floats(spec, source, lane, fma))
    if fits_exact(spec):
        found.append(_exact(spec, source))
    return tuple(found)


def is_turned(n: int, m: int) -> bool:
    """Whether the transposed product is the faster one: lanes are columns, and where there are few most are idle.

    It has the same bits. A step's product does not depend on the order of its factors, and every sum keeps its place
    in the order of the elements, by which random words are dealt.
    """

    def work(rows: int, columns: int) -> int:
        return -(-rows // ROWS) * ROWS * -(-columns // (VECTORS * WIDEST)) * VECTORS * WIDEST

    return work(m, n) < work(n, m)


def file_name(spec: MacSpec) -> str:
    """What the files of a description's kernels begin with."""
    return re.sub(r"[^a-z0-9]+", "_", str(spec))


def _fixed(spec: MacSpec, source: str | None, bits: int) -> str:
    body = fixed_text(spec, bits)
    _check_words(spec, source, bits)
    shape = f"static constexpr int ROWS = {ROWS}, VECTORS = {VECTORS};"
    return _source(spec, "fixed.h", f"{spec_text(spec, source)}\n{body}\n{shape}", _run("FixedSteps", bits))


def _check_words(spec: MacSpec, source: str | None, bits: int) -> None:
    """Refuse a source whose states are wider than a lane."""
    need(source is not None or not isinstance(spec.random, Lfsr) or spec.random.width <= bits)


def _run(steps: str, bits: int) -> str:
    return f"return Blocks<{steps}<Spec, {bits}>>(*call).run();"


def _floats(spec: MacSpec, source: str | None, lane: Lane, fma: bool) -> str:
    body = float_text(spec, lane, fma)
    _check_words(spec, source, lane.bits)
    shape = f"static constexpr int ROWS = {ROWS}, VECTORS = {VECTORS};"
    return _source(spec, "floats.h", f"{spec_text(spec, source)}\n{body}\n{shape}", _run("FloatSteps", lane.bits))


def _exact(spec: MacSpec, source: str | None) -> str:
    return _source(spec, "exact.h", spec_text(spec, source), "gemm_exact<Spec>(*call);\nreturn 0;")


def _source(spec: MacSpec, header: str, body: str, run: str) -> str:
    return f"""#include "{header}"
{definitions(spec.a, spec.b, spec.product, spec.o)}
namespace halfulp {{
struct Spec {{
{body}
}};
}}  // namespace halfulp

extern "C" __attribute__((visibility("default"))) int halfulp_gemm(const halfulp::Call* call) {{
using namespace halfulp;
try {{
{run}
}} catch (...) {{
return 1;  // no memory: what comes next may do with less
}}
}}
"""


def fits_exact(spec: MacSpec) -> bool:
    """Whether 128-bit integers hold all that a step looks at.

    A sum has the first one of its larger term at place 125, so that nothing is lost of a term of up to 126 bits unless
    it is below every place that rounding looks at one by one, of which there are at most 118: a difference that loses
    more than one leading place is of numbers next to each other, and exact.
    """
    product = ValueRange.of(spec.a) * ValueRange.of(spec.b)
    most = [product.precision, spec.terms.precision, spec.o.precision, looked_at(spec.o, spec.rounding, spec.sums)]
    if spec.product is not None:
        most.append(looked_at(spec.product, spec.product_rounding, product))
    return max(most) <= WINDOW
