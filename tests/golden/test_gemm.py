"""Matrix products: step by step in fractions, split along k, and in RTL on a systolic array."""

import itertools

import numpy as np
import pytest
import torch
from amaranth.hdl import Cat, Signal, unsigned

from halfulp import golden
from halfulp.golden import exact
from halfulp.golden.random import of_stream
from halfulp.hdl.formats import E5M2, Float
from halfulp.hdl.formats.source import lanes
from halfulp.hdl.specs import MacSpec, Tiling, UnitSpec
from halfulp.sim.model import CompiledModel
from halfulp.units import Mac, Unit

ROUNDED = [
    "e5m2*e5m2+e6m5.rn",
    "e4m3fn*e5m2=e5m2.rz+e6m5.ru.sat",
    "fxp4.4*fxp4.4+fxp8.6.ra",
    "int8*uint8+int18-wrap.rn",
    "int8*int4=fxp6.2-narrow.rd+int9-narrow.rn",
    "posit8*posit8+posit16.rn",
    "posit8*fxp4.4=e4m3.rd+e6m5-ftz.ro",
    "e5m2*posit16+fp64.rn",
    "e5m2*e5m2+e6m5.sr10",
    "e4m3*e4m3=e5m2.sr3+e6m5.sr10.sat",
    "e5m2*e5m2+e6m5.sr10@lfsr16",
    "e5m2*e5m2+e6m5.sr10@plateau3",
    "e5m2*e5m2+e6m5.sr10@plateau3-rep",
    "fxp4.4*fxp4.4+fxp8.4.sr4@naive3",
    "e4m3*e4m3=e5m2.sr3+e6m5.rn@lfsr16",
    "e4m3*e4m3=e5m2.sr3+e6m5.sr10.sat@lfsr16",
    "fxp4.4*fxp4.4+fxp8.4.sr3@plateau3",
    "posit8*posit8=posit8.sr4+posit16.sr5@plateau4",
    "bf16*bf16+fp32.sr32@lfsr64",
]
EXACT_SUMS = [
    "e5m2*e5m2+exact=e6m5.rn",
    "posit8*posit8+exact=posit8.rz",
    "e4m3*fxp4.4=fxp3.5.sr4+exact=e5m2.sr3.sat carry=7",
    "posit8*int8=e5m2.sr2+exact=posit16.sr6@lfsr8",
]
SEED = 5


def operand(rng, fmt, shape):
    """Return codes of moderate numbers, with arbitrary codes in the first entry of each batch."""
    numbers = rng.normal(size=shape) * (1 if isinstance(fmt, Float) else 3)
    codes = golden.encode(torch.from_numpy(numbers), fmt)
    codes[..., 0, 0] = torch.from_numpy(rng.integers(0, 1 << min(fmt.width, 62), codes.shape[:-2]))
    return codes


def case(spec, a_shape, b_shape):
    """Return operands, start values and given words of a product."""
    rng = np.random.default_rng(len(str(spec)))
    a, b = operand(rng, spec.a, a_shape), operand(rng, spec.b, b_shape)
    shape = (*np.broadcast_shapes(a_shape[:-2], b_shape[:-2]), a_shape[-2], b_shape[-1])
    start = operand(rng, spec.o, shape)
    given = {}
    if spec.random is None:
        words = {name: rng.integers(0, 1 << bits, (*shape, a_shape[-1])) for name, bits in spec.words.items()}
        given = {name: torch.from_numpy(column) for name, column in words.items()}
    return a, b, start, given


def dealt(spec, shape, k):
    """Return the words of the hardware sources, each from its own seed."""
    columns = {name: torch.zeros(*shape, k, dtype=torch.int64) for name in spec.words}
    places = list(itertools.product(*map(range, shape)))
    for place, seed in zip(places, spec.random.seeds(len(places), SEED), strict=True):
        streams = lanes(spec.random, len(spec.words), seed, "own")
        for (name, bits), stream in zip(spec.words.items(), streams, strict=True):
            columns[name][place] = of_stream(stream, k, bits)
    return columns


