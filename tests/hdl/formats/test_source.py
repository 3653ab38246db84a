"""Random sources: periods, plateaus and seeds, in hardware and in the software twin."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from amaranth.hdl import Value, unsigned
from sympy import factorint

from halfulp import golden
from halfulp.golden.random import of_stream, words
from halfulp.hdl.formats.source import TAPS, Lfsr, Naive, Plateau, RepeatedPlateau, Stream, parse_source
from halfulp.hdl.formats.source import lanes as make_lanes
from halfulp.hdl.lfsr import source_word
from halfulp.hdl.specs import Build, UnitSpec
from halfulp.sim.model import CompiledModel
from halfulp.units import Mac, Sru, Unit
from halfulp.units.catalogue import component

LFSRS = [Lfsr(width) for width in range(2, 65)]
PLATEAUS = [Plateau(width) for width in range(2, 17)]
NAIVES = [Naive(width) for width in range(2, 17)]


class Sources(Unit):
    """Sources side by side, with seeds other than the first ones of a table."""

    stateful = True

    def __init__(self, sources):
        self.kinds = sources
        super().__init__(
            UnitSpec(),
            inputs={"idle": unsigned(1)},
            words={},
            outputs={str(source): unsigned(source.register) for source in sources},
            name=f"sources_{sources[0]}_{sources[-1]}",
        )

    def logic(self, m):
        for source in self.kinds:
            word = source_word(m, source, [seed_of(source)], self.en & self.valid & ~self.idle, str(source))
            m.d.comb += Value.cast(getattr(self, str(source))).eq(word)


def seed_of(source):
    return source.seeds(3)[2]


def run(sources, idle):
    """Return the words of each source in each cycle from reset on, before the clock edge."""
    unit = Sources(sources)
    with CompiledModel.of_unit(unit) as loop:
        loop.reset()
        # A sample after an edge is the word of the next cycle.
        return loop.run({"idle": np.asarray(idle, dtype=np.uint64)}, len(idle))


def twin(source, steps):
    return words(source, steps, seed_of(source), bits=min(source.width, 62)).numpy()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("sources", [LFSRS, PLATEAUS, NAIVES], ids=["lfsr", "plateau", "naive"])
def test_source_rtl_matches_twin(sources):
    steps = 20_000
    found = run(sources, np.zeros(steps))
    for source in sources:
        low = np.uint64((1 << min(source.width, 62)) - 1)
        word = found[str(source)] >> np.uint64(source.register - source.width) & low
        assert np.array_equal(word, twin(source, steps + 1)[1:].view(np.uint64)), source


def test_source_holds_word_until_taken():
    rng = np.random.default_rng(1)
    idle = rng.random(5000) < 0.5
    found = run(PLATEAUS, idle)
    for source in PLATEAUS:
        expected = twin(source, len(idle) + 1)[np.cumsum(~idle)]
        assert np.array_equal(found[str(source)], expected.view(np.uint64)), source


def test_plateau_words_occur_twice_except_ends():
    """In one period of hardware and twin, for every width."""
    found = run(PLATEAUS, np.zeros(PLATEAUS[-1].period))
    for source in PLATEAUS:
        for column in (found[str(source)][: source.period], twin(source, source.period)):
            counts = np.bincount(column.astype(np.int64), minlength=1 << source.width)
            assert counts[0] == counts[-1] == 1
            assert (counts[1:-1] == 2).all()


@pytest.mark.slow
def test_naive_words_occur_twice_except_zero():
    """In one period of hardware and twin, for every width."""
    found = run(NAIVES, np.zeros(NAIVES[-1].period))
    for source in NAIVES:
        for column in (found[str(source)][: source.period] >> np.uint64(1), twin(source, source.period)):
            counts = np.bincount(column.astype(np.int64), minlength=1 << source.width)
            assert counts[0] == 1
            assert (counts[1:] == 2).all()


@pytest.mark.parametrize(
    "source", [*LFSRS[:21], *(pytest.param(each, marks=pytest.mark.slow) for each in LFSRS[21:23])], ids=str
)
def test_narrow_sources_have_full_period(source):
    """The first word recurs after 2^width - 1 steps and not earlier, because the step is invertible."""
    column = words(source, source.period + 1, 1)
    assert torch.nonzero(column == 1).flatten().tolist() == [0, source.period]


@pytest.mark.parametrize("source", LFSRS, ids=str)
def test_lfsr_polynomials_are_primitive(source):
    """The order of x modulo the polynomial is 2^width - 1: no power to a proper divisor is one."""
    order = 2**source.width - 1
    modulus = 1 | sum(1 << tap for tap in TAPS[source.width])
    assert modulus.bit_length() == source.width + 1
    assert power_of_x(order, modulus) == 1
    assert all(power_of_x(order // prime, modulus) != 1 for prime in factorint(order))


def power_of_x(exponent, modulus):
    """Return x^exponent modulo a polynomial over GF(2) whose bits are the coefficients."""
    result = 1
    for bit in f"{exponent:b}":
        square = sum(1 << (2 * place) for place in range(result.bit_length()) if result >> place & 1)
        result = remainder(square << (bit == "1"), modulus)
    return result


def remainder(value, modulus):
    while value.bit_length() >= modulus.bit_length():
        value ^= modulus << (value.bit_length() - modulus.bit_length())
    return value


@pytest.mark.sampled(3)
@pytest.mark.parametrize("source", [*LFSRS, *PLATEAUS, *NAIVES[::4], RepeatedPlateau(3)], ids=str)
def test_seeds_of_array_are_distinct_and_far_apart(source):
    count = min(64, source.period)
    seeds = source.seeds(count)
    assert len(set(seeds)) == count
    apart = source.period // count
    assert [source.jump(seed, apart) for seed in seeds[:-1]] == seeds[1:]
    # For a short distance, a jump equals single steps.
    bits = min(source.width, 62)
    low = (1 << bits) - 1
    after = source.jump(seeds[-1], 100)
    shown = after ^ -(after >> source.register) if source.inverting else after
    assert int(words(source, 101, seeds[-1], bits=bits)[100]) == shown >> source.register - source.width & low
    assert source.jump(seeds[0], source.period) == seeds[0]


def test_twin_of_many_units_matches_one_by_one():
    for source in (Lfsr(16), Plateau(3), Lfsr(64)):
        seeds = source.seeds(7)
        many = words(source, 1000, seeds, bits=3)
        assert many.shape == (7, 1000)
        for row, seed in zip(many, seeds, strict=True):
            assert torch.equal(row, words(source, 1000, seed, bits=3))
    assert words("plateau3", 0, 1).tolist() == []


@pytest.mark.parametrize("source", [*LFSRS[::6], LFSRS[-1], *PLATEAUS[::7], NAIVES[1]], ids=str)
def test_seeds_on_tensors_match_source(source):
    first = source.seeds(3)[2]
    for count in (1, 2, 60):
        want = source.seeds(count, first)
        found = golden.random.seeds(source, count, first)
        assert unsigned_of(found) == want
        pairs = golden.random.seeds(source, 2, found.reshape(-1, 1))
        assert pairs.shape == (count, 1, 2)
        assert unsigned_of(pairs) == [seed for one in want for seed in source.seeds(2, one)]
        for steps in (0, 1, source.period - 1, 3 * source.period + 5):
            assert unsigned_of(golden.random.jump(source, found, steps)) == [source.jump(seed, steps) for seed in want]


def unsigned_of(states):
    return [state & (1 << 64) - 1 for state in states.flatten().tolist()]


def test_random_words_match_after_jump():
    for source in (Lfsr(16), Plateau(3), Plateau(10), RepeatedPlateau(3), Naive(10), Lfsr(64)):
        seeds = golden.random.seeds(source, 12, 3).reshape(3, 4)
        whole = words(source, 100, seeds)
        assert whole.shape == (3, 4, 100)
        assert torch.equal(whole[..., 37:], words(source, 63, golden.random.jump(source, seeds, 37)))
        assert torch.equal(
            whole, words(source, 100, [[seed & (1 << 64) - 1 for seed in row] for row in seeds.tolist()])
        )
        stream = Stream(source, 1)
        aligned = of_stream(stream, 100, 16, seeds)
        for row in range(3):
            for column, seed in enumerate(unsigned_of(seeds[row])):
                assert torch.equal(aligned[row, column], of_stream(Stream(source, seed), 100, 16))


@pytest.mark.parametrize(
    ("make", "error", "keyword"),
    [
        (lambda: Lfsr(1), ValueError, "width 1 "),
        (lambda: Plateau(17), ValueError, "width 17"),
        (lambda: Lfsr(3.0), TypeError, "width"),
        (
            lambda: parse_source("noise"),
            ValueError,
            "noise",
        ),
        (lambda: parse_source(3), TypeError, "source"),
        (lambda: words("lfsr8", 4, 0), ValueError, "seed"),
        (lambda: words("plateau3", 4, 8), ValueError, "seed"),
        (lambda: words("plateau3", 4, 16), ValueError, "state"),
        (lambda: words("lfsr8", -1), ValueError, "steps"),
        (lambda: words("lfsr8", 4, bits=9), ValueError, "lfsr8"),
        (lambda: words("lfsr8", 4, torch.tensor([1, 0])), ValueError, "seed"),
        (lambda: words("plateau3", 4, torch.tensor([[9, 8]])), ValueError, "seed"),
        (
            lambda: words("lfsr8", 4, torch.tensor([256])),
            ValueError,
            "seeds",
        ),
        (lambda: words("lfsr8", 4, torch.tensor([1.0])), TypeError, "integer"),
        (lambda: words("lfsr8", 4, "1"), TypeError, "seed"),
        (lambda: golden.random.seeds("lfsr8", 0), ValueError, "array"),
        (lambda: golden.random.jump("lfsr8", 0, 3), ValueError, "seed"),
        (lambda: Lfsr(8).seeds(0), ValueError, "array"),
    ],
)
def test_random_rejects_bad_arguments(make, error, keyword):
    with pytest.raises(error) as caught:
        make()
    assert keyword in str(caught.value)


def test_period_check_detects_wrong_tap(monkeypatch):
    monkeypatch.setitem(TAPS, 8, (8, 4))
    modulus = 1 | sum(1 << tap for tap in TAPS[8])
    assert power_of_x(255, modulus) != 1 or any(power_of_x(255 // prime, modulus) == 1 for prime in factorint(255))
    assert torch.nonzero(words("lfsr8", 256, 1) == 1).flatten().tolist() != [0, 255]


def rounded(unit, columns, count):
    """Return the results of a unit with a source from reset on."""
    with CompiledModel.of_unit(unit) as loop:
        loop.reset()
        return loop.run({name: np.asarray(column, dtype=np.uint64) for name, column in columns.items()}, count)


@pytest.mark.slow
@pytest.mark.parametrize("sharing", ["own", "rotated"])
def test_plateau_rounds_up_with_expected_frequency(sharing):
    """In every lane, k eighths round up for 2 k - 1 of the 14 words of plateau3, and an integer never rounds up."""
    lanes, period = 6, Plateau(3).period
    unit = Sru(a="fxp4.3", o="int4", rounding="sr3", random="plateau3", lanes=lanes, sharing=sharing, seed=3)
    for eighths in range(8):
        for integer in (0, 3, -2):
            code = (integer * 8 + eighths) & 0x7F
            found = rounded(unit, {f"a{lane}": [code] for lane in range(lanes)}, 2 * period)
            for lane in range(lanes):
                ups = (found[f"o{lane}"] == ((integer + 1) & 0xF)).sum()
                downs = (found[f"o{lane}"] == (integer & 0xF)).sum()
                assert (ups, downs) == (2 * max(2 * eighths - 1, 0), 2 * (period - max(2 * eighths - 1, 0)))


@pytest.mark.slow
@pytest.mark.sampled(4)
@pytest.mark.parametrize("text", ["sr8@plateau3-rep", "sr6@plateau3-rep", "sr4@naive3", "sr3@plateau3"])
def test_units_round_up_with_known_chance_for_all_fractions(text):
    """In hardware, each of 256 discarded parts is rounded with a whole period of words."""
    unit = component(f"sru fxp2.8>fxp2.0-wrap.{text} increment=no")
    source, bits = unit.spec.random, unit.spec.rounding.bits
    codes = np.repeat(np.arange(256), source.period)
    ups = rounded(unit, {"a0": codes | 0x100}, len(codes))["up0"].reshape(256, source.period).sum(1)
    stream = Stream(source, 1)
    chances = [stream.chance_of_up(Fraction(part, 256), bits) for part in range(256)]
    assert ups.tolist() == [chance * source.period for chance in chances]
    # The mean of a part is 255/512. Words above zeros lose the parts below their last place, less those below 1/256.
    lost = {"sr8@plateau3-rep": 0, "sr6@plateau3-rep": 3, "sr3@plateau3": 31}
    mean = Fraction(255 - lost[text], 512) if text in lost else Fraction(7, 15)
    assert sum(chances) / 256 == mean


def test_shared_source_gives_lanes_different_words():
    for source, lanes in ((Plateau(3), 6), (RepeatedPlateau(3), 6), (Naive(3), 4), (Lfsr(16), 16)):
        streams = make_lanes(source, lanes, 1, "rotated")
        columns = torch.stack([of_stream(stream, source.period, min(source.full_bits, 8)) for stream in streams])
        assert len({tuple(row.tolist()) for row in columns}) == lanes
        # Each word has the same frequency as in the source.
        counts = [torch.bincount(row, minlength=1 << min(source.full_bits, 8)).tolist() for row in columns]
        assert all(count == counts[0] for count in counts)


@pytest.mark.slow
@pytest.mark.sampled(4, 4)
@pytest.mark.parametrize(
    ("rounding", "source", "stochastic"),
    [
        ("sr10", "lfsr16", "lazy"),
        ("sr3", "plateau3", "lazy"),
        ("sr10", "plateau3-rep", "lazy"),
        ("sr10", "naive4", "lazy"),
        ("sr10", "plateau10", "lazy"),
        ("sr10", "lfsr16", "eager"),
    ],
)
def test_mac_long_sums_match_golden(rounding, source, stochastic):
    steps = 10_000
    rng = np.random.default_rng(7)
    unit = Mac(
        a="e5m2", b="e5m2", acc="e6m5", rounding=rounding, random=source, seed=5, build=Build(stochastic=stochastic)
    )
    # Moderate operands, so that the sum varies and every step rounds.
    a, b = (rng.integers(0x30, 0x44, steps) | (rng.integers(0, 2, steps) << 7) for _ in range(2))
    zeros = np.zeros(steps)
    found = rounded(unit, {"a": a, "b": b, "c": zeros, "load": zeros, "clear": zeros}, steps)["o"]
    column = of_stream(unit.sources["random"], steps, unit.rounding.bits)
    codes = [torch.from_numpy(codes.astype(np.int64)) for codes in (a, b, zeros, zeros, zeros)]
    want = golden.mac_sequence(*codes, a="e5m2", b="e5m2", acc="e6m5", rounding=rounding, random=column)
    assert np.array_equal(found.astype(np.int64), want.numpy())
    assert len(set(found.tolist())) > 100


@pytest.mark.parametrize(("bits", "source"), [(3, Plateau(3)), (8, Plateau(8)), (8, Lfsr(24)), (10, Lfsr(16))])
def test_stochastic_rounding_bias_matches_dropped_bits(bits, source):
    """The expected frequency depends on t = floor(2^N f); bits below the N-th have no effect."""
    count, seed = 100_000, 11
    rng = np.random.default_rng(3)
    codes = torch.from_numpy(rng.integers(0, 1 << 16, count))
    column = of_stream(Stream(source, source.jump(1, seed)), count, bits)
    up = golden.convert(codes, a="ufxp0.16", o="ufxp16.0", rounding=f"sr{bits}", random=column)
    kept = codes >> (16 - bits)
    if isinstance(source, Plateau):
        probability = (2.0 * kept - 1).clamp(min=0) / source.period
    else:
        # The words are the low bits of 1 to 2^width - 1, so each is equally frequent, except for zero with one less.
        probability = kept * 2.0 ** (source.width - bits) / source.period
    error = (up - probability).sum().item()
    sigma = (probability * (1 - probability)).sum().sqrt().item()
    assert abs(error) < 3 * sigma
    # The distribution of few words has a bias against the ideal.
    ideal = codes.to(torch.float64) / 2**16
    bias = (probability - ideal).mean().item()
    assert abs((up - ideal).mean().item() - bias) < 3 * sigma / count
