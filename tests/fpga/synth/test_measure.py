"""Costs of components: counting, caching and errors."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from amaranth.hdl import Module as Design
from amaranth.hdl import Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from halfulp.boards.targets import FAMILIES, TARGETS, target_of, used_blocks
from halfulp.fpga.report import explore
from halfulp.fpga.report.resources import check_clock, measure_units, table
from halfulp.fpga.synth import measure as synth
from halfulp.fpga.synth import route
from halfulp.fpga.synth.measure import Cost, Module, measure_modules, module_of
from halfulp.fpga.synth.registered import Registered
from halfulp.fpga.synth.route import frequencies
from halfulp.implementation import Implementation, short
from halfulp.lab.bench.records import DEVICES
from halfulp.tools.errors import CheckError, ToolError
from halfulp.tools.progress import Progress
from halfulp.units.catalogue import CATALOGUE
from halfulp.units.systolic import Chain
from halfulp.units.verilog import emit
from tests.settings import ROOT
from tests.short_form import BLOCK

VU9P, ECP5 = TARGETS["vu9p"], TARGETS["ecp5-85k"]

XOR = "module gate(input a, input b, input clk, output c); {} endmodule\n"


class Counter(wiring.Component):
    """Component that is not a unit of the library."""

    en: In(1)
    count: Out(8)

    def elaborate(self, platform):
        m = Design()
        state = Signal(8, reset_less=True)
        with m.If(self.en):
            m.d.sync += state.eq(state + 1)
        m.d.comb += self.count.eq(state)
        return m


@pytest.fixture
def build(tmp_path, monkeypatch):
    """Return an empty build folder."""
    monkeypatch.setenv("HALFULP_BUILD", str(tmp_path / "build"))
    return tmp_path / "build"


@pytest.fixture
def compiled(build):
    """Link the compiled nextpnr of other tests to that folder."""
    found = ROOT / "build" / "nextpnr"
    found.mkdir(parents=True, exist_ok=True)
    build.mkdir()
    (build / "nextpnr").symlink_to(found)


def broken(monkeypatch):
    """Hide Yosys."""
    for room in (synth, route):
        monkeypatch.setattr(room, "python", lambda module, folder: ["/nowhere/yosys"])


def test_cost_counts_xilinx_cells():
    cells = {"LUT1": 1, "LUT6": 4, "LUT6_2": 9, "FDRE": 2, "FDCE": 1, "CARRY4": 3, "CARRY8": 1, "MUXF7": 2, "MUXF8": 1}
    cells |= {"DSP48E2": 1, "RAMB18E2": 3, "URAM288": 1, "SRL16E": 3, "RAM32M": 1, "INV": 7}
    assert Cost.of(cells, 5) == Cost(
        lut=5, luts=(1, 0, 0, 0, 0, 4), ff=3, carry=3, mux=3, dsp=1, bram=2, uram=1, memory=4, path=5
    )


def test_cost_counts_ecp5_cells():
    cells = {"LUT4": 3, "LUT6": 1, "TRELLIS_FF": 2, "CCU2C": 5, "PFUMX": 4, "L6MUX21": 1, "MULT18X18D": 1, "DP16KD": 2}
    cells |= {"TRELLIS_DPR16X4": 3, "FDRE": 9, "$scopeinfo": 4}
    assert Cost.of(cells, 7, FAMILIES["ecp5"]) == Cost(
        lut=3, luts=(0, 0, 0, 3, 0, 0), ff=2, carry=5, mux=5, dsp=1, bram=2, uram=0, memory=3, path=7
    )
    assert Cost.of({"CARRY4": 3}, 1, FAMILIES["xc7"]).carry == 3
    assert Cost.of({"CARRY4": 3}, 1, FAMILIES["xcup"]).carry == 2


def test_cost_gives_shares_of_device():
    half = 83_640 // 2
    cost = Cost(
        lut=half, luts=(0, 0, 0, half, 0, 0), ff=8_364, carry=0, mux=9, dsp=39, bram=52, uram=0, memory=0, path=1
    )
    assert cost.shares(ECP5) == {"LUT": 0.5, "FF": 0.1, "carry": 0, "DSP": 0.25, "BRAM": 0.25, "URAM": 0}
    # The adder of a carry chain uses the two tables next to it.
    assert replace(cost, carry=8_364).shares(ECP5)["LUT"] == pytest.approx(0.7)
    assert replace(cost, carry=8_364).shares(VU9P)["LUT"] == cost.lut / VU9P.lut


def test_targets_are_distinct():
    assert len({target.name for target in TARGETS.values()}) == len(TARGETS) == 10
    # Vendors publish numbers of slices with 4 tables (DS180) and CLBs with 8.
    assert (TARGETS["artix100t"].carry, TARGETS["u250"].carry) == (15_850, 216_000)
    with pytest.raises(ValueError) as caught:
        target_of("vu13p")
    names = f"{', '.join(TARGETS)}, or {', '.join(FAMILIES)} for the first device of a family"
    assert str(caught.value) == f"unknown target 'vu13p'; the targets are {names}"
    assert target_of("xc7").family.name == "xc7"


FORMATS = {"sru": "fxp2.1", "requantize": "int2", "fpu": "e2m1"} | dict.fromkeys(
    ("blockdequantize", "blockdot", "blockmac"), BLOCK
)
OWN = {
    "mac": {"acc": "e3m2fn"},
    "accumulate": {"acc": "e3m2fn"},
    "dot": {"k": 2},
    "mma": {"k": 2, "to": "e3m2"},
    "sparsedot": {"k": 2},
    "blockquantize": {"to": BLOCK},
    "blockdequantize": {"to": "e3m2fn"},
    "blockdot": {"to": "e3m2fn"},
    "blockmac": {"acc": "e3m2fn"},
    "sparsemac": {"acc": "e3m2fn"},
    "dotmac": {"acc": "e3m2fn", "k": 2},
    "sru": {"to": "fxp1.0"},
    "requantize": {"multiplier": "fxp1.1", "shift": "uint2", "to": "int2"},
    "convert": {"to": "e2m0fn"},
}
REQUESTS = [short(unit, FORMATS.get(unit, "e2m1fn"), **OWN.get(unit, {})) for unit in CATALOGUE]
STATE = {"mac": 6, "accumulate": 6, "quire": 42, "partmac": 8, "blockmac": 6, "sparsemac": 6, "dotmac": 6}
"""Flip-flops of stateful units: 6 of each e3m2fn sum; 42 of a quire with 10 bits, 31 guard bits, its NaN; 8 of e2m5."""


def measure(component, target, **options):
    (cost,) = measure_modules([Module.of(component, **options)], target)
    return cost


class Together(wiring.Component):
    """Units side by side."""

    def __init__(self, units):
        self.units = units
        super().__init__({f"{unit}_{port}": way for unit, port, way in self.ports()})

    def ports(self):
        return [(name, port, way) for name, unit in self.units.items() for port, way in unit.signature.members.items()]

    def elaborate(self, platform):
        m = Design()
        for name, unit in self.units.items():
            m.submodules[name] = unit
        for name, port, way in self.ports():
            inner, outer = getattr(self.units[name], port), getattr(self, f"{name}_{port}")
            to, of = (inner, outer) if way.flow == In else (outer, inner)
            m.d.comb += Value.cast(to).eq(Value.cast(of))
        return m


@pytest.mark.slow
@pytest.mark.sampled(3, 3)
@pytest.mark.parametrize("target", DEVICES[::-1], ids=lambda target: target.name)
def test_catalogue_units_synthesise_for_every_family(target, build):
    """All units in one run, because loading a family's library takes longer than mapping them."""
    units = dict(zip(CATALOGUE, (request.component() for request in REQUESTS), strict=True))
    cost = measure(Together(units), target, name="together")
    assert cost.ff == sum(STATE.values())
    assert (cost.dsp, cost.bram, cost.memory, cost.fmax) == (0, 0, 0, None)
    assert 300 < cost.lut < 3000
    # A carry chain with a bit per table: the 42 bits of a quire, and more to round them.
    assert 42 < cost.carry * target.family.luts_per_carry < 1600
    assert 10 < cost.path < 60
    assert max(cost.shares(target).values()) < 0.05


