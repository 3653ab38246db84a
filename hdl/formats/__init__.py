"""Number formats, rounding modes and random sources as immutable data."""

from . import families
from .base import Format, decimal_text
from .block import BLOCKS, FAMILIES, Block
from .catalogue import NAMED, parse
from .families import *  # noqa: F403  # families.py lists the names
from .families import Fixed, Float, Posit
from .floating import ML_DTYPES
from .rounding import EXACT, RA, RD, RH, RHD, RHU, RN, RO, RU, RZ, Rounding, stochastic
from .saturation import OFF, SAT, SATFINITE, Saturation


def _float(name: str) -> Float:
    fmt = NAMED[name]
    assert isinstance(fmt, Float)
    return fmt


FP64, FP32, TF32, BF16, FP16 = map(_float, ("fp64", "fp32", "tf32", "bf16", "fp16"))
E3M4, E4M3, E5M2, E6M5 = map(_float, ("e3m4", "e4m3", "e5m2", "e6m5"))
E4M3FN, E4M3FNUZ, E4M3B11FNUZ, E5M2FNUZ = map(_float, ("e4m3fn", "e4m3fnuz", "e4m3b11fnuz", "e5m2fnuz"))
E3M2FN, E2M3FN, E2M1FN = map(_float, ("e3m2fn", "e2m3fn", "e2m1fn"))
POSIT8, POSIT16, POSIT32, POSIT64 = (Posit(width) for width in (8, 16, 32, 64))
INT4, INT8, INT16, INT32 = (Fixed(width, 0) for width in (4, 8, 16, 32))

__all__ = [
    "BLOCKS",
    "EXACT",
    "ML_DTYPES",
    "NAMED",
    "OFF",
    "RA",
    "RD",
    "RH",
    "RHD",
    "RHU",
    "RN",
    "RO",
    "RU",
    "RZ",
    "SAT",
    "SATFINITE",
]
__all__ += ["FAMILIES", "Block", "Format", "Rounding", "Saturation", "decimal_text", "parse", "stochastic"]
__all__ += families.__all__