def parameters_of(spec):
    names = ("a", "b", "acc", "o", "carry", "product", "product_rounding", "rounding", "saturate")
    return {name: getattr(spec, name) for name in names}


def one_by_one(spec, a, b, start, words):
    """Compute each sum separately: rounded ones step by step in fractions, exact ones as an accumulator."""
    shape, k = start.shape, a.shape[-1]
    a = a.expand(*shape[:-2], *a.shape[-2:])
    b = b.expand(*shape[:-2], *b.shape[-2:])
    result = start.clone()
    for place in itertools.product(*map(range, shape)):
        *batch, row, column = place
        x, y = a[(*batch, row)], b[(*batch, slice(None), column)]
        own = {name: column_of_words[place] for name, column_of_words in words.items()}
        if spec.quire:
            load = torch.arange(k) == 0
            sums = golden.mac_sequence(x, y, start[place].expand(k), load, ~load & load, **parameters_of(spec), **own)
            result[place] = sums[-1]
            continue
        total = int(start[place]) % (1 << spec.o.width)
        for step in range(k):
            at_step = {name: int(column_of_words[step]) for name, column_of_words in own.items()}
            total = exact.mac(int(x[step]), int(y[step]), total, **parameters_of(spec), **at_step)
        result[place] = golden.raw.int64(total)
    return result


@pytest.mark.sampled(12)
@pytest.mark.parametrize("text", [*ROUNDED, *EXACT_SUMS])
@pytest.mark.parametrize(
    ("a_shape", "b_shape"), [((2, 1, 2, 7), (3, 7, 3)), ((1, 1), (1, 1)), ((4, 5), (5, 1))], ids=str
)
def test_gemm_matches_mac_steps(text, a_shape, b_shape):
    spec = MacSpec.parse(text)
    a, b, start, given = case(spec, a_shape, b_shape)
    seed = {"seed": SEED} if spec.random else {}
    words = dealt(spec, start.shape, a_shape[-1]) if spec.random else given
    found = golden.gemm(a, b, text, start=start, **seed, **given)
    assert found.shape == start.shape
    assert torch.equal(found, one_by_one(spec, a, b, start, words))
    zeros = torch.zeros_like(start)
    assert torch.equal(golden.gemm(a, b, spec, **seed, **given), one_by_one(spec, a, b, zeros, words))


def test_gemm_broadcasts_and_accepts_empty_shapes():
    spec = MacSpec.parse("e4m3*e4m3=e5m2.sr3+e6m5.sr10")
    a, b, _, _ = case(spec, (2, 3, 4), (4, 5))
    start, random, random_product = torch.arange(5), torch.arange(4) * 100, torch.arange(5).unsqueeze(1)
    found = golden.gemm(a, b, spec, start=start, random=random, random_product=random_product)
    whole = {"random": random.expand(2, 3, 5, 4), "random_product": random_product.expand(2, 3, 5, 4)}
    assert torch.equal(found, golden.gemm(a, b, spec, start=start.expand(2, 3, 5), **whole))
    for batch in range(2):
        words = {name: column[batch] for name, column in whole.items()}
        assert torch.equal(found[batch], golden.gemm(a[batch], b, spec, start=start, **words))
    for text in ("e5m2*e5m2+e6m5.sr10@lfsr16", "e5m2*e5m2+exact=e6m5.rn", "e5m2*e5m2+e6m5.rn"):
        assert torch.equal(golden.gemm(a[..., :0], b[:0], text, start=start), start.expand(2, 3, 5))
        assert torch.equal(golden.gemm(a[..., :0], b[:0], text), torch.zeros(2, 3, 5, dtype=torch.int64))
        assert golden.gemm(a[:, :0], b, text).shape == (2, 0, 5)
        assert golden.gemm(a[:0], b[:, :0], text).shape == (0, 3, 0)