@pytest.mark.slow
def test_multiplier_maps_to_luts_or_dsp(build):
    """A product of nine by nine bits fits a block of any family."""
    module = Module("module gate(input [8:0] a, b, output [17:0] o); assign o = a * b; endmodule\n", "gate")
    (tables,) = measure_modules([module], VU9P)
    assert tables.dsp == 0
    assert tables.lut > 50
    for target in DEVICES:
        (block,) = measure_modules([replace(module, dsp=True)], target)
        assert (block.dsp, block.lut, block.carry) == (1, 0, 0)
    assert len(list((build / "cache" / "synth").iterdir())) == 1 + len(DEVICES)


@pytest.mark.slow
@pytest.mark.parametrize(("unit", "fmt"), [("mul", "fp16"), ("mac", "int8"), ("dot", "int8")])
def test_unit_products_map_to_luts_or_dsp(unit, fmt):
    tables, blocks = (short(unit, fmt, dsp=dsp, k=2 if unit == "dot" else None) for dsp in (False, True))
    without, cost = measure_units([tables, blocks], VU9P).values()
    assert (without.dsp, cost.dsp) == (0, 2 if unit == "dot" else 1)
    assert cost.lut < without.lut


@pytest.mark.slow
def test_route_places_unit_once(build, monkeypatch, compiled):
    request = short("mul", "e2m1fn")
    registered = module_of(request, registered=True)
    (between,) = measure_modules([registered], ECP5)
    (alone,) = measure_modules([module_of(request)], ECP5)
    # Two operands and a result of 4 bits.
    assert (between.ff, alone.ff) == (12, 0)
    ((name, cost),) = measure_units([request], ECP5, route=True).items()
    assert name == "mul e2m1fn*e2m1fn.rn"
    assert replace(cost, fmax=None) == alone
    assert 50 < cost.fmax < 500
    broken(monkeypatch)
    assert measure_units([request], ECP5, route=True) == {name: cost}
    with pytest.raises(ToolError, match="Place and route of mul_e2m1fn_e2m1fn_e2m1fn_rn_registered could not be start"):
        frequencies([replace(registered, dsp=True)], ECP5)


