"""Element-wise Triton kernels against the engines of the CPU; TRITON_INTERPRET must be set before Triton's import."""

import itertools
import math
import os
import sys
from unittest import mock

import torch

from halfulp import golden
from halfulp.golden.kernels import build, elements, triton_elements
from halfulp.golden.nn.cast import Cast
from halfulp.golden.program.arithmetic import compute
from halfulp.golden.program.products import total_in_kernel
from halfulp.hdl.formats import parse
from halfulp.hdl.formats.rounding import MODES
from tests.triton_device import triton_device

FORMATS = ("e5m2", "e4m3fn", "e4m3fnuz", "binary8p4", "e2m1fn", "fp16-ftz", "bf16", "fp32", "fp64", "fxp4.4",
           "ufxp6.2-wrap", "int8-narrow", "fxp4.12-narrow", "posit8", "posit16e1", "posit32", "takum8",
           "takum16")  # fmt: skip
"""Formats of results and operands of conversions: each family, and ends that saturate, wrap or are infinite."""

CASTS = ("e5m2.rn", "bf16.rn", "fp32.rn", "fp16.rz", "e4m3fn.rn.sat", "e4m3fnuz.ra", "e2m1fn.ru", "e6m5.sr10",
         "fp16-ftz.rd", "fp32.ro", "binary8p4.rh.satfinite")  # fmt: skip
"""Formats and roundings of chains and sums."""

WIDE = ("fp32", "fp64", "bf16", "posit32", "takum8", "takum16")
"""Formats whose numbers have more integer bits than the kernel, which wrapping formats would keep."""

SUFFIXES = ("", ".sat", ".satfinite")

ENDS = (0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 2.0**-149, -(2.0**-140), 3.4028234663852886e38, 448.0,
        464.0, 65520.0, 2.0**-24, 6.0, 0.1)  # fmt: skip
"""Numbers at ends of ranges, and specials."""


def numbers(count: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return random numbers over many binades, of which the first are `ENDS`."""
    rng = torch.Generator().manual_seed(count)
    made = torch.ldexp(torch.randn(count, generator=rng), torch.randint(-20, 20, (count,), generator=rng)).to(dtype)
    made[: len(ENDS)] = torch.tensor(ENDS, dtype=torch.float64).to(dtype)
    return made


def compare(text: str, run) -> int:
    """Compare the result of a function of a device with that on the CPU; all kernels must support the call."""
    wanted = run(torch.device("cpu"))
    with triton_device() as device:
        found = run(device).cpu()
    assert found.dtype == wanted.dtype
    same = (found == wanted) | (found != found) & (wanted != wanted)
    if found.dtype.is_floating_point:
        same &= found.signbit() == wanted.signbit()
    wrong = torch.nonzero(~same)
    assert not len(wrong), f"{text}: {len(wrong)} wrong, first at {wrong[0].tolist()}: {found[~same][0]}"
    return found.numel()


def called(name: str):
    """Record the calls of a Triton kernel: True, or the text of the arguments that it refuses."""
    function, calls = getattr(triton_elements, name), []

    def counted(*arguments):
        result = function(*arguments)
        calls.append(True if result is not None and result is not False else str(arguments[1:]))
        return result

    return mock.patch.object(triton_elements, name, counted), calls


def convert(a: str, o: str, rounding: str, saturate: str) -> int:
    """Compare a conversion of codes, and of real numbers from FP32 and FP64."""
    source, mode = parse(a), f"{o}.{rounding}{saturate}"
    rng = torch.Generator().manual_seed(3)
    words = torch.randint(1 << 5, (600,), generator=rng) if rounding.startswith("sr") else None
    if a in ("fp32", "fp64"):
        x = numbers(600, torch.float32 if a == "fp32" else torch.float64)
        return compare(
            f"{a} to {mode}",
            lambda device: golden.encode(
                x.to(device), o, rounding, None if words is None else words.to(device), saturate[1:] or False
            ),
        )
    codes = torch.randint(1 << min(source.width, 62), (600,), generator=rng)
    # Products with small codes are usual: half of the codes are small.
    codes[::2] %= min(1 << source.width, 64)
    return compare(
        f"{a} to {mode}",
        lambda device: golden.convert(
            codes.to(device), a=a, o=o, rounding=rounding, saturate=saturate[1:] or False,
            random=None if words is None else words.to(device),
        ),
    )  # fmt: skip


def conversions(step: int) -> int:
    """Compare one in ``step`` conversions of all formats, roundings and kinds of saturation."""
    cases = itertools.product(FORMATS, ("fp32", "fp64", *FORMATS), (*MODES, "sr5"), SUFFIXES)
    cases = ((o, a, *more) for o, a, *more in cases if not (o.endswith("-wrap") and a in WIDE))
    patch, calls = called("convert")
    # Conversions of many codes of narrow formats read a table otherwise.
    with patch, mock.patch("halfulp.golden.convert.TABLE_WIDTH", 0):
        count = sum(convert(a, o, mode, end) for o, a, mode, end in itertools.islice(cases, 0, None, step))
    assert set(calls) == {True}, set(calls)
    return count


def operations(text: str, name: str) -> int:
    """Compare an operation of real numbers, each with each of some, in the format and rounding of a cast."""
    cast, x = Cast.parse(text), numbers(40)
    y = x if name in ("sqrt", "tanh") else x.flip(0).unsqueeze(1)
    given = (x,) if name in ("sqrt", "tanh") else (x, y)
    patch, calls = called("chain")
    with patch:
        count = compare(
            f"{name} in {text}",
            lambda device: compute(name, tuple(one.to(device) for one in given), cast, 7, torch.float32),
        )
        if name != "tanh":
            count += compare(
                f"{name} of 3 in {text}",
                lambda device: compute(name, (x.to(device), 3.0)[: len(given)], cast, 7, x.dtype),
            )
    assert set(calls) == {True}, set(calls)
    return count


def sums(text: str, number: str | None) -> int:
    """Compare sums over one dimension, and over two of a tensor whose dimensions are exchanged."""
    cast, element = Cast.parse(text), None if number is None else Cast.parse(number)
    x = numbers(300).nan_to_num(0, 0, 0).clamp(-1e5, 1e5).reshape(5, 6, 10)
    patch, calls = called("total")
    # So few elements are not worth the compilation of the CPU's kernel.
    with patch, mock.patch.dict(os.environ, {build.SETTING: "native"}):
        count = 0
        for dims in ([2], [0, 2]):
            turned = x if dims == [2] else x.transpose(0, 1)
            count += compare(
                f"sum in {text} of {number}",
                lambda device, x=turned, dims=dims: total_in_kernel(x.to(device), dims, element, cast),
            )
    assert calls == [True, True]
    return count


def main() -> None:
    """Compare all kinds, one in N conversions for an argument N, and print the number of results."""
    step, count = int(sys.argv[1]) if sys.argv[1:] else 797, 0
    with mock.patch.object(elements, "WORTHWHILE", 1):
        count += conversions(step)
        casts = CASTS if sys.argv[1:] else CASTS[::5]
        for text, name in itertools.product(casts, ("add", "sub", "mul", "div", "sqrt", "tanh")):
            # Tables have up to 16 bits.
            if name != "tanh" or not text.startswith("fp32"):
                count += operations(text, name)
        for text in casts:
            if "sr" not in text:
                count += sums(text, None) + sums(text, "e5m2.rz")
    print(f"{count} results agree")


if __name__ == "__main__":
    main()
