"""Instructions of matrix units against mmasim, whose authors compared it with ten GPUs bit for bit."""

import functools
import importlib
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from halfulp import golden
from halfulp.golden import exact_matrix_unit, matrix_unit
from halfulp.golden.quantize import BlockTensor
from halfulp.golden.values import decoded
from halfulp.hdl.specs import MacSpec
from halfulp.hdl.specs.mma import MmaSpec
from tests.matrix_unit_operands import KINDS, codes_of, pairs_of, scales_of
from tests.settings import EXHAUSTIVE

COUNT = 100_000 // len(KINDS) if EXHAUSTIVE else 100
"""Steps of an instruction with operands of each kind."""

EVERY = 1 if EXHAUSTIVE else 8
"""One in so many different instructions of an architecture is computed; all are described."""

EXACT = 3
"""Steps of each kind that are computed in fractions."""

SETS = {
    ("nv_ptx", "MMA", "Volta"): ("mma_shape_and_type", "v100.mma"),
    ("nv_ptx", "MMA", "Turing"): ("mma_shape_and_type", "t4.mma"),
    ("nv_ptx", "MMA", "Ampere"): ("mma_shape_and_type", "a100.mma"),
    ("nv_ptx", "MMA", "Ada Lovelace"): ("mma_shape_and_type", "l40s.mma"),
    ("nv_ptx", "MMA", "Hopper"): ("mma_shape_and_type", "h100.mma"),
    ("nv_ptx", "MMA", "Blackwell"): ("mma_shape_and_type", "b200.mma"),
    ("nv_ptx", "MMA", "RTX Blackwell"): ("mma_shape_and_type", "rtx5090.mma"),
    ("nv_ptx", "MMABlockScale", "RTX Blackwell"): ("mma_block_scale_shape_and_type", "rtx5090.mma"),
    ("nv_ptx", "WGMMA", "Hopper"): ("wgmma_shape_and_type", "h100.wgmma"),
    ("nv_ptx", "TCGen05MMA", "Blackwell"): ("tcgen05mma_shape_and_type", "b200.tcgen05"),
    ("nv_ptx", "TCGen05MMABlockScale", "Blackwell"): ("tcgen05mma_block_scale_shape_and_type", "b200.tcgen05"),
    ("amd", "MFMA", "CDNA1"): ("arch_mfma_suffix", "mi100.mfma"),
    ("amd", "MFMA", "CDNA2"): ("arch_mfma_suffix", "mi250.mfma"),
    ("amd", "MFMA", "CDNA3"): ("arch_mfma_suffix", "mi300.mfma"),
}
"""Tables of mmasim by package, class and architecture, and names of our units."""

TYPES = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "tf32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "e4m3fn": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
    "e4m3fnuz": torch.float8_e4m3fnuz,
    "e5m2fnuz": torch.float8_e5m2fnuz,
    "e8m0fnu": torch.float8_e8m0fnu,
}

INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

REPEATED = {key for key in SETS if key[2] == "Blackwell"}
"""Tables all of whose instructions compute as those of other tables do."""

PTX = {
    "f64": "fp64",
    "f32": "fp32",
    "f16": "fp16",
    "e4m3": "e4m3fn",
    "e3m2": "e3m2fn",
    "e2m3": "e2m3fn",
    "e2m1": "e2m1fn",
}

BLOCKS = {
    "e4m3fn": "mxfp8_e4m3",
    "e5m2": "mxfp8_e5m2",
    "e3m2fn": "mxfp6_e3m2",
    "e2m3fn": "mxfp6_e2m3",
    "e2m1fn": "mxfp4",
}

MIXED = {"Volta m8n8k4.f32.f16.f16.f16", "Turing m8n8k4.f32.f16.f16.f16"}
"""Instructions that add fp16 to a result in fp32, which are no chain."""


def package(name):
    """Import a package of mmasim; the first import compiles C++."""
    return importlib.import_module(f"mmasim.{name}")


def instructions(key):
    """Yield the names and operations of a table."""
    name, kind, architecture = key
    module = package(f"{name}.isa_{kind.removesuffix('BlockScale').lower()}")
    for text in getattr(module, SETS[key][0])[architecture]:
        yield text, getattr(package(name), kind)(architecture, text)


def operand_formats(operation):
    """Return the names of the formats of both operands."""
    if hasattr(operation, "a_type_ptx"):
        return [PTX.get(ptx, ptx) for ptx in (operation.a_type_ptx, operation.b_type_ptx)]
    names = {dtype: name for name, dtype in TYPES.items() if name != "tf32"}
    if operation.suffix.endswith("xf32"):
        names[torch.float32] = "tf32"
    return [names[dtype] for dtype in (operation.a_type, operation.b_type)]