def test_explore_compares_numbers_of_stages(monkeypatch):
    cost = Cost(lut=50, luts=(), ff=0, carry=4, mux=0, dsp=0, bram=0, uram=0, memory=0, path=3, fmax=100.0)
    costs = [cost, replace(cost, ff=9, fmax=90.0), replace(cost, ff=20, fmax=200.0)]
    monkeypatch.setattr(explore, "measure_units", lambda units, *rest, **more: dict(zip(units, costs, strict=True)))
    report = explore.explore(short("mac", "e5m2"), range(3), ECP5, "halfulp synth")
    frame = report.tables["explore"].frame
    assert frame["latency"].tolist() == [1, 2, 3]
    # One stage costs a cycle and is not faster.
    assert frame["Pareto"].tolist() == ["yes", "no", "yes"]
    assert report.plots["explore"]() is not None


def test_registered_wrapper_delays_two_cycles():
    unit = Registered(short("mac", "e2m1fn", acc="e3m2fn").component())
    # Two cycles more than the accumulator, one on either side.
    values = [2, 3, 4, 5, 6]
    seen = []

    async def drive(context):
        for value in [*values, 0, 0, 0]:
            for port, code in (("a", 2), ("b", value), ("load", 1), ("c", 0)):
                if hasattr(unit, port):
                    context.set(Value.cast(getattr(unit, port)), code)
            await context.tick()
            seen.append(context.get(Value.cast(unit.o)))

    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(drive)
    simulator.run()
    # Multiplied by one: 1, 1.5, 2, 3 and 4 as e3m2fn.
    assert seen[2:7] == [0x0C, 0x0E, 0x10, 0x12, 0x14]


@pytest.mark.parametrize(("reached", "code"), [(150.0, 0), (146.7, 1)])
def test_synth_that_misses_its_clock_ends_with_one(halfulp, monkeypatch, reached, code):
    cost = replace(Cost.of({"LUT4": 3}, 2, ECP5.family), fmax=reached)
    monkeypatch.setattr(
        "halfulp.fpga.report.resources.measure_units", lambda units, *_, **__: dict.fromkeys(map(str, units), cost)
    )
    words = ("synth", "mul", "e2m1fn", "--target", "ecp5-85k", "--route", "--pipeline", 1)
    found, out, err = halfulp(*words, "--clock", 150)
    assert (found, "Cost on ecp5-85k" in out) == (code, True)
    sentence = "the requested clock of 150 MHz is missed after place and route: 'mul e2m1fn*e2m1fn.rn' --pipeline 1 "
    assert (sentence + "reaches 146.70 MHz; give more stages by --pipeline, " in err) == (code == 1)
    assert err.count("\n") == (code == 1)
    assert halfulp(*words)[0] == 0


@pytest.mark.parametrize(
    ("target", "limit", "source"),
    [("vu9p", 775, "DS923"), ("artix100t", 464, "DS181"), ("ecp5-85k", 257, "FPGA-DS-02012")],
)
def test_clocks_are_limited_by_the_device(halfulp, target, limit, source):
    code, _, err = halfulp("synth", "mul", "e2m1fn", "--target", target, "--clock", limit + 1)
    assert code == 2
    assert f"a clock of {limit + 1} MHz is out of range; the clock network of {target} supports 1 to {limit} MHz" in err
    assert source in err
    unit = Implementation.parse("convert e2m1fn>e2m1fn", clock=limit - 20, target=TARGETS[target].family.name)
    assert unit.component().model_mhz > limit
    found = table([unit], {str(unit): Cost.of({}, 0)}, TARGETS[target])
    assert found.frame["model MHz"].tolist() == [limit]
    assert f"at most the maximum of the device, {limit} MHz of the clock network." in found.notes[-1]


