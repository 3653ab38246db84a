"""RTL against the golden model: every operand, rounding mode and random word of small formats.

Wide posits have fifty thousand directed and random vectors. By default the tests take some of the formats, with three
rounding modes each in turn. HALFULP_EXHAUSTIVE=1 takes all, in most of an hour.
"""

import numpy as np
import pytest
import torch
from amaranth.hdl import Shape, Value, unsigned

from halfulp import golden
from halfulp.hdl.formats import Float, parse
from halfulp.hdl.formats.floating import SPECIALS
from halfulp.hdl.formats.rounding import MODES as ROUNDING_MODES
from halfulp.hdl.specs import Build, UnitSpec
from halfulp.hdl.specs.build import MAX_ITERATIONS
from halfulp.sim.model import CompiledModel
from halfulp.sim.ports import Ports
from halfulp.sim.vectors import sampled
from halfulp.units import Unit
from tests.settings import EXHAUSTIVE
from tests.short_form import build

MODES = (*ROUNDING_MODES, "sr3")

FORMATS = ("e5m2", "e4m3", "e4m3fn", "e4m3fnuz", "binary8p4", "e3m4", "e3m2fn", "e2m3fn", "e2m1fn", "e5m2-ftz")

FAMILIES = (
    *("posit8", "posit8e0", "posit8e1", "posit6e1", "posit5", "posit4e1", "posit3e0"),
    *("fxp4.4", "ufxp0.8", "int8", "fxp1.7-wrap", "fxp-2.10", "ufxp10.-3-wrap", "int1", "uint3"),
)
"""Posits and fixed-point formats."""

TOYS = [
    Float(exp, man, specials=specials, subnormals=subnormals)
    for exp, man in ((2, 1), (2, 2), (3, 1), (3, 0))
    for specials in SPECIALS
    for subnormals in (True, False)
    if not (man == 0 and specials == "ieee")
]
"""Formats of 4 and 5 bits."""

TOY_FAMILIES = ("posit5e0", "posit5e1", "posit5", "posit4", "posit3", "fxp2.3", "ufxp2.2", "fxp3.1-wrap", "uint4-wrap")


class Bundle(Unit):
    """Units side by side with common operands, so that one model replaces dozens.

    An operand whose width differs between units has the largest width; a unit reads its lowest bits.
    """

    steps = MAX_ITERATIONS

    def __init__(self, units):
        self.units = units
        widest = max(units.values(), key=lambda unit: len(unit.inputs))
        self.stateful = widest.stateful
        inputs = {}
        for unit in units.values():
            for name, shape in unit.inputs.items():
                inputs[name] = max(inputs.get(name, shape), shape, key=lambda shape: Shape.cast(shape).width)
        super().__init__(
            UnitSpec(),
            inputs=inputs,
            words={},
            outputs={
                f"{label}_{port}": unsigned(len(Value.cast(getattr(unit, port))))
                for label, unit in units.items()
                for port in unit.outputs
            },
            name=f"bundle_{widest.name}",
            build=Build(iterations=widest.build.iterations),
        )

    def _latency_of(self, stages):
        return max(unit.latency for unit in self.units.values())

    def logic(self, m):
        for label, unit in self.units.items():
            m.submodules[label] = unit
            if unit.build.iterations:
                m.d.comb += [unit.valid.eq(self.valid), unit.en.eq(self.en), self.ready.eq(unit.ready)]
            for port in unit.inputs:
                m.d.comb += Value.cast(getattr(unit, port)).eq(Value.cast(getattr(self, port)))
            for port in unit.outputs:
                m.d.comb += Value.cast(getattr(self, f"{label}_{port}")).eq(Value.cast(getattr(unit, port)))


def every_input(ports):
    """Return all combinations of all inputs, a column of codes per input."""
    widths = [port.width for port in ports]
    index = np.arange(1 << sum(widths), dtype=np.uint64)
    lows = np.cumsum([0, *widths[:-1]])
    return {
        port.name: (index >> np.uint64(low)) & np.uint64((1 << port.width) - 1)
        for port, low in zip(ports, lows, strict=True)
    }