def described(key, text, operation):
    """Return the description of an instruction: that of a named unit if there is one; None for those of `MIXED`."""
    unit, architecture = SETS[key][1], key[2]
    if f"{architecture} {text}" in MIXED:
        return None
    x, y = operand_formats(operation)
    o = {torch.float16: "fp16", torch.float32: "fp32", torch.float64: "fp64"}[operation.d_type]
    if x in ("fp64", "fp32"):
        return MacSpec.parse(f"{x}*{y}+{o}.rn")
    if architecture == "Turing" and operation.k == 4:
        # Volta's instruction on Turing.
        rounding, zero = ("rz", -132) if o == "fp32" else ("rn", -21)
        return MmaSpec.parse(f"mma4 fp16*fp16+{o}.{rounding} order=aligned23 zero={zero}")
    if text.endswith("_1k"):
        unit = "mi250.mfma_1k"
    if hasattr(operation, "s_type"):
        scale = text.rpartition(".")[2]
        if operation.k == 64 and (operation.block_size, scale) == (16, "ue8m0"):
            block = "block(e2m1fn,16,e8m0fnu,floor)"
            return MmaSpec.parse(f"mma64 {block}*{block}+fp32.rz order=aligned35 zero=-139 group=16")
        if operation.k == 32 and x == y == "e2m1fn":
            return MmaSpec.parse("mma32 mxfp4*mxfp4+fp32.rz order=aligned25 zero=-133")
        x, y = ("nvfp4",) * 2 if operation.block_size == 16 else (BLOCKS[x], BLOCKS[y])
    spec = MmaSpec.parse(f"{unit}: {x}*{y}+{o}")
    # The accumulator of an instruction of CDNA2 is flushed at its beginning.
    return replace(spec, k=operation.k) if spec.kind == "pairwise" else spec


@functools.cache
def different():
    """Return the different computations of each table, as descriptions with operations; those of earlier ones once."""
    seen, made = set(), {key: [] for key in SETS}
    for key in SETS:
        for text, operation in instructions(key):
            spec, arithmetic = described(key, text, operation), operation.arithmetic_op
            computed = (spec, operation.k, type(arithmetic), tuple(vars(arithmetic).items()))
            if spec is not None and computed not in seen:
                seen.add(computed)
                made[key].append((spec, operation))
    return made


def in_torch(codes, fmt):
    """Return codes as a tensor of torch's type; tf32 as binary32, and floats of 4 and 6 bits as numbers in fp16."""
    if str(fmt) == "tf32":
        codes = codes << 13
    if str(fmt) not in TYPES:
        return decoded(codes, fmt, torch.float64).half()
    dtype = TYPES[str(fmt)]
    return codes.to(INTEGERS[dtype.itemsize]).view(dtype)


def formats(spec):
    return spec.elements if isinstance(spec, MmaSpec) else (spec.a, spec.b)


def padded(codes, count, value=0):
    return F.pad(codes, (0, -codes.shape[-1] % count), value=value)