@pytest.mark.parametrize(
    ("target", "cells", "limit", "part"),
    [
        ("vu9p", {"DSP48E2": 1, "RAMB36E2": 1}, 738, "block RAM"),
        ("vu9p", {"RAMB36E2": 1, "URAM288": 1}, 600, "UltraRAM"),
        ("artix100t", {"RAMB18E1": 2}, 388, "block RAM"),
        ("ecp5-85k", {"MULT18X18D": 1}, 225, "DSP block"),
        ("ecp5-85k", {"DP16KD": 1}, 257, "clock network"),
    ],
)
def test_blocks_limit_the_clock(target, cells, limit, part):
    device = TARGETS[target]
    unit = Implementation.parse("convert e2m1fn>e2m1fn", clock=device.max_mhz - 20, target=device.family.name)
    cost = Cost.of(cells, 0, device.family)
    found = table([unit], {str(unit): cost}, device)
    assert found.frame["model MHz"].tolist() == [limit]
    assert f"at most the maximum of the device, {limit} MHz of the {part}." in found.notes[-1]
    device.check_clock(limit, used_blocks(cost))
    with pytest.raises(ValueError, match=f"the {part} of {target} supports 1 to {limit} MHz"):
        device.check_clock(limit + 1, used_blocks(cost))
    with pytest.raises(CheckError, match=f"reaches {limit}.00 MHz"):
        check_clock({"unit": replace(cost, fmax=limit + 9.0)}, limit + 1, device)


def test_measured_clocks_above_that_of_the_clock_network_are_noted():
    unit = Implementation.parse("convert e2m1fn>e2m1fn")
    for mhz in (257.0, 257.1):
        notes = table([unit], {str(unit): replace(Cost.of({}, 0), fmax=mhz)}, TARGETS["ecp5-85k"]).notes
        assert any("Clocks above 257 MHz are those of logic alone" in note for note in notes) == (mhz > 257)


def test_route_rejects_targets_without_open_tools():
    with pytest.raises(ValueError, match="ecp5-85k"):
        measure_units([], VU9P, route=True)


@pytest.mark.slow
def test_component_is_measured_once(build, monkeypatch):
    cost = measure(Counter(), VU9P, name="counter")
    # An eighth of a carry chain is a CARRY8; the inverter of the lowest bit is not counted as a table.
    assert (cost.ff, cost.carry, cost.dsp, cost.bram) == (8, 1, 0, 0)
    assert cost.path > 1
    broken(monkeypatch)
    assert measure(Counter(), VU9P, name="counter") == cost
    # Other Verilog or other constant inputs are a different component.
    with pytest.raises(ToolError, match="Yosys on other could not be started"):
        measure(Counter(), VU9P, name="other")
    with pytest.raises(ToolError, match="could not be started"):
        measure(Counter(), VU9P, name="counter", tied={"en": 1})


@pytest.mark.slow
def test_tied_input_costs_nothing(build):
    gate = XOR.format("reg q; always @(posedge clk) q <= a & b; assign c = q ^ b;")
    (free,) = measure_modules([Module(gate, "gate")], VU9P)
    (tied,) = measure_modules([Module(gate, "gate", {"b": 0})], VU9P)
    assert (free.lut, free.ff) == (2, 1)
    assert tied.lut == 0


@pytest.mark.slow
def test_module_of_array_keeps_modules_with_several_instances():
    made = Chain(mac="e5m2*e5m2+e6m5.sr10@lfsr16", n=2, m=1)
    assert (emit(made).count(" #(."), emit(made).count(" #(parameter ")) == (3, 2)
    module = Module.of_array(made)
    assert [name.rpartition(".")[2].partition("_")[0] for name in module.keep] == ["element"]
    # Elements have default values of their parameters; the source in each element keeps its own.
    assert (module.verilog.count(" #(."), module.verilog.count(" #(parameter ")) == (1, 2)


@pytest.mark.sampled(3, 3)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("mac", "n"), [("e5m2*e5m2+e6m5.sr10@lfsr16", 1), ("e5m2*e5m2+e6m5.sr10@lfsr16", 4), ("e2m1fn*e2m1fn+e4m3.rn", 1)]
)
def test_array_has_as_many_tables_by_modules_as_flat(build, mac, n):
    """The sum over all instances of the modules of an array is within three percent."""
    made = Chain(mac=mac, n=n, m=n)
    flat, modules = measure_modules([Module.of(made), Module.of_array(made)], VU9P)
    assert modules.lut == pytest.approx(flat.lut, rel=0.03)
    assert (modules.memory, modules.carry) == (flat.memory, flat.carry)


