"""Systolic arrays in RTL against the golden model, exact in bits and cycles."""

import itertools
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
import torch
from amaranth.hdl import Module, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out

from halfulp import golden
from halfulp.golden.entries import entries
from halfulp.golden.products import tiles
from halfulp.golden.quantize import BlockTensor
from halfulp.golden.sparse import SparseTensor
from halfulp.hdl.formats import Fixed
from halfulp.hdl.formats.source import Stream
from halfulp.hdl.specs import BlockMacSpec, Build, MacSpec, SparseMacSpec, Tiling
from halfulp.sim.model import CompiledModel, pack, unpack
from halfulp.sim.systolic import Product
from halfulp.units import sparsemac
from halfulp.units.systolic import Chain, Grid, array
from tests.settings import EXHAUSTIVE

PRODUCTS = 40 if EXHAUSTIVE else 10
"""Products per array, with sizes from 1 to 20; every second one has stalls."""

SIZES = (1, 2, 3, 8)

MACS = [
    "e5m2*e5m2+e6m5.rn",
    "e5m2*e5m2+e6m5.sr10@lfsr16",
    "e5m2*e5m2+e6m5.sr10@plateau3",
    "bf16*bf16+fp32.rn",
    "fxp4.4*fxp4.4+fxp8.8.rn",
    "posit8*posit8+posit16.rn",
    "posit8*posit8+exact=posit8.rn",
]

SOME = [
    partial(Chain, mac=MACS[0], n=3, m=1, depth=1),
    partial(Chain, mac=f"{MACS[1]}:77", n=2, m=3, depth=3, build=Build(pipeline=3)),
    partial(Chain, mac=MACS[2], n=1, m=2, depth=3, rows=2),
    partial(Chain, mac=MACS[3], n=1, m=1, depth=5, build=Build(pipeline=6, goal="speed")),
    partial(Chain, mac=MACS[4], n=3, m=3, depth=2, build=Build(pipeline=1)),
    partial(Chain, mac=MACS[5], n=2, m=1, depth=4, build=Build(pipeline=2)),
    partial(Chain, mac=MACS[6], n=2, m=1, depth=2, rows=3, build=Build(pipeline=4)),
    partial(Chain, mac="e4m3*e4m3=e5m2.sr3+e6m5.sr10.sat@lfsr16:5", n=1, m=2, depth=3, build=Build(pipeline=1)),
    partial(Chain, mac="fxp4.4*fxp4.4+exact=fxp6.2.sr4@plateau3-rep", n=1, m=2, depth=3, build=Build(pipeline=2)),
    partial(Grid, mac=f"{MACS[1]}:9", n=2, m=3, build=Build(pipeline=2)),
    partial(Grid, mac=MACS[4], n=3, m=2),
    partial(Grid, mac=f"{MACS[1]}:9", n=2, m=3, depth=4, build=Build(pipeline=4)),
    partial(Grid, mac=MACS[0], n=3, m=1, depth=3, build=Build(pipeline=1, goal="speed")),
    partial(Grid, mac="fxp4.4*fxp4.4+exact=fxp6.2.sr4@naive3", n=1, m=1, build=Build(pipeline=3)),
    partial(Chain, mac="nf4*nf4+fp16.rh", n=2, m=1, depth=3, build=Build(pipeline=1)),
    partial(Grid, mac="takum8*takum8+takum12.rn", n=1, m=2),
    partial(Chain, mac=MACS[0], n=2, m=2, depth=2, build=Build(pipeline=3, goal="loop")),
    partial(Chain, mac=f"{MACS[1]}:5", n=1, m=2, depth=3, rows=2, build=Build(goal="loop")),
    partial(Grid, mac=MACS[3], n=2, m=1, depth=2, build=Build(pipeline=2, goal="loop")),
]

