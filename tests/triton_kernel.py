"""Triton kernel against tensor operations; TRITON_INTERPRET must be set before Triton is imported."""

import importlib

import numpy as np
import torch

from halfulp import golden
from halfulp.golden.kernels import triton_gemm
from halfulp.golden.kernels.launch import Words
from halfulp.hdl.specs import MacSpec

TEXTS = [
    "e5m2*e5m2+e6m5.rn",
    "e5m2*e5m2+e6m5.rd",
    "e5m2*e5m2+e6m5.sr10",
    "e4m3fn*e4m3fnuz+e4m3fn.ru.sat",
    "fp16-ftz*e2m1fn+e5m2fnuz.ro",
    "bf16*bf16+bf16.ra",
    "e3m2fn*e3m2fn+e3m2fn.rz",
    "fp32*tf32+fp16-ftz.rn",
]

FAR_BELOW = (("rn", 1, 262), ("rn", -1, 260), ("ru", 1, 262), ("rz", -1, 260), ("ro", 1, 262), ("ro", -1, 262))
"""Roundings of 9 * 29 = 261 to bf16, between 260 and 262, plus or minus a term far below the last place.

262 has the odd code.
"""


def main() -> None:
    """Compare all cases and print their number."""
    gemm = importlib.import_module("halfulp.golden.gemm")
    device, rng, count = "cuda" if torch.cuda.is_available() else "cpu", np.random.default_rng(1), 0
    for text in TEXTS:
        spec = MacSpec.parse(text)
        assert triton_gemm.takes(spec), text
        for n, k, m in ((5, 6, 19), (1, 3, 16), (17, 2, 1)):
            formats, shapes = (spec.a, spec.b, spec.o), ((n, k), (k, m), (n, m))
            operands = [rng.integers(0, 1 << fmt.width, shape) for fmt, shape in zip(formats, shapes, strict=True)]
            a, b, start = (torch.from_numpy(operand).to(device) for operand in operands)
            # Half of them small, so that sums cancel and end below the smallest normal number.
            a, b, start = (torch.where(codes % 2 == 0, codes % 16, codes) for codes in (a, b, start))
            bits = spec.rounding.bits
            words = torch.from_numpy(rng.integers(0, 1 << bits, (n, m, k))).to(device) if bits else None
            expected = gemm._in_torch(spec, a, b, start, (n, m), Words(given=(words, None)))
            assert torch.equal(triton_gemm.gemm(spec, a, b, start, words), expected), text
            if device == "cuda":
                assert torch.equal(golden.gemm(a, b, spec, start=start, random=words), expected), text
            count += n * k * m
    for rounding, sign, result in FAR_BELOW:
        spec = MacSpec.parse(f"bf16*bf16+bf16.{rounding}")
        values = (torch.tensor([[value]]) for value in (9.0, 29.0, sign * 2.0**-90))
        a, b, start = (golden.encode(value, "bf16").to(device) for value in values)
        found = triton_gemm.gemm(spec, a, b, start, None)
        assert int(golden.decode(found.cpu(), "bf16")) == result, (rounding, sign)
        count += 1
    print(f"{count} products agree")


if __name__ == "__main__":
    main()
