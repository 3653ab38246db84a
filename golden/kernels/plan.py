"""Kernels in lanes that are proved exact for a description, the fastest first; each may refuse operands."""

import contextlib
import functools
import re

from halfulp.golden.round import looked_at
from halfulp.hdl.formats.source import Lfsr
from halfulp.hdl.specs import MacSpec, ValueRange

from .fixed_plan import fixed_text
from .float_plan import BINARY32, BINARY64, Refused, float_text, need
from .text import definitions, fits, spec_text

ROWS, VECTORS, WIDEST = 4, 2, 16
"""Rows of a block, vectors of a row, and most lanes of a vector."""

WINDOW = 118
"""Bits of a sum that exact.h rounds from; sums are truncated to two more and a sticky bit."""


@functools.lru_cache(maxsize=4096)
def sources(spec: MacSpec, source: str | None, fma: bool) -> tuple[str, ...]:
    """C++ of the kernels in lanes of a description, in the order in which to try them.

    Parameters
    ----------
    spec : MacSpec
    source : str, optional
        ``philox`` where random words are counter-based.
    fma : bool
        The machine has a fused multiply-add.
    """
    found: list[str] = []
    if not fits(spec.a, spec.b, spec.product, spec.o):
        return ()
    for bits in (32, 64):
        with contextlib.suppress(Refused):
            found.append(_in_lanes(spec, source, "Fixed", bits, fixed_text(spec, bits)))
    for lane in (BINARY32, BINARY64):
        with contextlib.suppress(Refused):
            found.append(_in_lanes(spec, source, "Float", lane.bits, float_text(spec, lane, fma)))
    return tuple(found)


def is_turned(n: int, m: int) -> bool:
    """True if the transposed product is faster: lanes are columns, and most lanes are idle for few columns.

    It has the same bits: a product does not depend on the order of its factors, and random words go by the place of an
    element in the result.
    """

    def work(rows: int, columns: int) -> int:
        return -(-rows // ROWS) * ROWS * -(-columns // (VECTORS * WIDEST)) * VECTORS * WIDEST

    return work(m, n) < work(n, m)


def file_name(spec: MacSpec) -> str:
    """Beginning of the file names of a description's kernels."""
    return re.sub(r"[^a-z0-9]+", "_", spec.formula)


def _in_lanes(spec: MacSpec, source: str | None, family: str, bits: int, body: str) -> str:
    """Kernel in lanes of so many bits: ``Fixed`` or ``Float`` steps; refused for a source with wider states."""
    need(source is not None or not isinstance(spec.random, Lfsr) or spec.random.width <= bits)
    return f"""#include "{"fixed.h" if family == "Fixed" else "floats.h"}"
{definitions(spec.a, spec.b, spec.product, spec.o)}
namespace halfulp {{
struct Spec {{
{spec_text(spec, source)}
{body}
static constexpr int ROWS = {ROWS}, VECTORS = {VECTORS};
}};
}}  // namespace halfulp

extern "C" __attribute__((visibility("default"))) int halfulp_gemm(const halfulp::Call* call) {{
using namespace halfulp;
try {{
return Blocks<{family}Steps<Spec, {bits}>>(*call).run();
}} catch (...) {{
return 1;  // out of memory: the next kernel may need less
}}
}}
"""


def fits_exact(spec: MacSpec) -> bool:
    """True if 128-bit integers hold all bits that the rounding of a step depends on.

    The first one of the larger term is at place 125, so that a term of up to 126 bits loses only bits below the 118
    that rounding can depend on: a difference that loses more than one leading place is one of neighbours, and exact.
    """
    if not fits(spec.a, spec.b, spec.product, spec.o):
        return False
    product = ValueRange.of(spec.a) * ValueRange.of(spec.b)
    most = [product.precision, spec.terms.precision, spec.o.precision, looked_at(spec.o, spec.rounding, spec.sums)]
    if spec.product is not None:
        most.append(looked_at(spec.product, spec.product_rounding, product))
    return max(most) <= WINDOW