@pytest.mark.slow
def test_path_ends_at_kept_modules(build):
    """A chain of registers in kept modules has the path of one of them."""
    step = "module \\a.step (input clk, i, output reg o); always @(posedge clk) o <= ~i; endmodule\n"
    steps = "".join(f"\\a.step s{n} (.clk(clk), .i(w[{n}]), .o(w[{n + 1}]));" for n in range(8))
    chain = f"module chain(input clk, i, output o); wire [8:0] w; assign w[0] = i; {steps} assign o = w[8]; endmodule\n"
    flat, kept = measure_modules([Module(step + chain, "chain", keep=keep) for keep in ((), ("\\a.step",))], VU9P)
    assert (flat.ff, kept.ff, flat.path, kept.path) == (8, 8, 1, 1)


@pytest.mark.slow
def test_progress_reports_modules_as_they_finish(build, monkeypatch):
    done = []

    class Recorded(Progress):
        def advance(self, count):
            done.append(len(list(build.glob("cache/synth/*/value.json"))))

    modules = [Module(XOR.format(f"assign c = a {sign} b;"), "gate") for sign in "&|&"]
    costs = measure_modules(iter(modules), VU9P, Recorded())
    assert [cost.lut for cost in costs] == [1, 1, 1]
    assert (len(done), done[-1]) == (3, 2)
    assert [path for path in build.rglob("*") if path.parent.name == "runs"] == []


def test_cached_module_is_not_elaborated(build, monkeypatch):
    request = short("sru", "fxp4.3", to="int4-wrap", random="plateau3", increment=False)
    module = module_of(request, tied={"en": 1})
    assert f"module {module.top}(" in module.verilog

    def refuse(component, name=None, **options):
        raise AssertionError("the Verilog was there")

    monkeypatch.setattr(synth, "verilog", refuse)
    assert module_of(request, tied={"en": 1}) == module
    with pytest.raises(AssertionError):
        module_of(short("sru", "fxp4.3", to="int4-wrap", random="plateau2", increment=False))


@pytest.mark.parametrize(
    ("module", "sentence"),
    [
        (Module("module gate(input a;\nendmodule\n", "gate"), "design.v:1: ERROR: syntax error, unexpected ';'"),
        (Module(XOR.format("assign c = a;"), "door"), "ERROR: Module `door' not found!"),
        (Module(XOR.format("assign c = a;"), "gate", {"d": 1}), "ERROR: Failed to parse set lhs expression"),
    ],
)
def test_yosys_error_raises_tool_error(build, module, sentence):
    with pytest.raises(ToolError) as caught:
        measure_modules([module], VU9P)
    assert str(caught.value).startswith(f"Yosys on {module.top} failed with exit code 1: {sentence}")
    assert [path for path in build.rglob("*") if path.is_file()] == []


@pytest.mark.slow
def test_yosys_load_failure_exits_3(build):
    (build.parent / "pyosys").mkdir()
    (build.parent / "pyosys" / "__init__.py").write_text("import no_such_library\n")
    path = os.pathsep.join([str(build.parent), *filter(None, sys.path)])
    answer = subprocess.run(
        [sys.executable, "-m", "halfulp", "report", "sru"],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert (answer.returncode, answer.stdout) == (3, "")
    assert answer.stderr.startswith("halfulp: Yosys on sru_")
    assert answer.stderr.endswith("exit code 1: ModuleNotFoundError: No module named 'no_such_library'\n")


def test_ctrl_c_ends_yosys(build):
    process = subprocess.Popen([sys.executable, "-m", "halfulp", "report", "sru"], stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 60
        # The log exists before the process that writes it.
        while not at_work_in(build):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=30)[1] == "halfulp: stopped\n"
        assert process.returncode == 130
    finally:
        process.kill()
        process.wait()
    assert not at_work_in(build)
    assert list((build / "runs").iterdir()) == []
    assert all(json.loads(path.read_text()) for path in build.glob("cache/synth/*/value.json"))


def at_work_in(folder: Path) -> list[Path]:
    """Return the working folders of processes below a folder."""
    found = []
    for link in Path("/proc").glob("[0-9]*/cwd"):
        with contextlib.suppress(OSError):
            if folder in link.readlink().parents:
                found.append(link.readlink())
    return found