@pytest.mark.parametrize("text", [text for text in ROUNDED if "@" in text])
def test_gemm_resumes_from_start_and_source_state(text):
    """A product may be split anywhere and resumed from the result and the source states."""
    spec = MacSpec.parse(text)
    k = 100
    a, b, start, _ = case(spec, (2, 3, k), (k, 4))
    whole = golden.gemm(a, b, spec, start=start, seed=SEED)
    seeds = golden.random.seeds(spec.random, start.numel(), SEED).reshape(start.shape)
    for cut in (0, 1, 37, 64, k):
        first = golden.gemm(a[..., :cut], b[:cut], spec, start=start, seed=seeds)
        later = golden.random.jump(spec.random, seeds, cut)
        assert torch.equal(golden.gemm(a[..., cut:], b[cut:], spec, start=first, seed=later), whole)
    unsigned_states = [[[seed & (1 << 64) - 1 for seed in row] for row in part] for part in seeds.tolist()]
    assert torch.equal(golden.gemm(a, b, spec, start=start, seed=unsigned_states), whole)


SR = "e5m2*e5m2+e6m5.sr10"
CODES = torch.arange(12)
A, B = CODES.reshape(3, 4), CODES.reshape(4, 3)


@pytest.mark.parametrize(
    ("make", "error", "keyword"),
    [
        (lambda: golden.gemm(A, B, "e5m2"), ValueError, "e5m2 is a format"),
        (lambda: golden.gemm(A, B, E5M2), TypeError, "text"),
        (lambda: golden.gemm(A.tolist(), B, SR), TypeError, "tensor"),
        (lambda: golden.gemm(A, B * 1.0, SR), TypeError, "integer"),
        (lambda: golden.gemm(A, B * 25, SR), ValueError, "275"),
        (
            lambda: golden.gemm(A, A, "e5m2*e5m2+e6m5.rn"),
            ValueError,
            "shape",
        ),
        (
            lambda: golden.gemm(CODES[:4], B, "e5m2*e5m2+e6m5.rn"),
            ValueError,
            "shape",
        ),
        (
            lambda: golden.gemm(A.expand(2, 3, 4), B.expand(3, 4, 3), "e5m2*e5m2+e6m5.rn"),
            ValueError,
            "shape",
        ),
        (
            lambda: golden.gemm(A, B, "e5m2*e5m2+e6m5.rn", start=A),
            ValueError,
            "start",
        ),
        (
            lambda: golden.gemm(A, B, "e5m2*e5m2+e6m5.rn", start=A[:, :1] + 4096),
            ValueError,
            "start",
        ),
        (lambda: golden.gemm(A, B, SR), ValueError, "random"),
        (
            lambda: golden.gemm(A, B, "e4m3*e4m3=e5m2.sr3+e6m5.rn", random=A),
            ValueError,
            "random",
        ),
        (
            lambda: golden.gemm(A, B, SR, random=B),
            ValueError,
            "random",
        ),
        (lambda: golden.gemm(A, B, SR, random=A + 1020), ValueError, "random"),
        (
            lambda: golden.gemm(A, B, SR, random=A, seed=2),
            ValueError,
            "no effect",
        ),
        (
            lambda: golden.gemm(A, B, f"{SR}@lfsr16", random=A),
            ValueError,
            "random",
        ),
        (
            lambda: golden.gemm(A, B, f"{SR}@lfsr16", random_product=A),
            ValueError,
            "random_product",
        ),
        (lambda: golden.gemm(A, B, f"{SR}@lfsr16", seed=0), ValueError, "seed"),
        (lambda: golden.gemm(A, B, f"{SR}@lfsr16", seed=1.0), TypeError, "seed"),
        (
            lambda: golden.gemm(A, B, f"{SR}@lfsr16", seed=A + 1),
            ValueError,
            "seed",
        ),
        (
            lambda: golden.gemm(A, B, f"{SR}@lfsr16", seed=A[:, :3]),
            ValueError,
            "seed",
        ),
        (
            lambda: golden.gemm(A * 1.0, B * 1.0, "h100.wgmma.e4m3", operand_rounding="rn.satfinite"),
            ValueError,
            "give operand_rounding='rn' and operand_saturate='satfinite'",
        ),
    ],
)
def test_gemm_rejects_bad_arguments(make, error, keyword):
    with pytest.raises(error) as caught:
        make()
    assert keyword in str(caught.value)


