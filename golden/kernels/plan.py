"""Selection of the vector kernels that are proved exact for a description."""

import functools
import re
from dataclasses import dataclass

from halfulp.hdl.formats import FP64, SATFINITE
from halfulp.hdl.specs import MacSpec, RunningSumSpec, ValueRange
from halfulp.hdl.specs.ranges import window_of

from .fixed_plan import fixed_text
from .float_plan import float_text
from .lane import BINARY32, BINARY64, Refused, need
from .text import definitions, fits, spec_text

ROWS, VECTORS, WIDEST = 4, 2, 16
"""Rows of a block, vectors of a row, and largest number of lanes of a vector."""

WINDOW = 118
"""Leading bits of a sum that are exact in exact.h, which truncates sums to two more bits and a sticky bit."""

SCATTERED = 24
"""Time to store a number of a transposed result, in multiply-accumulates."""


@dataclass(frozen=True)
class Lane:
    """C++ source of the kernel of a description with lanes of one type, or the reason why there is none."""

    source: str | None
    refusal: str | None = None


@functools.lru_cache(maxsize=4096)
def lane(spec: MacSpec, source: str | None, fma: bool, family: str, bits: int) -> Lane:
    """Return the vector kernel of a description for one type of lanes; it may refuse operands.

    Parameters
    ----------
    spec : MacSpec
        Description of a step.
    source : str, optional
        ``philox`` for counter-based random words.
    fma : bool
        The processor has a fused multiply-add.
    family, bits : str, int
        Type of the lanes: ``Fixed`` for integers or ``Float``, of 32 or 64 bits.
    """
    if not fits(spec.a, spec.b, spec.product, spec.o):
        return Lane(None, "kernels do not hold numbers of its formats")
    try:
        of_float = BINARY32 if bits == BINARY32.bits else BINARY64
        body = fixed_text(spec, bits) if family == "Fixed" else float_text(spec, of_float, fma)
        return Lane(_in_lanes(spec, source, family, bits, body))
    except Refused as reason:
        return Lane(None, str(reason))


def is_transposed(n: int, k: int, m: int) -> bool:
    """Return True if the transposed product is faster: lanes are columns of the result, idle if there are few.

    The lanes of a transposed product are not neighbours in memory.

    The transposed product has the same bits: multiplication is commutative, and the random words of an element depend
    on its place in the result only.
    """

    def work(rows: int, columns: int) -> int:
        return -(-rows // ROWS) * ROWS * -(-columns // (VECTORS * WIDEST)) * VECTORS * WIDEST

    return (work(n, m) - work(m, n)) * k > SCATTERED * n * m


def file_name(spec: RunningSumSpec) -> str:
    """Return the beginning of the file names of a description's kernels."""
    return re.sub(r"[^a-z0-9]+", "_", spec.expression)


def _in_lanes(spec: MacSpec, source: str | None, family: str, bits: int, body: str) -> str:
    """Return the source of a kernel with ``Fixed`` or ``Float`` steps; raise `Refused` if source states are wider."""
    narrow = source is not None or spec.random is None or spec.random.register <= bits
    need(narrow, f"states of {spec.random} have more bits than it")
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


MARGIN = 64
"""Least distance of the exponents of terms from those of the ends of binary64, in which sums and errors are exact."""


def fits_compound(spec: RunningSumSpec) -> bool:
    """Return True for a compound accumulator whose terms and parts binary64 holds, far from its ends."""
    part = spec.o.part_format
    if spec.quire is not None or spec.o.parts == 1 or spec.saturate == SATFINITE:
        return False
    if part.precision > FP64.precision - 2:
        return False
    spans = spec.terms, ValueRange.of(part)
    return all(
        span.precision <= FP64.precision
        and span.quantum >= FP64.quantum + MARGIN
        and span.magnitude < FP64.largest / 2**MARGIN
        for span in spans
    )


def fits_exact(spec: MacSpec) -> bool:
    """Return True if 128-bit integers hold all bits that the rounding of a step depends on.

    The leading one of the larger term is at bit 125. The smaller term loses bits below bit 0 only, while rounding
    depends on at most 118 leading bits of the sum. If a difference cancels more than one leading bit, the exponents of
    its terms differ by at most 1 and it is exact.
    """
    if not fits(spec.a, spec.b, spec.product, spec.o.part_format):
        return False
    product = ValueRange.of(spec.a) * ValueRange.of(spec.b)
    most = [product.precision, spec.terms.precision]
    if spec.o.parts > 1:
        # Lanes of binary64 hold operands, whose last places are normal numbers.
        of_a, of_b = ValueRange.of(spec.a), ValueRange.of(spec.b)
        if max(of_a.magnitude, of_b.magnitude) > FP64.largest or min(of_a.quantum, of_b.quantum) < FP64.emin:
            return False
        if max(of_a.precision, of_b.precision) > FP64.precision or not fits_compound(spec):
            return False
    else:
        most += [spec.o.precision, window_of(spec.o, spec.rounding, spec.sums.magnitude)]
    if spec.product is not None:
        most.append(window_of(spec.product, spec.product_rounding, product.magnitude))
    return max(most) <= WINDOW
