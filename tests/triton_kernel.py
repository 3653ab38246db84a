"""Triton kernel against tensor operations; TRITON_INTERPRET must be set before Triton is imported."""

import itertools
import math
import sys

import numpy as np
import torch

from halfulp import golden
from halfulp.golden.kernels import MatrixProduct, triton_gemm
from halfulp.golden.kernels.launch import Words
from halfulp.golden.products.in_torch import InTorch
from halfulp.golden.products.words import split_states, states_of_sums
from halfulp.hdl.formats.rounding import MODES
from halfulp.hdl.specs import MacSpec

CASES = {
    "e5m2*e5m2+e6m5.sr10@lfsr16": None,
    "e4m3fn*e4m3fnuz+e4m3fn.ru.sat": None,
    "e5m2*e5m2+e4m3fn.rn.satfinite": None,
    "e5m2*fp16=e3m4.rz+posit8.rn.satfinite": None,
    "fp32*tf32+fp16-ftz.rd": None,
    "e5m2*e5m2=e5m2.sr3+e6m5.sr20": (1 << 63 | 5, 6),
    "posit8*posit8=posit8.ro+fp32.sr5@plateau3": None,
    "posit8*posit8=posit8.ro+fp32.sr5@plateau3-rep": None,
    "fxp4.4*ufxp4.4+fxp6.2-wrap.sr4": None,
    "fp16*int8+fxp8.8.ra": None,
    "int8-narrow*fxp4.4-narrow+fxp6.2-narrow.sr4": None,
    "nf4*takum8+takum12.rh": None,
    "posit8*posit8+exact=posit8.rn": None,
    "e5m2*e5m2+exact=e6m5.sr4@lfsr12": None,
}
"""Descriptions, and key and first step of counter-based words: each family, source and way to add."""

SUMS = ("e6m5", "e4m3fn", "binary8p4", "e5m2fnuz", "e3m2fn", "fp16-ftz", "fp32", "fxp6.2", "int8-narrow",
        "ufxp6.2-wrap", "posit8", "posit16e1", "takum8", "takum16")  # fmt: skip
SOURCES = {"e5m2*e5m2+e6m5.sr10": None, "e4m3*e4m3=fp16.sr4+fp32.sr24@lfsr40": None, "e4m3*e4m3+posit16.sr7": (3, 4),
           "bf16*bf16+exact=bf16.ru": None, "fp16*fp16+fp64.rn": None, "int16*int16+int32.rn": None,
           "int8*uint8+fxp20.8.rn": None, "fp16*posit16=fxp4.4.sr3+exact=takum16.sr9": (7, 0)}  # fmt: skip

FAR_BELOW = (("rn", 1, 262), ("rn", -1, 260), ("ru", 1, 262), ("rz", -1, 260), ("ro", 1, 262), ("ro", -1, 262))
"""Roundings of 9 * 29 = 261 to bf16, between 260 and 262, plus or minus a term far below the last place.

262 has the odd code.
"""


def operands(spec: MacSpec, shape: tuple[int, ...], k: int, counter: tuple[int, int] | None, device: str):
    """Return random codes, of which half are small so that sums cancel and some are ends, and random words."""
    rng, (*batch, n, m) = np.random.default_rng(1), shape
    codes = []
    for fmt, sides in ((spec.a, (n, k)), (spec.b, (k, m)), (spec.o, (n, m))):
        ends = [golden.encode(torch.tensor(one), fmt, saturate=False).item() for one in (math.inf, -math.inf)]
        kind = rng.integers(0, 32, (*batch, *sides))
        one = rng.integers(0, 1 << min(fmt.width, 63), kind.shape)
        one = np.select([kind < 16, kind == 30, kind == 31], [one % 16, *ends], one)
        codes.append(torch.from_numpy(one).to(device))
    if counter is not None:
        return *codes, Words(key=counter[0], first_step=counter[1])
    if spec.random is not None:
        states = split_states(spec, spec.random, states_of_sums(spec.random, spec.seed, shape, codes[0].device))
        return *codes, Words(states=states)
    bits = [spec.words.get(name) for name in ("random", "random_product")]
    given = [torch.from_numpy(rng.integers(0, 1 << one, (*shape, k))).to(device) if one else None for one in bits]
    return *codes, Words(given=tuple(given))


def check(text: str, counter: tuple[int, int] | None, shape: tuple[int, ...], k: int, device: str) -> int:
    """Compare one product."""
    spec = MacSpec.parse(text)
    a, b, start, words = operands(spec, shape, k, counter, device)
    for begin in (start, None):
        found = triton_gemm.gemm(spec, a, b, begin, shape, words)
        assert found is not None, f"{text}: refused"
        wrong = torch.nonzero(found != InTorch().run(MatrixProduct(spec, a, b, begin, shape, words)))
        assert not len(wrong), f"{text}: {len(wrong)} wrong, first at {wrong[0].tolist()}"
        if k > 3:
            break
    return found.numel() * k


def main() -> None:
    """Compare all cases and print their number; with an argument N, one in N sums of all formats and roundings too."""
    device, count = "cuda" if torch.cuda.is_available() else "cpu", 0
    for text, counter in CASES.items():
        count += check(text, counter, (16, 16), 4, device)
    count += check("e5m2*e5m2+e6m5.rn", None, (2, 17, 3), 1, device)
    if sys.argv[1:]:
        for text, counter in SOURCES.items():
            count += check(text, counter, (3, 7, 17), 9, device)
        # Products of 2048 sums underflow, some to the code above zero.
        count += check("bf16*bf16+takum8.rz", None, (32, 32), 2, device)
        for fmt, mode in itertools.islice(itertools.product(SUMS, (*MODES, "sr5")), None, None, int(sys.argv[1])):
            count += check(f"fp16*e5m2+{fmt}.{mode}", None, (32, 32), 3, device)
            count += check(f"fxp4.4*fxp4.4={fmt}.{mode}+{fmt}.{mode}.sat", None, (32, 32), 2, device)
    for rounding, sign, result in FAR_BELOW:
        spec = MacSpec.parse(f"bf16*bf16+bf16.{rounding}")
        values = (torch.tensor([[value]]) for value in (9.0, 29.0, sign * 2.0**-90))
        a, b, start = (golden.encode(value, "bf16").to(device) for value in values)
        found = triton_gemm.gemm(spec, a, b, start, (1, 1), Words())
        assert found is not None
        assert int(golden.decode(found.cpu(), "bf16")) == result, (rounding, sign)
        count += 1
    print(f"{count} products agree")


if __name__ == "__main__":
    main()
