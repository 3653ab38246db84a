"""Floating-point unit of a processor: results of RISC-V, all models in all formats, and the ports of FPnew."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
import torch
from amaranth.hdl import ClockDomain, Module
from amaranth.sim import Simulator

from halfulp import golden
from halfulp.golden import exact
from halfulp.hdl.formats import Rounding, parse
from halfulp.hdl.formats.base import floor_log2
from halfulp.hdl.specs.fpu import KINDS, OPERATIONS, FpuSpec
from halfulp.sim.corner_cases import corner_cases
from halfulp.sim.corner_registers import of_format
from halfulp.units import Build, FpnewTop, Fpu, Mul
from halfulp.units.fpnew import BY_MODIFIER, BY_ROUNDING, FORMATS
from halfulp.units.verilog import emit, verilog_ports
from tests.every_unit import exact_mismatches, rtl_mismatches

SPEC = FpuSpec.parse("fpu fp32,fp16,bf16,e5m2,e4m3 width=32 divide")
PORTS = [port.name for port in SPEC.operand_ports]
NX, UF, OF, DZ, NV = 1, 2, 4, 8, 16

FP32, FP16, BF16, E5M2, E4M3 = range(5)
INT8, INT16, INT32 = range(3)
ONE, TWO, INF, QUIET, SIGNALLING = 0x3F800000, 0x40000000, 0x7F800000, 0x7FC00000, 0x7F800001
BOXED = 0xFFFF0000

BY_HAND = [
    # Operands of 2.5, 1 and -1.5: 2.5 * 1 - 1.5 = 1, 4, -4 and -1.
    ("fmadd", (0x40200000, ONE, 0xBFC00000), {}, ONE, 0),
    ("fmsub", (0x40200000, ONE, 0xBFC00000), {}, 0x40800000, 0),
    ("fnmsub", (0x40200000, ONE, 0xBFC00000), {}, 0xC0800000, 0),
    ("fnmadd", (0x40200000, ONE, 0xBFC00000), {}, 0xBF800000, 0),
    # The exact difference of two equal numbers is +0, and -0 rounded down.
    ("sub", (ONE, ONE), {}, 0, 0),
    ("sub", (ONE, ONE), {"mode": 2}, 0x80000000, 0),
    # A product of -0 is -0 also where +0 would be added to it.
    ("mul", (0x80000000, ONE), {}, 0x80000000, 0),
    ("fmadd", (0x80000000, ONE, 0), {}, 0, 0),
    # Infinity times zero is invalid, also with a quiet NaN as the addend.
    ("fmadd", (INF, 0, QUIET), {}, QUIET, NV),
    ("add", (ONE, SIGNALLING), {}, QUIET, NV),
    ("mul", (0x7F7FFFFF, TWO), {}, INF, OF | NX),
    ("mul", (0x7F7FFFFF, TWO), {"mode": 1}, 0x7F7FFFFF, OF | NX),
    ("mul", (0x00800001, 0x3F000000), {}, 0x00400000, UF | NX),
    # 1 / 3 between two numbers, quotients of zeros and infinities, and those that NaNs hide.
    ("div", (ONE, 0x40400000), {}, 0x3EAAAAAB, NX),
    ("div", (ONE, 0x40400000), {"mode": 1}, 0x3EAAAAAA, NX),
    ("div", (0x40400000, 0x3FC00000), {}, TWO, 0),
    ("div", (0, 0x80000000), {}, QUIET, NV),
    ("div", (INF, 0xFF800000), {}, QUIET, NV),
    ("div", (ONE, 0x80000000), {}, 0xFF800000, DZ),
    ("div", (ONE, 0), {"mode": 1}, INF, DZ),
    ("div", (INF, 0), {}, INF, 0),
    ("div", (QUIET, 0), {}, QUIET, 0),
    ("div", (0, QUIET), {}, QUIET, 0),
    ("div", (QUIET, SIGNALLING), {}, QUIET, NV),
    ("div", (0xBF800000, INF), {}, 0x80000000, 0),
    ("div", (0, 0xBF800000), {"mode": 3}, 0x80000000, 0),
    # The smallest number by itself, by the largest one, and the largest by the smallest.
    ("div", (1, 0x80000001), {}, 0xBF800000, 0),
    ("div", (1, 0x7F7FFFFF), {}, 0, UF | NX),
    ("div", (1, 0x7F7FFFFF), {"mode": 3}, 1, UF | NX),
    ("div", (0x7F7FFFFF, 1), {}, INF, OF | NX),
    ("div", (0x7F7FFFFF, 1), {"mode": 2}, 0x7F7FFFFF, OF | NX),
    ("div", (0x00800000, TWO), {}, 0x00400000, 0),
    ("div", (3, TWO), {}, 2, UF | NX),
    ("sqrt", (0x40800000,), {}, TWO, 0),
    ("sqrt", (TWO,), {}, 0x3FB504F3, NX),
    ("sqrt", (TWO,), {"mode": 3}, 0x3FB504F4, NX),
    ("sqrt", (1,), {}, 0x1A3504F3, NX),
    ("sqrt", (0x80000000,), {}, 0x80000000, 0),
    ("sqrt", (0xBF800000,), {}, QUIET, NV),
    ("sqrt", (0xFF800000,), {}, QUIET, NV),
    ("sqrt", (0xFFC00000,), {}, QUIET, 0),
    ("sqrt", (INF, SIGNALLING), {}, INF, 0),
    # minimumNumber and maximumNumber: the number beside a NaN, -0 below +0.
    ("min", (QUIET, ONE), {}, ONE, 0),
    ("max", (ONE, SIGNALLING), {}, ONE, NV),
    ("min", (0xFFC00123, 0x7F800001), {}, QUIET, NV),
    ("min", (0, 0x80000000), {}, 0x80000000, 0),
    ("max", (0x80000000, 0), {}, 0, 0),
    # Equality is quiet, the order signals every NaN.
    ("feq", (QUIET, QUIET), {}, 0, 0),
    ("feq", (SIGNALLING, ONE), {}, 0, NV),
    ("feq", (0, 0x80000000), {}, 1, 0),
    ("flt", (QUIET, ONE), {}, 0, NV),
    ("fle", (0xFF800000, INF), {}, 1, 0),
    ("fnlt", (QUIET, ONE), {}, 1, NV),
    ("fnle", (TWO, ONE), {}, 1, 0),
    ("fne", (QUIET, ONE), {}, 1, 0),
    ("sgnj", (ONE, 0x80000000), {}, 0xBF800000, 0),
    ("sgnjn", (SIGNALLING, 0), {}, 0xFF800001, 0),
    ("sgnjx", (0xBF800000, 0x80000000), {}, ONE, 0),
    ("classify", (0xFF800000,), {}, 1 << 0, 0),
    ("classify", (0xBF800000,), {}, 1 << 1, 0),
    ("classify", (0x80000001,), {}, 1 << 2, 0),
    ("classify", (0x80000000,), {}, 1 << 3, 0),
    ("classify", (0,), {}, 1 << 4, 0),
    ("classify", (0x007FFFFF,), {}, 1 << 5, 0),
    ("classify", (0x00800000,), {}, 1 << 6, 0),
    ("classify", (INF,), {}, 1 << 7, 0),
    ("classify", (SIGNALLING,), {}, 1 << 8, 0),
    ("classify", (QUIET,), {}, 1 << 9, 0),
    # The smallest fp16 number is normal in fp32, and subnormal in its own format.
    ("classify", (BOXED | 1,), {"src": FP16}, 1 << 5, 0),
    # -1.1 and 1.1 to integers; -0.9 toward zero is 0 and inexact, -1 is no unsigned integer.
    ("f2i", (0xBF8CCCCD,), {"mode": 1}, 0xFFFFFFFF, NX),
    ("f2u", (0x3F8CCCCD,), {"mode": 3}, 2, NX),
    ("f2u", (0xBF666666,), {"mode": 1}, 0, NX),
    ("f2u", (0xBF800000,), {}, 0, NV),
    ("f2i", (QUIET,), {}, 0x7FFFFFFF, NV),
    ("f2u", (0xFFC00000,), {}, 0xFFFFFFFF, NV),
    ("f2i", (0xFF800000,), {}, 0x80000000, NV),
    ("f2i", (0xCF000000,), {}, 0x80000000, 0),
    ("f2i", (0x4F000000,), {}, 0x7FFFFFFF, NV),
    # 200 is an unsigned integer of 8 bits, whose sign is extended as that of a signed one.
    ("f2u", (0x43480000,), {"int": INT8}, 0xFFFFFFC8, 0),
    ("f2i", (0x43480000,), {"int": INT8}, 0x7F, NV),
    ("i2f", (0xFFFFFFFE,), {}, 0xC0000000, 0),
    ("u2f", (0xFFFFFFFE,), {}, 0x4F800000, NX),
    ("u2f", (0xFFFFFFFE,), {"mode": 1}, 0x4F7FFFFF, NX),
    ("i2f", (0x123456FE,), {"int": INT8}, 0xC0000000, 0),
    # 65535 rounds to infinity in fp16.
    ("u2f", (0xFFFF,), {"int": INT16, "dst": FP16}, 0xFFFF7C00, OF | NX),
    # fp16 to fp32 and back, subnormal numbers, and boxes.
    ("f2f", (BOXED | 0x0001,), {"src": FP16}, 0x33800000, 0),
    ("f2f", (0x33800000,), {"dst": FP16}, BOXED | 0x0001, 0),
    ("f2f", (0x33000000,), {"dst": FP16}, BOXED | 0x0000, UF | NX),
    ("f2f", (0x00003C00,), {"src": FP16}, QUIET, 0),
    ("f2f", (SIGNALLING,), {"dst": E5M2}, 0xFFFFFF7E, NV),
    ("sgnj", (0x00003C00, BOXED | 0x8000), {"src": FP16}, BOXED | 0xFE00, 0),
    ("fmvf", (0x00003C00,), {"src": FP16}, BOXED | 0x3C00, 0),
    ("fmvx", (0x0000BC00,), {"src": FP16}, 0xFFFFBC00, 0),
    ("fmvx", (0xFFFF3C00,), {"src": FP16}, 0x00003C00, 0),
    # Factors in bf16 with a sum in fp32: 1.0078125^2 + 1 = 2.01568603515625, which fp32 holds.
    ("fmadd", (BOXED | 0x3F81, BOXED | 0x3F81, ONE), {"src": BF16}, 0x40010100, 0),
    # Lanes: 1 + 2 and 2 + 2 in fp16, four maxima in e4m3, flags of any lane.
    ("add", (0x3C004000, 0x40004000), {"src": FP16, "dst": FP16, "lanes": 1}, 0x42004400, 0),
    ("max", (0x38B83008, 0x30303088), {"src": E4M3, "lanes": 1}, 0x38303008, 0),
    ("flt", (0x3C00BC00, 0x00000000), {"src": FP16, "lanes": 1}, 0x00000001, 0),
    ("add", (0x7BFF0000, 0x7BFF0000), {"src": FP16, "dst": FP16, "lanes": 1}, 0x7C000000, OF | NX),
    # 1 / 2 and 1 / 0 in fp16, roots of 4, -1, 0 and 1 in e4m3, and a quotient of bf16 in fp32.
    ("div", (0x3C003C00, 0x40000000), {"src": FP16, "dst": FP16, "lanes": 1}, 0x38007C00, DZ),
    ("sqrt", (0x48B80038,), {"src": E4M3, "dst": E4M3, "lanes": 1}, 0x407C0038, NV),
    ("div", (BOXED | 0x3F80, BOXED | 0x4040), {"src": BF16}, 0x3EAAAAAB, NX),
    ("div", (BOXED | 0x3C00, 0x00004000), {"src": FP16, "dst": FP16}, BOXED | 0x7E00, 0),
    # Two lanes of e5m2 become two lanes of fp16, and one lane of fp32 fills the rest of a vector with ones.
    ("f2f", (0xFFFF3CBC,), {"src": E5M2, "dst": FP16, "lanes": 1}, 0x3C00BC00, 0),
    ("f2f", (ONE,), {"src": FP32, "dst": FP16, "lanes": 1}, BOXED | 0x3C00, 0),
    ("f2i", (0x4500C200,), {"src": FP16, "int": INT16, "lanes": 1}, 0x0005FFFD, 0),
    ("f2i", (0xBF800000,), {"src": FP32, "int": INT8, "lanes": 1}, 0x000000FF, 0),
    # Codes beyond the last one select the last format.
    ("classify", (0xFFFFFF01,), {"src": 7}, 1 << 5, 0),
]
"""Operation, registers, other ports, the register of the result, and flags."""


def ports_of(operation, registers, others):
    """Return the codes at the ports in order, and the mode."""
    rs1, rs2, rs3 = (*registers, 0, 0, 0)[:3]
    choice = [others.get(name, default) for name, default in (("src", 0), ("dst", 0), ("int", INT32), ("lanes", 0))]
    return [rs1, rs2, rs3, OPERATIONS.index(operation), *choice], others.get("mode", 0)


@pytest.mark.parametrize(("operation", "registers", "others", "result", "flags"), BY_HAND)
def test_results_by_hand(operation, registers, others, result, flags):
    codes, mode = ports_of(operation, registers, others)
    found = golden.fpu(*(torch.tensor([code]) for code in codes), mode=torch.tensor([mode]), **SPEC.parameters)
    assert (hex(int(found.o)), int(found.flags)) == (hex(result), flags)
    assert exact.fpu(*codes, mode=mode, **SPEC.parameters) == (result, flags)


def test_quotient_by_zero_without_infinities():
    one, zero = 0x38, 0
    for text, result in (("e4m3fn", 0x7F), ("e4m3", 0x78)):
        fields = {"a": text, "rounding": "rn", "divide": True}
        found = golden.fpu(*map(torch.tensor, (one, zero, 0, OPERATIONS.index("div"), 0, 0, 0, 0)), **fields)
        assert (int(found.o), int(found.flags)) == (result, DZ)
        assert found.o == golden.div(torch.tensor(one), torch.tensor(zero), a=text, b=text)


def test_operations_without_division():
    spec = FpuSpec.parse("fpu e5m2")
    assert spec.operations == OPERATIONS[:-2]
    # A code beyond the last operation selects it: a move, whose result is the operand.
    codes = [torch.tensor(code) for code in (0x3C, 0, 0, OPERATIONS.index("div"), 0, 0, 0, 0)]
    assert int(golden.fpu(*codes, mode=torch.tensor(0), **spec.parameters).o) == 0x3C
    assert str(FpuSpec.parse("fpu e5m2 divide=no")) == str(spec)
    assert str(FpuSpec.parse("fpu e5m2 divide")) == "fpu e5m2.port width=8 divide=yes"


def test_every_operation_has_a_result_by_hand():
    assert {operation for operation, *_ in BY_HAND} == {*OPERATIONS}
    assert {*KINDS} == {*OPERATIONS}


def chosen(spec, operations, count, seed=1):
    """Yield vectors of operations: operands in their format, hard to round, and any other formats."""
    rng = np.random.default_rng(seed)
    pairs = [*itertools.product(operations, range(len(spec.formats)))]
    for name, place in pairs:
        share = -(-count // len(pairs))
        codes = of_format(spec.formats[place], spec.width, share, rng)
        mixed = rng.random(share) < 0.3
        choice = len(spec.formats)
        any_format = rng.integers(0, choice, share)
        yield codes | {
            "op": np.full(share, spec.operations.index(name), dtype=np.uint64),
            "src_fmt": np.where(KINDS[name].src, place, any_format).astype(np.uint64),
            "dst_fmt": np.where(mixed, any_format, place).astype(np.uint64),
            "int_fmt": rng.integers(0, 4, share, dtype=np.uint64),
            "vectorial": rng.integers(0, 2, share, dtype=np.uint64),
            "mode": rng.integers(0, 6, share, dtype=np.uint64),
        }


def mismatches(compare, text, operations, count):
    """Compare models of a unit on vectors of some operations."""
    spec = FpuSpec.parse(text)

    def choose(unit):
        vectors = list(chosen(spec, operations, count))
        joined = {name: np.concatenate([codes[name] for codes in vectors]) for name in vectors[0]}
        if not spec.rounding.is_port:
            del joined["mode"]
        yield joined

    return compare(spec if compare is exact_mismatches else {spec: spec}, choose=choose)


FEW = (
    "fpu e3m2,e2m3 width=16",
    "fpu e3m4,e2m1 divide",
    "fpu fp16,e4m3fn,e5m2 width=32 divide",
    "fpu fp32,bf16.port_ro flags=before divide",
    "fpu fp16.rd width=64",
)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("text", FEW)
def test_golden_matches_exact(text):
    checks, failed = mismatches(exact_mismatches, text, FpuSpec.parse(text).operations, 200)
    assert checks >= 200
    assert failed == []


@pytest.mark.sampled(len(FEW))
@pytest.mark.parametrize("text", FEW)
def test_rtl_matches_golden(text):
    checks, failed = mismatches(rtl_mismatches, text, FpuSpec.parse(text).operations, 1 << 13)
    assert checks > 1 << 13
    assert failed == []


def near_ties(text):
    """Return how many corner cases have a quotient in fp16 next to a number or a tie, but not equal to it."""
    fmt, codes = parse("fp16"), corner_cases(Fpu(text))
    found = 0
    for codes_of_row in zip(codes["rs1"].tolist(), codes["rs2"].tolist(), strict=True):
        x, y = (fmt.decode(code & 0xFFFF) for code in codes_of_row)
        if isinstance(x, Fraction) and isinstance(y, Fraction) and x and y:
            halves = abs(x / y) / Fraction(2) ** (floor_log2(abs(x / y)) - fmt.precision)
            found += 0 < abs(halves - round(halves)) < Fraction(1, 1 << 9)
    return found


def test_corner_cases_have_quotients_that_are_hard_to_round():
    assert near_ties("fpu fp16 divide") > near_ties("fpu fp16") + 200


@pytest.mark.sampled(2, 2)
@pytest.mark.slow
@pytest.mark.parametrize("text", FEW)
def test_golden_matches_exact_in_all_formats(text):
    checks, failed = mismatches(exact_mismatches, text, FpuSpec.parse(text).operations, 1 << 14)
    assert checks >= 1 << 14
    assert failed == []


WIDE = (
    "fpu fp32,fp16,bf16,e5m2,e4m3 width=32 divide",
    "fpu fp64,fp32,fp16 width=64 divide",
    "fpu e3m4,e2m1.port_ro width=16 divide",
)


@pytest.mark.sampled(11, 11)
@pytest.mark.slow
@pytest.mark.parametrize("text", WIDE)
@pytest.mark.parametrize("kind", sorted({kind.name for kind in KINDS.values()}))
def test_rtl_of_each_operation_and_format_matches_golden(kind, text):
    names = [name for name in OPERATIONS if KINDS[name].name == kind]
    count = 100_000 * len(names) * len(FpuSpec.parse(text).formats)
    checks, failed = mismatches(rtl_mismatches, text, names, count)
    assert checks >= 2 * count
    assert failed == []


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("fpu fp32 width=16", "a register of width=16 holds no number of 32 bits"),
        ("fpu fp32 divide=maybe", "expected divide=yes or divide=no"),
        ("fpu fp32 width=24", "expected 8, 16, 32 or 64"),
        ("fpu fp32,fp16,fp32", "has the format fp32 twice"),
        ("fpu e2m1fn", "fpu has no e2m1fn"),
        ("fpu e4m0", "fpu has no e4m0"),
        ("fpu fp32-ftz", "fpu has no fp32-ftz"),
        ("fpu e4m3fnuz", "fpu has no e4m3fnuz"),
        ("fpu posit16", "fpu has no posit16"),
        ("fpu fp32.sr4", "does not round with sr4"),
        ("fpu fp32.exact", "does not round with exact"),
        ("fpu fp32.sat", "does not saturate"),
    ],
)
def test_fpu_rejects(text, sentence):
    with pytest.raises(ValueError, match=sentence):
        FpuSpec.parse(text)


def test_fpu_rejects_fields():
    with pytest.raises(ValueError, match="always has exception flags"):
        FpuSpec(a=parse("fp32"), flags=False)
    with pytest.raises(TypeError, match="must be a Format, not str"):
        FpuSpec(a="fp32")
    with pytest.raises(TypeError, match="divide of a fpu must be a bool"):
        FpuSpec(a=parse("fp32"), divide="yes")
    with pytest.raises(TypeError, match="width"):
        FpuSpec(a=parse("fp32"), width="32")
    with pytest.raises(ValueError, match="rounding port needs a tensor"):
        golden.fpu(*(torch.zeros(1, dtype=torch.int64) for _ in PORTS), a="fp32")


def test_registers_of_64_bits():
    unit = Fpu("fpu e5m2 width=64 divide", build=Build(iterations=1))
    assert unit.spec.integers == (8, 16, 32, 64)
    assert unit.elaborate(None) is not None


def test_one_mode_has_no_port():
    unit = Fpu("fpu fp16.rz")
    assert "mode" not in unit.inputs
    assert FpuSpec.parse("fpu fp16").rounding == Rounding("port")


# Ports of FPnew -----------------------------------------------------------------------------------------------------

TAG_BITS, WIDTH = 8, 8

FPNEW_PORTS = """
    clk_i:1 rst_ni:1 operands_i:48 rnd_mode_i:3 op_i:4 op_mod_i:1 src_fmt_i:3 dst_fmt_i:3 int_fmt_i:2 vectorial_op_i:1
    tag_i:5 in_valid_i:1 in_ready_o:1 flush_i:1 result_o:16 status_o:5 tag_o:5 out_valid_o:1 out_ready_i:1 busy_o:1