# In hardware ---------------------------------------------------------------------------------------------------------

ROWS, COLUMNS, STEPS = 3, 4, 200
ON_ARRAYS = [
    "e5m2*e5m2+e6m5.sr10@lfsr16",
    "e5m2*e5m2+e6m5.sr10@plateau10",
    "e4m3*e4m3=e5m2.sr3+e6m5.sr10.sat@lfsr16",
    "fxp4.4*fxp4.4+fxp12.4.sr3@plateau3",
    "e5m2*e5m2+e6m5.sr10@plateau3-rep",
    "fxp4.4*fxp4.4+fxp12.4.sr4@naive3",
]


class Systolic(Unit):
    """Output-stationary arrays on the same codes: rows of ``a`` move right, columns of ``b`` move down.

    Row i and column j are delayed by i and j cycles, so that operands of a step meet in each element. Flags for valid
    steps and first steps move with ``a``. ``stall`` stops all registers.
    """

    stateful = True

    def __init__(self, arrays):
        self.arrays = arrays
        super().__init__(
            UnitSpec(),
            inputs={
                **{f"a{row}": unsigned(8) for row in range(ROWS)},
                **{f"b{column}": unsigned(8) for column in range(COLUMNS)},
                "step": unsigned(1),
                "first": unsigned(1),
                "stall": unsigned(1),
            },
            words={},
            outputs={
                f"o{array}_{row}_{column}": MacSpec.parse(text).o
                for array, text in enumerate(arrays)
                for row in range(ROWS)
                for column in range(COLUMNS)
            },
            name="systolic",
        )

    def logic(self, m):
        moves = self.en & ~self.stall

        def later(value, cycles=1):
            for _ in range(cycles):
                held = Signal(len(value))
                with m.If(moves):
                    m.d.sync += held.eq(value)
                value = held
            return value

        step = self.valid & self.step
        right = [later(Cat(getattr(self, f"a{row}"), step, self.first), row) for row in range(ROWS)]
        down = [later(getattr(self, f"b{column}"), column) for column in range(COLUMNS)]
        for row in range(ROWS):
            for column in range(COLUMNS):
                self.element(m, moves, row, column, right[row], down[column])
                right[row], down[column] = later(right[row]), later(down[column])

    def element(self, m, moves, row, column, from_left, from_above):
        for array, text in enumerate(self.arrays):
            seeds = MacSpec.parse(text).random.seeds(ROWS * COLUMNS, SEED)
            mac = Mac.of(f"{text}:{seeds[row * COLUMNS + column]}")
            m.submodules[f"mac{array}_{row}_{column}"] = mac
            m.d.comb += [
                Cat(mac.a.as_value(), mac.valid, mac.clear).eq(from_left),
                mac.b.as_value().eq(from_above),
                mac.en.eq(moves),
                getattr(self, f"o{array}_{row}_{column}").as_value().eq(mac.o.as_value()),
            ]


def operands(rng):
    """Return codes of 8 bits with moderate numbers in each format, so that every step rounds."""
    middling = [rng.integers(0x30, 0x44, shape) for shape in ((ROWS, STEPS), (STEPS, COLUMNS))]
    return [codes | (rng.integers(0, 2, codes.shape) << 7) for codes in middling]


