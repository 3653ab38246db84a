"""Which kernels a description has: the fastest that is proved exact for it, and those for what that one refuses."""

import functools
import re

from halfulp.hdl.formats import MacSpec, Span

from ..round import looked_at
from .text import spec_text

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
    return (_exact(spec, source),) if fits_exact(spec) else ()


def file_name(spec: MacSpec) -> str:
    """What the files of a description's kernels begin with."""
    return re.sub(r"[^a-z0-9]+", "_", str(spec))


def _exact(spec: MacSpec, source: str | None) -> str:
    return _source("exact.h", spec_text(spec, source), "gemm_exact<Spec>(*call);\nreturn 0;")


def _source(header: str, body: str, run: str) -> str:
    return f"""#include "{header}"

namespace halfulp {{
struct Spec {{
{body}
}};
}}  // namespace halfulp

extern "C" __attribute__((visibility("default"))) int halfulp_gemm(const halfulp::Call* call) {{
using namespace halfulp;
{run}
}}
"""


def fits_exact(spec: MacSpec) -> bool:
    """Whether 128-bit integers hold all that a step looks at.

    A sum has the first one of its larger term at place 125, so that nothing is lost of a term of up to 126 bits unless
    it is below every place that rounding looks at one by one, of which there are at most 118: a difference that loses
    more than one leading place is of numbers next to each other, and exact.
    """
    product = Span.of(spec.a) * Span.of(spec.b)
    most = [product.precision, spec.terms.precision, spec.o.precision, looked_at(spec.o, spec.rounding, spec.sums)]
    if spec.product is not None:
        most.append(looked_at(spec.product, spec.product_rounding, product))
    return max(most) <= WINDOW