"""
"""Ports and their widths, for registers of 16 bits and tags of 5 bits."""


def requests(count, rng, operations):
    """Return requests at the ports of FPnew, each with the codes at the ports of a unit with some operations."""
    fpnew = [FORMATS.index(name) for name in ("e5m2", "e4m3")]
    choices = [(op, modifier, None, names[modifier]) for op, names in BY_MODIFIER.items() for modifier in range(2)]
    choices += [
        (op, modifier, mode, name)
        for op, by_modifier in BY_ROUNDING.items()
        for modifier, names in enumerate(by_modifier)
        for mode, name in enumerate(names)
    ]
    for index in range(count):
        op, modifier, mode, name = choices[index % len(choices)]
        name = name if name in operations else "fmvf"
        mode = int(rng.integers(0, 5)) if mode is None else mode
        operands = [int(rng.integers(0, 1 << WIDTH)) for _ in range(3)]
        src, dst, integer, lanes = (int(rng.integers(0, 2)) for _ in range(4))
        given = {
            "operands_i": sum(operand << (WIDTH * place) for place, operand in enumerate(operands)),
            "rnd_mode_i": mode,
            "op_i": op,
            "op_mod_i": modifier,
            "src_fmt_i": fpnew[src],
            "dst_fmt_i": fpnew[dst],
            "int_fmt_i": integer,
            "vectorial_op_i": lanes,
            "tag_i": index % (1 << TAG_BITS),
        }
        registers = [*operands[1:], operands[2]] if name in ("add", "sub") else operands
        yield given, [*registers, OPERATIONS.index(name), src, dst, integer, lanes], mode


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("text", "build"),
    [
        ("fpu e5m2,e4m3", Build()),
        ("fpu e5m2,e4m3", Build(pipeline=3)),
        ("fpu e5m2,e4m3 divide", Build(iterations=2)),
        ("fpu e5m2,e4m3 divide", Build(pipeline=3, iterations=1)),
    ],
)
def test_fpnew_ports(text, build):
    unit = Fpu(text, build=build)
    top = FpnewTop(unit, tag=TAG_BITS)
    rng = np.random.default_rng(build.pipeline)
    asked = list(requests(150, rng, unit.spec.operations))
    expected = [(*exact.fpu(*codes, mode=mode, **unit.parameters), given["tag_i"]) for given, codes, mode in asked]
    found = []

    async def drive(ctx):
        for given, _, _ in asked:
            while rng.random() < 0.3:
                await ctx.tick()
            for name, value in given.items():
                ctx.set(getattr(top, name), value)
            ctx.set(top.in_valid_i, 1)
            await ctx.tick().until(top.in_ready_o)
            ctx.set(top.in_valid_i, 0)

    async def take(ctx):
        while len(found) < len(expected):
            ready = int(rng.random() < 0.6)
            ctx.set(top.out_ready_i, ready)
            _, _, valid, *result = await ctx.tick().sample(top.out_valid_o, top.result_o, top.status_o, top.tag_o)
            if valid and ready:
                found.append(tuple(result))

    simulate(top, drive, take)
    assert found == expected


def simulate(top, *processes):
    """Run test benches with a clock."""
    m = Module()
    m.submodules.top = top
    m.domains.sync = ClockDomain("sync")
    simulator = Simulator(m)
    simulator.add_clock(1e-6)
    for process in processes:
        simulator.add_testbench(process)
    simulator.run()


@pytest.mark.slow
def test_fpnew_flush_discards_operations_in_flight():
    top = FpnewTop(Fpu("fpu e5m2", build=Build(pipeline=3)))

    async def bench(ctx):
        ctx.set(top.out_ready_i, 1)
        ctx.set(top.in_valid_i, 1)
        assert ctx.get(top.busy_o) == 0
        await ctx.tick().repeat(2)
        ctx.set(top.in_valid_i, 0)
        assert ctx.get(top.busy_o) == 1
        ctx.set(top.flush_i, 1)
        await ctx.tick()
        ctx.set(top.flush_i, 0)
        assert ctx.get(top.busy_o) == 0
        for _ in range(5):
            assert ctx.get(top.out_valid_o) == 0
            await ctx.tick()
        # One operation after the flush: busy until its result is taken.
        ctx.set(top.in_valid_i, 1)
        await ctx.tick()
        ctx.set(top.in_valid_i, 0)
        await ctx.tick().repeat(2)
        assert (ctx.get(top.out_valid_o), ctx.get(top.busy_o)) == (1, 1)
        await ctx.tick()
        assert (ctx.get(top.out_valid_o), ctx.get(top.busy_o)) == (0, 0)

    simulate(top, bench)


@pytest.mark.slow
def test_fpnew_verilog_has_the_ports_of_fpnew():
    top = FpnewTop(Fpu("fpu e5m2 width=16", build=Build(pipeline=1)), tag=5)
    ports = {"clk": "clk_i", "rst": "rst_ni"}
    text = emit(top, "fpnew_top", reset="async-low", ports=ports)
    found = " ".join(f"{port.name}:{port.width}" for port in verilog_ports(text, "fpnew_top"))
    assert sorted(found.split()) == sorted(FPNEW_PORTS.split())


def test_fpnew_rejects():
    with pytest.raises(TypeError, match="takes an Fpu, not Mul"):
        FpnewTop(Mul(a="fp16", b="fp16"))
    with pytest.raises(ValueError, match="rnd_mode_i has no effect on the rounding rz"):
        FpnewTop(Fpu("fpu fp16.rz"))
    with pytest.raises(ValueError, match="FPnew has no code for e4m3fn"):
        FpnewTop(Fpu("fpu fp16,e4m3fn"))
    with pytest.raises(ValueError, match="tag 0"):
        FpnewTop(Fpu("fpu fp16"), tag=0)