def mismatches(name, fmt, targets=(None,), modes=MODES, columns_of=every_input, **options):
    """Return the number of checks, and the failed ones as texts."""
    units = {
        f"to{index}_{mode}": build(name, fmt, rounding=mode, to=target, **options)
        for index, target in enumerate(targets)
        for mode in modes
    }
    bundle = Bundle(units)
    known = {port.name: port for unit in units.values() for port in unit.spec.ports}
    inputs = Ports(tuple(known[name] for name in bundle.inputs))
    columns = columns_of(inputs)
    count = len(columns["a"])
    # The first inputs have random word 0; a unit without random words needs only these.
    words = columns.get("random") if columns_of is every_input else None
    plain = count if words is None else int((words == 0).sum())
    assert words is None or not words[:plain].any()
    with CompiledModel.of_unit(bundle) as loop:
        found = loop.run(columns, count)
    function = getattr(golden, name)
    codes = {port: torch.from_numpy(column.astype(np.int64)) for port, column in columns.items()}
    operands = [codes[port] for port in inputs.names if port != "random"]
    failed, checks = [], 0
    for label, unit in units.items():
        random = codes["random"] if "random" in unit.inputs else None
        taken = count if random is not None else plain
        expected = function(*(operand[:taken] for operand in operands), **unit.parameters, random=random)
        results = expected._asdict() if hasattr(expected, "_asdict") else {"o": expected}
        for port, column in results.items():
            got = torch.from_numpy(found[f"{label}_{port}"].astype(np.int64))[:taken]
            checks += taken
            wrong = torch.nonzero(got != column.to(torch.int64)).flatten()
            failed += [
                f"{unit.name} {port}: { ({p: hex(int(codes[p][i])) for p in inputs.names}) } expected "
                f"{int(column[i]):#x}, got {int(got[i]):#x}"
                for i in wrong[:3].tolist()
            ]
    return checks, failed