def oracle(spec, operation, x, y, start, scales=()):
    """Return codes of mmasim: a chain of instructions along the last dimension."""
    a, b = (in_torch(padded(codes, operation.k), fmt) for codes, fmt in zip((x, y), formats(spec), strict=True))
    acc, total = in_torch(start, spec.o), a.shape[-1]
    factors = []
    for codes, block in zip(scales, (spec.a, spec.b), strict=False):
        each = operation.k // block.length
        factors.append(in_torch(padded(codes, each, block.scale.encode(1)), block.scale))
    for first in range(0, total, operation.k):
        at = slice(first, first + operation.k)
        of_step = [
            codes[..., first * codes.shape[-1] // total : at.stop * codes.shape[-1] // total] for codes in factors
        ]
        acc = operation.dpa(a[..., at], b[..., at], acc, *of_step)
    words = acc.contiguous().view(INTEGERS[acc.itemsize]).to(torch.int64)
    return words if spec.o.width == 64 else words & ((1 << spec.o.width) - 1)


def in_steps(spec, x, y, start, scales=()):
    """Return the codes of steps in torch, and True where an accumulator was infinite or NaN before a step."""
    acc, lost = start, torch.zeros(start.shape, dtype=torch.bool)
    x, y = (padded(codes, spec.k) for codes in (x, y))
    total = x.shape[-1]
    scales = [
        padded(codes, spec.k // block.length, block.scale.encode(1))
        for codes, block in zip(scales, (spec.a, spec.b), strict=False)
    ]
    for first in range(0, total, spec.k):
        lost |= ~decoded(acc, spec.o, torch.float64).isfinite()
        of_step = [matrix_unit._taken(codes, slice(first, first + spec.k), total) for codes in scales]
        acc = matrix_unit.step(spec, x[..., first : first + spec.k], y[..., first : first + spec.k], acc, *of_step)
    return acc, lost


def in_kernel(spec, x, y, start, scales=()):
    """Return codes of `golden.gemm` for sums along the last dimensions of ``x`` and ``y``."""
    rows, columns = x.unsqueeze(-2), y.unsqueeze(-1)
    if scales:
        rows, columns = BlockTensor(rows, scales[0].unsqueeze(-2)), BlockTensor(columns, scales[1].unsqueeze(-1))
    return golden.gemm(rows, columns, spec, start=start[..., None, None])[..., 0, 0]


def differences(spec, own, wanted, lost=None):
    """Return how many codes differ from those of mmasim.

    No NaN code is published for exact and pairwise sums. With two halves mmasim drops an accumulator that is infinite
    or NaN as if it were small.
    """
    same = own == wanted
    numbers = [decoded(codes, spec.o, torch.float64) for codes in (own, wanted)]
    if isinstance(spec, MacSpec) or spec.kind in ("exact", "pairwise"):
        same |= numbers[0].isnan() & numbers[1].isnan()
    elif spec.halves == 2:
        same |= lost & ~numbers[0].isfinite()
    return int((~same).sum())


def operands(spec, shape, length, kind, generator):
    """Return random codes of operands, accumulators and scales."""
    x, y = pairs_of(formats(spec), (*shape, length), kind, generator)
    start, scales = codes_of(spec.o, shape, kind, generator), []
    if spec.a.shares_scale:
        blocks = spec.a, spec.b
        scales = [scales_of(block, (*shape, -(-length // block.length)), kind, generator) for block in blocks]
    return x, y, start, scales


def compare(spec, operation, given):
    """Check sums in the kernel, in torch and in mmasim; return their number."""
    wanted, lost = oracle(spec, operation, *given), None
    if isinstance(spec, MmaSpec):
        codes, lost = in_steps(spec, *given)
        assert differences(spec, codes, wanted, lost) == 0, (operation.__dict__, "torch")
    assert differences(spec, in_kernel(spec, *given), wanted, lost) == 0, (operation.__dict__, "kernel")
    return wanted.numel()


def test_every_instruction_is_described():
    described_ones = missing = 0
    for key in SETS:
        for text, operation in instructions(key):
            spec = described(key, text, operation)
            missing += spec is None
            described_ones += spec is not None
            if isinstance(spec, MmaSpec):
                assert operation.k % spec.k == 0 or spec.k % operation.k == 0
    assert (described_ones, missing) == (4997, len(MIXED))
    assert {key for key, some in different().items() if not some} == REPEATED


@pytest.mark.sampled(9)
@pytest.mark.parametrize("key", [key for key in SETS if key not in REPEATED], ids=" ".join)
def test_instructions_match_mmasim_and_fractions(key, monkeypatch):
    monkeypatch.setenv("HALFULP_KERNEL", "native")
    generator, steps = torch.Generator().manual_seed(len(SETS[key][0])), 0
    for spec, operation in different()[key][::EVERY]:
        for kind in KINDS:
            given = operands(spec, (COUNT,), operation.k, kind, generator)
            steps += compare(spec, operation, given)
            if isinstance(spec, MmaSpec) and operation.k == spec.k:
                codes = in_steps(spec, *given)[0]
                for at in range(EXACT):
                    single = [part[at].tolist() for part in (*given[:3], *given[3])]
                    assert exact_matrix_unit.step(spec, *single) == int(codes[at])
    print(f"{' '.join(key)}: {steps} steps")


LENGTHS = (4096, 1000, 200, 40)
"""Lengths of the sums of a product; one with blocks is padded too."""

PRODUCTS = 100


@pytest.mark.sampled(len(SETS) - len(REPEATED), 4)
@pytest.mark.parametrize("key", [key for key in SETS if key not in REPEATED], ids=" ".join)
def test_products_match_mmasim(key, monkeypatch):
    """Products of 2 x K and K x 2 matrices, whose operands are of one kind each."""
    monkeypatch.setenv("HALFULP_KERNEL", "native")
    generator, count, sums = torch.Generator().manual_seed(1), PRODUCTS // len(LENGTHS), 0
    for unit, operation in different()[key][::EVERY]:
        # An instruction may have fewer products than a step of the unit, which are then those of a step of its own.
        fewer = isinstance(unit, MmaSpec) and operation.k < unit.k
        spec = replace(unit, k=operation.k) if fewer else unit
        for length in LENGTHS:
            parts = []
            for place in range(count):
                kind = KINDS[place % len(KINDS)]
                x, y, start, scales = operands(spec, (2, 2), length, kind, generator)
                # Rows of a and columns of b.
                x, y = x[:, :1].expand_as(x), y[:1].expand_as(y)
                if scales:
                    scales = [scales[0][:, :1].expand_as(scales[0]), scales[1][:1].expand_as(scales[1])]
                parts.append((x, y, start, scales))
            x, y, start = (torch.stack([part[at] for part in parts]) for at in range(3))
            scales = [torch.stack([part[3][at] for part in parts]) for at in range(2)] if parts[0][3] else []
            sums += compare(spec, operation, (x, y, start, scales))
    print(f"{' '.join(key)}: {sums} sums")