ALL = [
    partial(kind, mac=mac, n=n, m=SIZES[(place + turn) % len(SIZES)], build=Build(pipeline=turn % 4))
    for turn, mac in enumerate(MACS)
    for place, n in enumerate(SIZES)
    for kind in ((Chain, Grid)[(place + turn // len(SIZES)) % 2],)
]
"""Each description with each size as n and as m, on one of the arrays."""


SIGNED = "block(e2m1fn,4,e4m3fn,nearest)"
UNSIGNED = "block(e2m1fn,4,e8m0fnu,floor)"
SHORT = "block(e2m1fn,2,e3m2,nearest)"

BLOCKS = [
    partial(Chain, mac=f"{UNSIGNED}*{UNSIGNED}+e6m5.sr10@lfsr16:3 step=2", n=2, m=2, depth=3, build=Build(pipeline=3)),
    partial(Grid, mac=f"{SIGNED}*{UNSIGNED}+fp16.rn", n=2, m=3, depth=2, build=Build(pipeline=2)),
]
MORE_BLOCKS = [
    partial(Chain, mac="mxfp4*mxfp4+fp32.rn", n=2, m=1, depth=2, rows=2, build=Build(pipeline=5)),
    partial(Chain, mac="nvfp4*nvfp4+bf16.sr8@plateau3 step=8", n=1, m=3, depth=4),
    partial(Chain, mac=f"{SHORT}*{SHORT}+exact=fp16.sr5@lfsr16", n=2, m=2, depth=2, build=Build(pipeline=3)),
    partial(Grid, mac="mxfp8_e4m3*mxfp8_e5m2+fp32.rz step=8", n=2, m=2, build=Build(pipeline=4)),
    partial(Grid, mac=f"{SHORT}*{SHORT}+exact=fp16.rn step=1", n=2, m=1, depth=3, build=Build(pipeline=1)),
]

SPARSE = [
    partial(Grid, mac="sparsemac int4*int4+int16.rn sparsity=1:3 step=2", n=2, m=3, depth=2, build=Build(pipeline=2)),
    partial(Chain, mac="sparsemac e4m3fn*e4m3fn+e6m5.sr10@lfsr16:3", n=2, m=2, depth=3, build=Build(pipeline=3)),
]
MORE_SPARSE = [
    partial(Chain, mac="sparsemac e5m2*e4m3+fp32.rn sparsity=3:5", n=2, m=1, depth=2, rows=2, build=Build(pipeline=5)),
    partial(Chain, mac="sparsemac posit8*posit8+exact=posit8.sr5@lfsr16 step=4", n=1, m=3, depth=2),
    partial(Grid, mac="sparsemac e4m3fn*e4m3fn+bf16.sr8@plateau3 sparsity=1:2", n=2, m=2, build=Build(pipeline=4)),
    partial(Grid, mac="sparsemac e2m1*e2m1+exact=fp16.rd sparsity=4:8", n=2, m=1, depth=3, build=Build(pipeline=1)),
]


def operands(rng, mac, n, k, m):
    """Return codes of moderate numbers, blocks of them, or weights with any indices, with some arbitrary codes."""

    def codes(fmt, *shape):
        numbers = golden.encode(torch.from_numpy(rng.normal(size=shape) * (2 if isinstance(fmt, Fixed) else 1)), fmt)
        anything = torch.from_numpy(rng.integers(0, 1 << fmt.width, shape))
        return torch.where(torch.from_numpy(rng.random(shape) < 0.02), anything, numbers)

    if isinstance(mac, SparseMacSpec):
        stored = -(-k // mac.group[1]) * mac.group[0]
        index = torch.from_numpy(rng.integers(0, 1 << mac.index_bits, (stored, m)))
        return [codes(mac.a, n, k), SparseTensor(codes(mac.b, stored, m), index)]
    if not isinstance(mac, BlockMacSpec):
        return [codes(mac.a, n, k), codes(mac.b, k, m)]
    found = []
    for block, shape, dim in ((mac.a, (n, k), 1), (mac.b, (k, m), 0)):
        scales = list(shape)
        scales[dim] = -(-k // block.length)
        powers = golden.encode(torch.from_numpy(2.0 ** rng.integers(-2, 3, scales)), block.scale)
        anything = torch.from_numpy(rng.integers(0, 1 << block.scale.width, scales))
        scale = torch.where(torch.from_numpy(rng.random(scales) < 0.01), anything, powers)
        found.append(BlockTensor(codes(block.element, *shape), scale))
    return found


def expected(a, b, made, step):
    """Return the product of two matrices by `golden.gemm`, of blocks and sparse weights also step by step."""
    mac, tiling = made.mac, made.tiling
    if isinstance(mac, MacSpec):
        return golden.gemm(a, b, mac, **({"tiling": tiling, "first_step": step} if mac.random else {}))
    x, y = entries(a, mac, "a"), entries(b, mac, "b")
    (n, k, _), m = x.shape, y.shape[1]
    words = {} if mac.random is None else words_of(mac, tiling, (n, k, m), step, mac.seed)
    # All sums are one sequence, in which each begins with +0.
    x = x.unsqueeze(1).expand(n, m, k, -1).reshape(n * m * k, -1)
    y = y.transpose(0, 1).unsqueeze(0).expand(n, m, k, -1).reshape(n * m * k, -1)
    begins = torch.arange(n * m * k) % k == 0
    zeros = torch.zeros(n * m * k, dtype=torch.int64)
    own = {name: word.flatten() for name, word in words.items()}
    if isinstance(mac, SparseMacSpec):
        sequence, parts = golden.sparsemac_sequence, (x, *y.split(mac.k, -1))
    else:
        sequence, parts = golden.blockmac_sequence, (x[:, :-1], y[:, :-1], x[:, -1], y[:, -1])
    sums = sequence(*parts, zeros, torch.zeros_like(begins), begins, **own, **mac.parameters)
    found = sums[k - 1 :: k].reshape(n, m)
    assert torch.equal(golden.gemm(a, b, mac, **({"tiling": tiling, "first_step": step} if mac.random else {})), found)
    return found


def words_of(mac, tiling, shape, step, seed):
    """Return the random words of a product, for each element of the result and step of k, by loops over its tiles."""
    n, k, m = shape
    count = step + tiling.steps(n, k, m)
    lanes = [
        [
            golden.random.of_stream(Stream(mac.random, own), count, bits).tolist()
            for bits, own in zip(mac.words.values(), mac.random.seeds(len(mac.words), first), strict=True)
        ]
        for first in mac.random.seeds(tiling.macs, seed)
    ]
    words = {name: torch.zeros(n, m, k, dtype=torch.int64) for name in mac.words}
    for tile in tiling.tiles(n, m):
        for term in range(k):
            for vector, slot in itertools.product(range(tile.vectors), range(tiling.rows)):
                for mac_number in range(tiling.n * tiling.m):
                    i = tile.row + mac_number // tiling.m * tiling.rows + slot
                    j = tile.column + vector * tiling.m + mac_number % tiling.m
                    if i < n and j < m:
                        for own, dealt in zip(words.values(), lanes[mac_number], strict=True):
                            own[i, j, term] = dealt[step]
                step += 1
    assert step == count
    return words


def stalls(rng):
    """Return random stall rates per stream, some of them zero."""
    return {name: rng.random(997) < rng.uniform(0.05, 1.1) for name in ("tile", "a", "b", "c")}


class Together(wiring.Component):
    """Arrays side by side, because one model compiles faster than many."""

    def __init__(self, arrays):
        self.arrays = arrays
        self.name = f"together{len(arrays)}"
        super().__init__(
            {f"{name}{number}": member for number, made in enumerate(arrays) for name, member in members(made)}
        )

    def elaborate(self, platform):
        m = Module()
        for number, made in enumerate(self.arrays):
            m.submodules[f"array{number}"] = made
            for name, member in members(made):
                outer, inner = getattr(self, f"{name}{number}"), getattr(made, name)
                source, sink = (inner, outer) if member.flow.name == "Out" else (outer, inner)
                m.d.comb += [Value.cast(sink.payload).eq(Value.cast(source.payload)), sink.valid.eq(source.valid)]
                m.d.comb += source.ready.eq(sink.ready)
        return m


def members(made):
    return made.signature.members.items()


def check(*arrays, products=PRODUCTS, seed=1):
    """Run products on each array in sequence; check bits, cycles, and that no further results appear."""
    rng = np.random.default_rng(seed)
    steps = [0] * len(arrays)
    with CompiledModel.of_streams(Together(arrays)) as streams:
        for turn in range(products):
            stalling = turn % 2 == 1
            runs, go = [], {}
            for number, made in enumerate(arrays):
                sizes = [int(size) for size in rng.integers(1, 21, 3)]
                a, b = operands(rng, made.mac, *sizes)
                runs.append((made, sizes, a, b, Product(made, a, b, filling=turn % 256)))
                go |= {f"{name}{number}": waits for name, waits in stalls(rng).items()}
            passed = streams.stream(
                {f"{name}{number}": data for number, run in enumerate(runs) for name, data in run[-1].payloads.items()},
                {f"c{number}": run[-1].count for number, run in enumerate(runs)},
                go=go if stalling else None,
                limit=1_000_000,
                more=50,
            )
            for number, (made, sizes, a, b, product) in enumerate(runs):
                where = f"product {turn} of n, k, m = {sizes} on {made.name}"
                found = product.result(passed.words[f"c{number}"])
                assert torch.equal(found, expected(a, b, made, steps[number])), where
                n, k, m = sizes
                sizes = (n, made.mac.steps(k), m)
                steps[number] += made.tiling.steps(*sizes)
                assert passed.given[f"c{number}"] == product.count, where
                assert passed.faults[f"c{number}"] == 0, where
                if not stalling:
                    assert passed.cycles[f"c{number}"] == made.cycles(*sizes), where


@pytest.mark.sampled(12, 4)
@pytest.mark.parametrize("makes", [*(SOME[start::12] for start in range(12)), *([make] for make in ALL if EXHAUSTIVE)])
def test_arrays_match_golden_products(makes):
    check(*(make() for make in makes))


@pytest.mark.slow
@pytest.mark.sampled(4, 4)
@pytest.mark.parametrize("makes", [BLOCKS[1:], BLOCKS[:1], *([make] for make in MORE_BLOCKS)])
def test_arrays_of_blocks_match_golden_sequences(makes):
    check(*(make() for make in makes), products=4)


@pytest.mark.slow
@pytest.mark.parametrize("makes", [[make] for make in SPARSE + MORE_SPARSE])
def test_arrays_of_sparse_weights_match_golden_sequences(makes):
    check(*(make() for make in makes), products=4)


@pytest.mark.slow
def test_arrays_comparison_detects_wrong_index(monkeypatch):
    """An element that takes the index of another weight gives other products."""
    made = Chain(mac="sparsemac int4*int4+int16.rn", n=1, m=2)
    found = sparsemac.selected_factors

    def swapped(unit, m):
        unit.i = unit.i[::-1]
        return found(unit, m)

    monkeypatch.setattr(sparsemac, "selected_factors", swapped)
    with pytest.raises(AssertionError, match="product 0"):
        check(made, products=1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Chain, Grid] if EXHAUSTIVE else [Chain])
def test_arrays_use_macs_in_most_cycles(kind):
    """For 64 x 256 x 64 on 8 x 8, 97 % of all cycles from the first operand to the last result are steps."""
    mac = MacSpec.parse("int3*int3+int9.rn")
    made = kind(mac=mac, n=8, m=8, build=Build(pipeline=2))
    a, b = operands(np.random.default_rng(2), mac, 64, 256, 64)
    product = Product(made, a, b)
    with CompiledModel.of_streams(made) as model:
        passed = model.stream(product.payloads, {"c": product.count}, limit=10**6)
    assert torch.equal(product.result(passed.words["c"]), golden.gemm(a, b, mac))
    assert passed.cycles["c"] == made.cycles(64, 256, 64)
    assert 64 * 256 * 64 / (passed.cycles["c"] * 64) >= 0.97


@pytest.mark.slow
def test_arrays_comparison_detects_swapped_seed():
    made = Chain(mac=MACS[1], n=1, m=2)
    made.seeds.reverse()
    with pytest.raises(AssertionError, match="product 0"):
        check(made)


@pytest.mark.slow
def test_arrays_comparison_detects_lost_vector(monkeypatch):
    """A queue that is one place too short loses a vector, unless the end waits."""
    monkeypatch.setattr(array, "SyncFIFO", lambda width, depth: SyncFIFO(width=width, depth=depth - 1))
    made = Chain(mac="int3*int3+int9.rn", n=2, m=1)
    check(made, products=1)
    with pytest.raises(AssertionError, match="product 1"):
        check(made)


class Streaming(wiring.Component):
    """Two streams with a payload each; the second withdraws its payload before transfer."""

    name = "streaming"
    x: In(stream.Signature(70))
    y: In(stream.Signature(9))
    good: Out(stream.Signature(70))
    bad: Out(stream.Signature(9))

    def elaborate(self, platform):
        m = Module()
        for name, i, o in (("good", self.x, self.good), ("bad", self.y, self.bad)):
            held = Signal(i.payload.shape(), name=f"held_{name}")
            full = Signal(name=f"full_{name}")
            m.d.comb += [o.payload.eq(held), o.valid.eq(full), i.ready.eq(~full)]
            with m.If(o.ready if name == "good" else full):
                m.d.sync += full.eq(0)
            with m.If(i.valid & i.ready):
                m.d.sync += [full.eq(1), held.eq(i.payload)]
        return m


@pytest.mark.slow
def test_streams_pass_wide_payloads_and_detect_withdrawal():
    rng = np.random.default_rng(3)
    x = rng.integers(0, 1 << 35, (40, 2), dtype=np.uint64)
    y = rng.integers(0, 1 << 9, (40, 1), dtype=np.uint64)
    with CompiledModel.of_streams(Streaming()) as streams:
        sent = {"x": pack(x, [35, 35]), "y": pack(y, [9])}
        passed = streams.stream(sent, {"good": 40, "bad": 40}, limit=1000)
        assert np.array_equal(unpack(passed.words["good"], [35, 35]), x)
        assert np.array_equal(unpack(passed.words["bad"], [9]), y)
        assert passed.faults == {"good": 0, "bad": 0}
        assert passed.accepted == {"x": 40, "y": 40}
        # One payload every other cycle; the last one transfers a cycle after it was sent.
        assert passed.cycles == {"x": 79, "y": 79, "good": 80, "bad": 80}
        go = {name: np.arange(7) % 7 == 0 for name in ("good", "bad")}
        passed = streams.stream(sent, {"good": 40, "bad": 40}, go=go, limit=1000)
        assert np.array_equal(unpack(passed.words["good"], [35, 35]), x)
        assert passed.faults["good"] == 0
        assert passed.faults["bad"] > 0
        assert passed.given["bad"] < 40
        with pytest.raises(ValueError, match=r"payloads of y .* 1 words"):
            streams.stream(sent | {"y": sent["x"]}, {"good": 1, "bad": 1}, limit=1)


@pytest.mark.parametrize(
    ("make", "error", "keyword"),
    [
        (
            lambda: Chain(mac="e5m2*e5m2+e6m5.sr10", n=1, m=1),
            ValueError,
            "source of its own",
        ),
        (lambda: Grid(mac=f"{MACS[1]}:0", n=1, m=1), ValueError, "seed"),
        (lambda: Chain(mac=MACS[0], n=0, m=1), ValueError, "tiling"),
        (lambda: Chain(mac=MACS[0], n=1, m=1.0), TypeError, "m"),
        (lambda: Chain(mac=MACS[0], n=1, m=1, depth=0), ValueError, "tiling"),
        (lambda: Chain(mac=MACS[0], n=1, m=1, build=Build(pipeline=65)), ValueError, "pipeline 65"),
        (
            lambda: Grid(mac=MACS[0], n=1, m=1, build=Build(pipeline=True)),
            TypeError,
            "pipeline",
        ),
        (
            lambda: Grid(mac=MACS[0], n=1, m=1, build=Build(stochastic="eager")),
            ValueError,
            "no effect",
        ),
        (
            lambda: Chain(mac=MACS[0], n=1, m=1, build=Build(stochastic="eager")),
            ValueError,
            "no effect",
        ),
        (lambda: Chain(mac=MACS[0], n=1, m=1, build=Build(dsp=1)), TypeError, "dsp"),
        (
            lambda: Chain(mac=MACS[0], n=1, m=1).cycles(1, 0, 1),
            ValueError,
            "product",
        ),
        (lambda: Grid(mac=MACS[0], n=1, m=1).cycles(1, 1, 1.5), TypeError, "m of a matrix"),
    ],
)
def test_systolic_rejects_bad_parameters(make, error, keyword):
    with pytest.raises(error) as caught:
        make()
    assert keyword in str(caught.value)


def test_refused_array_prints_nothing_more(tmp_path):
    """Amaranth warns about components that are not elaborated, when Python deletes them."""
    script = tmp_path / "refused.py"
    script.write_text(
        "from halfulp.units.systolic import Chain\n"
        "try:\n    Chain(mac='e5m2*e5m2+e6m5.sr4', n=2, m=2)\n"
        "except ValueError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    assert "random source" in done.stdout
    assert done.stderr == ""


# Random words of tiled products in the golden model -------------------------------------------------------------------


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "text",
    [
        MACS[1],
        "e4m3*e4m3=e5m2.sr3+e6m5.sr10.sat@lfsr16",
        "e4m3*e4m3=e5m2.sr3+e6m5.rn@plateau3",
        "posit8*int8=e5m2.sr2+exact=posit16.sr6@lfsr8",
    ],
)
@pytest.mark.parametrize(
    "tiling", [Tiling(2, 3, 2), Tiling(1, 1), Tiling(3, 2), Tiling(8, 8, 4), Tiling(2, 3, 2, 2)], ids=str
)
def test_tiled_gemm_takes_one_word_per_step(text, tiling, monkeypatch):
    """Compute step by step through all tiles with padding, in one call or in several."""
    mac = MacSpec.parse(text)
    rng = np.random.default_rng(4)
    batch, n, k, m = 2, 5, 3, 13
    before, seed = 11, 5
    a = torch.stack([operands(rng, mac, n, k, m)[0] for _ in range(batch)])
    b = operands(rng, mac, n, k, m)[1]
    start = golden.encode(torch.from_numpy(rng.normal(size=m)), mac.o)
    steps = tiling.steps(n, k, m)
    dealt = [words_of(mac, tiling, (n, k, m), before + product * steps, seed) for product in range(batch)]
    words = {name: torch.stack([one[name] for one in dealt]) for name in mac.words}
    wanted = golden.gemm(a, b, text.partition("@")[0], start=start, **words)
    tiled = partial(golden.gemm, a, b, text, start=start, seed=seed, first_step=before, tiling=tiling)
    assert torch.equal(tiled(), wanted)
    monkeypatch.setattr(tiles, "WORDS", 1)
    assert torch.equal(tiled(), wanted)


@pytest.mark.parametrize(
    ("given", "error", "keyword"),
    [
        ({"tiling": (2, 2)}, TypeError, "tiling"),
        ({"mac": MACS[0]}, ValueError, "tiling"),
        ({"source": "philox"}, ValueError, "tiling"),
        ({"random": torch.zeros(1, dtype=torch.int64)}, ValueError, "tiling"),
        ({"seed": [[1, 2], [3, 4]]}, TypeError, "seed"),
        ({"first_step": -1}, ValueError, "first_step"),
    ],
)
def test_tiled_gemm_rejects_bad_arguments(given, error, keyword):
    codes = torch.zeros(2, 2, dtype=torch.int64)
    with pytest.raises(error) as caught:
        golden.gemm(codes, codes, **({"mac": MACS[1], "tiling": Tiling(2, 2)} | given))
    assert keyword in str(caught.value)