def some_of(modes, turn):
    """Return all modes with HALFULP_EXHAUSTIVE=1, and otherwise nearest and two others in turn."""
    if EXHAUSTIVE:
        return modes
    first = 1 + 2 * (turn % (len(modes) // 2))
    return (modes[0], *modes[first : first + 2])


def every(step, cases):
    """Return all cases with HALFULP_EXHAUSTIVE=1, and otherwise a part of them."""
    return [case for index, case in enumerate(cases) if EXHAUSTIVE or index % step == 0]


TWO_OPERANDS = [
    *((name, fmt) for fmt in every(2, [*FORMATS, *FAMILIES]) for name in ("mul", "add")),
    *(("compare", fmt) for fmt in every(4, [*FORMATS, *FAMILIES])),
]


@pytest.mark.sampled(40, 5)
@pytest.mark.parametrize(("turn", "name", "fmt"), [(turn, *case) for turn, case in enumerate(TWO_OPERANDS)])
def test_two_operand_units_match_golden(turn, name, fmt):
    modes = some_of(MODES, turn)
    checks, failed = mismatches(name, fmt, modes=modes)
    assert not failed
    assert checks >= len(modes) * 4 ** parse(fmt).width


@pytest.mark.slow
def test_sums_of_far_exponents_match_golden():
    """Exponents differ by more than eight times the width of the sum, so the last step of the shift clears numbers."""
    checks, failed = mismatches("add", "e6m2", modes=("rn", "ru", "ro"))
    assert not failed
    assert checks >= 3 * 2**18


@pytest.mark.slow
@pytest.mark.sampled(8)
@pytest.mark.parametrize("fmt", every(4, [*FORMATS, *FAMILIES]))
def test_convert_matches_golden(fmt):
    """Every format converts to all formats of its family and some of the others."""
    others = ("posit8", "posit6e1", "fxp4.4", "fxp1.7-wrap") if fmt in FORMATS else ("e5m2", "e4m3fn", "e5m2-ftz")
    targets = [*(FORMATS if fmt in FORMATS else FAMILIES), *others]
    modes = some_of(MODES, [*FORMATS, *FAMILIES].index(fmt))
    checks, failed = mismatches("convert", fmt, targets, modes)
    assert not failed
    assert checks >= len(targets) * len(modes) * 2 ** parse(fmt).width


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("fmt", ["uint1", "fxp2.1"])
def test_convert_of_short_fixed_to_posit_matches_golden(fmt):
    checks, failed = mismatches("convert", fmt, targets=["posit8e3"])
    assert not failed
    assert checks >= len(MODES) * 2 ** parse(fmt).width


@pytest.mark.sampled(20, 2)
@pytest.mark.parametrize(("turn", "fmt"), list(enumerate(every(3, [*TOYS, *map(parse, TOY_FAMILIES)]))), ids=str)
def test_fma_matches_golden_on_toy_formats(turn, fmt):
    modes = some_of(MODES, turn)
    checks, failed = mismatches("fma", fmt, modes=modes)
    assert not failed
    assert checks >= len(modes) * 8**fmt.width


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("turn", "fmt", "options"),
    [
        (0, "fxp2.2", {}),
        (1, "e2m1fn", {}),
        (2, "posit4", {"b": "fxp2.2", "t": "ufxp0.4", "targets": ["fxp3.2", "e3m2"]}),
        (3, "ufxp2.2", {"b": "e2m1", "targets": ["ufxp3.1-wrap", "posit5"]}),
    ],
)
def test_lerp_matches_golden_on_toy_formats(turn, fmt, options):
    """Both differences of fixed point, of signed and unsigned numbers, and those of several families."""
    checks, failed = mismatches("lerp", fmt, modes=some_of(MODES, turn), **options)
    assert not failed
    assert checks >= 8**4


WIDE_MODES = (*ROUNDING_MODES, "sr10")


WIDE_POSITS = ("posit16", "posit16e1", "posit32")


@pytest.mark.slow
@pytest.mark.sampled(2, 2)
@pytest.mark.parametrize("fmt", every(2, WIDE_POSITS))
@pytest.mark.parametrize(
    ("name", "targets"),
    [
        ("mul", [None]),
        ("add", [None]),
        ("fma", [None]),
        ("compare", [None]),
        ("convert", ["posit8", "posit16", "posit16e1", "posit32", "fp32", "bf16", "fxp16.16"]),
    ],
)
def test_wide_posit_units_match_golden(name, targets, fmt):
    count = 50_000
    o = parse(fmt)

    def directed_and_random(inputs):
        return sampled(inputs, [o, *(parse(target) for target in targets if target)], count, np.random.default_rng(1))

    modes = some_of(WIDE_MODES, WIDE_POSITS.index(fmt))
    checks, failed = mismatches(name, fmt, targets, modes, directed_and_random)
    assert not failed
    assert checks >= count * len(targets) * len(modes)


MIXED = [
    ("mul", "e3m2", {"b": "e2m1fn", "targets": ["e2m3fn"]}),
    ("mul", "e2m3fn", {"b": "e3m2-ftz", "targets": ["e5m2fnuz"]}),
    ("mul", "e3m4", {"targets": ["e3m4", "e3m3", "e4m2fn", "e3m3fnuz"]}),
    ("mul", "e2m4", {"b": "e3m2", "targets": ["e2m4fn", "e2m4fnuz"]}),
    ("mul", "e4m0fn", {"b": "e3m4", "targets": ["e4m0fn", "e3m3"]}),
    ("mul", "e4m3", {"targets": ["e4m3", "e5m2", "e3m3"], "dsp": True}),
    ("add", "e4m3", {"b": "e2m1fn", "targets": ["e3m4"]}),
    ("add", "e3m0fnuz", {"b": "e5m2", "targets": ["e4m0"]}),
    ("add", "e2m4", {"b": "e2m2b-5", "targets": ["bf16"]}),
    ("fma", "e2m1fn", {"b": "e2m1", "c": "e3m1", "targets": ["e3m3"]}),
    ("fma", "e2m1", {"b": "e3m0", "c": "e2m2b6", "targets": ["e2m2-ftz"]}),
    ("compare", "e2m3fn", {"b": "e4m3-ftz", "targets": ["e2m1"]}),
    ("compare", "e5m2fnuz", {"b": "e3m2b9", "targets": ["e5m2"]}),
    ("mul", "fxp4.4", {"targets": ["fxp8.8", "fxp4.4-wrap", "e4m3", "posit8", "ufxp3.2"]}),
    ("mul", "posit6e1", {"b": "e3m2fn", "targets": ["fxp5.3", "posit8", "e5m2", "ufxp4.4-wrap"]}),
    ("mul", "ufxp0.6", {"b": "posit5", "targets": ["fxp2.6-wrap", "posit9e1", "e4m3fn"]}),
    ("add", "int4", {"b": "e4m3", "targets": ["fxp6.2", "fxp4.4-wrap", "posit8", "e5m2"]}),
    ("add", "posit6", {"b": "fxp2.4", "targets": ["posit8e0", "fxp4.3", "ufxp3.3-wrap", "e4m3"]}),
    ("add", "ufxp3.2", {"b": "int4", "targets": ["e3m2", "ufxp2.2", "fxp4.1-wrap", "posit7e1"]}),
    ("fma", "posit4e1", {"b": "fxp2.2", "c": "e2m1fn", "targets": ["fxp4.2", "fxp3.2-wrap", "posit6", "e3m2"]}),
    ("fma", "e3m1", {"b": "e2m1fn", "c": "e2m2", "targets": ["fxp3.2", "ufxp3.3", "fxp4.1-wrap"]}),
    ("fma", "e3m2", {"c": "e2m1", "targets": ["e4m1"]}),
    ("fma", "uint3", {"b": "fxp2.2", "c": "posit5", "targets": ["fxp5.1", "e3m2", "posit6e1"]}),
    ("compare", "posit6e1", {"b": "posit7", "targets": ["posit5e1"]}),
    ("compare", "posit6", {"b": "fxp3.4", "targets": ["e4m3"]}),
    ("compare", "e3m2", {"b": "ufxp3.3", "targets": ["fxp4.2"]}),
    ("mul", "e3m2", {"b": "e2m3", "targets": ["e3m3", "e2m2-ftz", "posit6"], "dsp": True}),
    ("mul", "fxp2.3", {"b": "posit5", "targets": ["fxp3.3", "e3m2"], "dsp": True}),
    ("fma", "e2m1", {"b": "e3m1", "c": "e2m1", "dsp": True}),
    ("mul", "fxp1.5-wrap", {"saturate": True}),
    ("mul", "e4m3fn", {"saturate": True}),
    ("add", "e4m3fn", {"saturate": True}),
    ("mul", "e5m2fnuz", {"saturate": True}),
    ("add", "e4m3", {"saturate": True}),
]


@pytest.mark.slow
@pytest.mark.sampled(3, 3)
@pytest.mark.parametrize(
    ("turn", "name", "fmt", "options"), every(2, [(turn, *case) for turn, case in enumerate(MIXED)])
)
def test_mixed_formats_and_saturation_match_golden(turn, name, fmt, options):
    checks, failed = mismatches(name, fmt, modes=some_of(MODES, turn), **options)
    assert not failed
    assert checks > 0


@pytest.mark.slow
def test_fma_rounds_addend_wider_than_result():
    """A product with leading zeros is shifted less than the addend.

    The addend once lost bits that decided the rounding (e3m1, e3m1 and e3m4 to e3m1).
    """
    modes = ("rn", "rd", "ro")
    checks, failed = mismatches("fma", "e3m1", ["e3m1"], modes, c="e3m4")
    assert not failed
    assert checks == len(modes) << 18


@pytest.mark.slow
def test_fma_subtracts_subnormal_from_product():
    """The difference is less than a tie, a number of fp16, or zero, by one last place of the product.

    That place is below the window of the sum.
    """
    found = []
    for places in (13, 14):
        # Products of these significands are one less than a multiple of 2^places.
        for a, b in ((f, pow(-f, -1, 1 << places)) for f in range(1025, 2048, 2)):
            if 1024 <= b < 2048:
                # Each operand has factor 2^-19, for exponent field 6; the last place of subnormal numbers is 2^-24.
                found += [(a + (5 << 10), b + (5 << 10), 0x8000 | taken) for taken in (1, 2, (a * b + 1) >> 14)]
    columns = dict(zip("abc", np.array(found, dtype=np.uint64).T, strict=True))
    modes = ROUNDING_MODES
    checks, failed = mismatches("fma", "fp16", modes=modes, columns_of=lambda ports: columns)
    assert not failed
    assert checks == len(modes) * len(found) > 2000


FAST = [
    ("mul", "e3m4", {"targets": ["e3m4-ftz", "e2m2-ftz", "e5m7", "e5m2fn", "e5m3fnuz"]}),
    ("mul", "e2m4", {"b": "e3m2", "targets": ["e6m3", "e2m1-ftz"]}),
    ("mul", "e3m4-ftz", {"targets": ["e3m4-ftz", "e3m4", "e2m6"]}),
    ("mul", "e4m3", {"targets": ["e6m3", "e4m3-ftz"], "dsp": True}),
    ("mul", "e3m4", {"targets": ["e5m2", "e3m3-ftz"], "saturate": True}),
    ("mul", "e2m7", {}),
    ("add", "e3m2", {"targets": ["e3m2", "e3m3", "e2m2-ftz", "e5m1", "e4m2fn", "e3m2fnuz"]}),
    ("fma", "e2m1", {"targets": ["e2m1", "e3m3", "e2m2-ftz", "e3m0fn"]}),
    ("add", "e2m2", {"b": "e3m1", "targets": ["e2m3", "e4m4", "e3m1-ftz"]}),
    ("fma", "e2m1", {"b": "e3m0fn", "c": "e2m2", "targets": ["e2m2-ftz", "e2m1", "e4m1fnuz"]}),
    ("add", "e5m2", {"targets": ["e5m2", "e4m3fn"]}),
    ("fma", "e3m1", {"c": "e3m2"}),
    ("add", "e3m0fn", {"targets": ["e3m0fn", "e3m1"]}),
    ("fma", "e2m1-ftz", {"c": "e3m1-ftz", "targets": ["e3m1-ftz", "e3m1"]}),
    ("add", "e3m2-ftz", {"targets": ["e3m2-ftz", "e3m3", "e2m2"]}),
    ("fma", "e2m1", {"dsp": True}),
]


@pytest.mark.slow
@pytest.mark.sampled(18, 3)
@pytest.mark.parametrize(("turn", "name", "fmt", "options"), [(turn, *case) for turn, case in enumerate(FAST)])
def test_structures_for_speed_match_golden(turn, name, fmt, options):
    checks, failed = mismatches(name, fmt, modes=some_of(MODES, turn), goal="speed", **options)
    assert not failed
    assert checks > 0


@pytest.mark.slow
@pytest.mark.sampled(4, 4)
@pytest.mark.parametrize(
    ("name", "fmt"), [(name, fmt) for fmt in ("fp16", "bf16", "fp32") for name in ("mul", "add", "fma")]
)
def test_wide_structures_for_speed_match_golden(name, fmt):
    count = 50_000
    o = parse(fmt)

    def directed_and_random(inputs):
        return sampled(inputs, [o], count, np.random.default_rng(1))

    checks, failed = mismatches(name, fmt, modes=WIDE_MODES, columns_of=directed_and_random, goal="speed")
    assert not failed
    assert checks >= count * len(WIDE_MODES)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("stochastic", ["lazy", "eager"])
@pytest.mark.parametrize(
    ("name", "fmt", "targets", "mode", "options"),
    every(
        2,
        [
            ("add", "e2m2", ["e2m2", "e2m3", "e3m2", "e4m4", "e3m2-ftz"], "sr5", {}),
            ("add", "e3m2-ftz", ["e3m2-ftz", "e2m3-ftz", "e4m2"], "sr4", {}),
            ("add", "e3m0fn", ["e3m0fn", "e3m1", "e5m5fn"], "sr8", {"saturate": True}),
            ("add", "e2m1fn", ["e3m2fnuz", "e3m1"], "sr7", {"b": "e3m1"}),
            ("fma", "e2m1", ["e3m3", "e4m5-ftz"], "sr5", {"b": "e2m0fn", "c": "e3m2"}),
            ("fma", "e2m1-ftz", ["e3m3"], "sr4", {"c": "e3m3"}),
            ("add", "e3m2", ["e3m2", "e3m3"], "sr4", {"goal": "speed"}),
            ("fma", "e2m1", ["e3m3"], "sr5", {"b": "e2m0fn", "c": "e3m2", "goal": "speed"}),
            ("add", "e2m2", ["e2m2", "e3m2", "e2m3", "e3m2-ftz", "e3m2fn"], "sr7", {"goal": "speed"}),
            ("add", "e2m2", ["e2m2", "e3m2"], "sr6", {"goal": "speed", "saturate": True}),
        ],
    ),
)
def test_stochastic_structures_match_golden(name, fmt, targets, mode, options, stochastic):
    """Every operand and random word, with the eager structure where it is accepted."""
    taken = []
    for target in targets:
        try:
            build(name, fmt, rounding=mode, to=target, stochastic=stochastic, **options)
            taken.append(target)
        except ValueError:
            assert stochastic == "eager"
    assert taken
    checks, failed = mismatches(name, fmt, taken, (mode,), stochastic=stochastic, **options)
    assert not failed
    assert checks >= 1 << 15


@pytest.mark.slow
def test_exhaustive_comparison_can_fail(monkeypatch):
    """One wrong bit of the golden model in one mode is detected."""
    right = golden.mul

    def wrong(x, y, **parameters):
        codes = right(x, y, **parameters)
        return codes ^ ((x == 0x3C) & (y == 0x3D)).to(codes.dtype) if parameters["rounding"].mode == "sr" else codes

    monkeypatch.setattr(golden, "mul", wrong)
    _, failed = mismatches("mul", "e5m2")
    assert len(failed) == 3
    assert "mul_e5m2_e5m2_e5m2_sr3 o: {'a': '0x3c', 'b': '0x3d', 'random': '0x0'}" in failed[0]
