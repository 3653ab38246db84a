"""Number formats, rounding modes and random sources: plain, immutable data."""

from . import families
from .base import Format, decimal_text
from .catalogue import NAMED, parse
from .families import *  # noqa: F403
from .families import Fixed, Float, Posit
from .floating import ML_DTYPES
from .rounding import EXACT, RA, RD, RN, RO, RU, RZ, Rounding, stochastic


def _float(name: str) -> Float:
    fmt = NAMED[name]
    assert isinstance(fmt, Float)
    return fmt


FP64 = _float("fp64")
FP32 = _float("fp32")
TF32 = _float("tf32")
BF16 = _float("bf16")
FP16 = _float("fp16")
E3M4 = _float("e3m4")
E4M3 = _float("e4m3")
E5M2 = _float("e5m2")
E6M5 = _float("e6m5")
E4M3FN = _float("e4m3fn")
E4M3FNUZ = _float("e4m3fnuz")
E4M3B11FNUZ = _float("e4m3b11fnuz")
E5M2FNUZ = _float("e5m2fnuz")
E3M2FN = _float("e3m2fn")
E2M3FN = _float("e2m3fn")
E2M1FN = _float("e2m1fn")

POSIT8, POSIT16, POSIT32, POSIT64 = (Posit(width) for width in (8, 16, 32, 64))
INT4, INT8, INT16, INT32 = (Fixed(width, 0) for width in (4, 8, 16, 32))

__all__ = ["EXACT", "ML_DTYPES", "NAMED", "RA", "RD", "RN", "RO", "RU", "RZ"]
__all__ += ["Format", "Rounding", "decimal_text", "parse", "stochastic"]
__all__ += families.__all__