def feed(rng, a, b):
    """Return the inputs per cycle: steps in order, with bubbles and stalls that carry random codes."""
    cycles, steps = 3 * STEPS, iter(range(STEPS))
    columns = {f"a{row}": rng.integers(0, 256, cycles) for row in range(ROWS)}
    columns |= {f"b{column}": rng.integers(0, 256, cycles) for column in range(COLUMNS)}
    columns |= {"step": np.zeros(cycles), "first": rng.integers(0, 2, cycles), "stall": rng.random(cycles) < 0.25}
    through = cycles - ROWS - COLUMNS
    columns["stall"][through:] = 0
    for cycle in range(through):
        if columns["stall"][cycle]:
            columns["step"][cycle] = rng.integers(0, 2)
        elif rng.random() < 0.8 and (step := next(steps, None)) is not None:
            columns["step"][cycle], columns["first"][cycle] = 1, step == 0
            for row in range(ROWS):
                columns[f"a{row}"][cycle] = a[row, step]
            for column in range(COLUMNS):
                columns[f"b{column}"][cycle] = b[step, column]
    assert next(steps, None) is None
    return {name: np.asarray(column, dtype=np.uint64) for name, column in columns.items()}, cycles


@pytest.mark.slow
def test_gemm_matches_systolic_array():
    """Two products in sequence match element by element, sources continue, and a wrong seed is detected."""
    # One test for everything, because building the model takes longest.
    unit = Systolic(ON_ARRAYS)
    rng = np.random.default_rng(1)
    products = []
    with CompiledModel.of_unit(unit) as loop:
        loop.reset()
        for _ in range(2):
            a, b = operands(rng)
            results = loop.run(*feed(rng, a, b))
            last = [int(results[name][-1]) for name in unit.outputs]
            products.append((torch.from_numpy(a), torch.from_numpy(b), torch.tensor(last).reshape(-1, ROWS, COLUMNS)))
    for array, text in enumerate(ON_ARRAYS):
        source = MacSpec.parse(text).random
        (a, b, found), (a_after, b_after, found_after) = ((a, b, sums[array]) for a, b, sums in products)
        assert torch.equal(found, golden.gemm(a, b, text, seed=SEED)), text
        seeds = golden.random.seeds(source, ROWS * COLUMNS, SEED).reshape(ROWS, COLUMNS)
        after = golden.random.jump(source, seeds, STEPS)
        assert torch.equal(found_after, golden.gemm(a_after, b_after, text, seed=after)), text
        # Each element in turn gets a wrong seed, which must change that element only (or nothing, if sums agree).
        own = torch.eye(ROWS * COLUMNS, dtype=torch.bool).reshape(-1, ROWS, COLUMNS)
        wrong = torch.where(own, golden.random.jump(source, seeds, 3), seeds)
        different = golden.gemm(a.expand(len(own), *a.shape), b, text, seed=wrong) != found
        assert not (different & ~own).any(), text
        assert different.sum() > len(own) / 2, text


def test_gemm_starts_sources_from_the_state_in_the_text():
    five = golden.gemm(A, B, f"{SR}@lfsr16:5")
    assert torch.equal(five, golden.gemm(A, B, f"{SR}@lfsr16", seed=5))
    assert not torch.equal(five, golden.gemm(A, B, f"{SR}@lfsr16"))
    tiling = Tiling(2, 2)
    assert torch.equal(
        golden.gemm(A, B, f"{SR}@lfsr16:5", tiling=tiling), golden.gemm(A, B, f"{SR}@lfsr16", tiling=tiling, seed=5)
    )


@pytest.mark.parametrize(
    ("mac", "source", "name"),
    [
        ("e4m3fn*e4m3fn+fp16.sr10", "e4m3fn*e4m3fn+fp16.sr10@lfsr16", "random="),
        ("e5m2*e5m2+fp32.sr20", "e5m2*e5m2+fp32.sr20@lfsr32", "random="),
        ("e5m2*e5m2=e5m2.sr3+fp32.rn", "e5m2*e5m2=e5m2.sr3+fp32.rn@lfsr16", "random_product="),
    ],
)
def test_missing_random_words_are_named_with_all_sources(mac, source, name):
    a = torch.ones(2, 2)
    with pytest.raises(ValueError, match="needs random words") as caught:
        golden.gemm(a, a, mac)
    for text in (repr(source), name, "source='philox' and seed=1"):
        assert text in str(caught.value)
    assert golden.gemm(a, a, source).shape == golden.gemm(a, a, mac, source="philox", seed=1).shape
