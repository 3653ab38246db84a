"""Number formats, rounding modes and descriptions of operations: plain, immutable data."""

from .base import Format, decimal_text
from .catalogue import ML_DTYPES, NAMED, parse
from .floating import Float
from .mac import MacSpec, default_accumulator
from .rounding import EXACT, RA, RD, RN, RO, RU, RZ, Rounding, stochastic
from .span import Span

FP64 = NAMED["fp64"]
FP32 = NAMED["fp32"]
TF32 = NAMED["tf32"]
BF16 = NAMED["bf16"]
FP16 = NAMED["fp16"]
E3M4 = NAMED["e3m4"]
E4M3 = NAMED["e4m3"]
E5M2 = NAMED["e5m2"]
E6M5 = NAMED["e6m5"]
E4M3FN = NAMED["e4m3fn"]
E4M3FNUZ = NAMED["e4m3fnuz"]
E4M3B11FNUZ = NAMED["e4m3b11fnuz"]
E5M2FNUZ = NAMED["e5m2fnuz"]
E3M2FN = NAMED["e3m2fn"]
E2M3FN = NAMED["e2m3fn"]
E2M1FN = NAMED["e2m1fn"]

__all__ = [
    "BF16",
    "E2M1FN",
    "E2M3FN",
    "E3M2FN",
    "E3M4",
    "E4M3",
    "E4M3B11FNUZ",
    "E4M3FN",
    "E4M3FNUZ",
    "E5M2",
    "E5M2FNUZ",
    "E6M5",
    "EXACT",
    "FP16",
    "FP32",
    "FP64",
    "ML_DTYPES",
    "NAMED",
    "RA",
    "RD",
    "RN",
    "RO",
    "RU",
    "RZ",
    "TF32",
    "Float",
    "Format",
    "MacSpec",
    "Rounding",
    "Span",
    "decimal_text",
    "default_accumulator",
    "parse",
    "stochastic",
]
