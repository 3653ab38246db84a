"""What a component costs: what is counted, what is remembered, and what goes wrong."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from amaranth.hdl import Module as Design
from amaranth.hdl import Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from halfulp.fpga import synth
from halfulp.fpga.synth import Cost, Module, measure, measure_modules, module_of
from halfulp.fpga.targets import TARGETS
from halfulp.sim.errors import ToolError
from halfulp.sim.processes import Command
from halfulp.sim.progress import Progress
from halfulp.sim.request import Request

VU9P = TARGETS["vu9p"]

XOR = "module gate(input a, input b, input clk, output c); {} endmodule\n"


class Counter(wiring.Component):
    """A component that is none of the library's."""

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
    """A build folder with nothing in it."""
    monkeypatch.setenv("HALFULP_BUILD", str(tmp_path / "build"))
    return tmp_path / "build"


def broken(monkeypatch):
    """Yosys is gone."""
    monkeypatch.setattr(
        synth, "Command", lambda what, argv, log, cwd, env: Command(what, ["/nowhere/yosys"], log, cwd, env)
    )


def test_what_is_counted():
    cells = {"LUT1": 1, "LUT6": 4, "LUT6_2": 9, "FDRE": 2, "FDCE": 1, "CARRY4": 3, "CARRY8": 1, "MUXF7": 2, "MUXF8": 1}
    cells |= {"DSP48E2": 1, "RAMB18E2": 2, "URAM288": 1, "SRL16E": 3, "RAM32M": 1, "INV": 7}
    assert Cost.of(cells, 5) == Cost(lut=5, ff=3, carry=3, mux=3, dsp=1, bram=3, memory=4, path=5)


def test_a_component_is_measured_once(build, monkeypatch):
    cost = measure(Counter(), VU9P, name="counter")
    # The eighth of a carry chain of 8 is a CARRY8; the lowest bit's inverter is no table.
    assert (cost.ff, cost.carry, cost.dsp, cost.bram) == (8, 1, 0, 0)
    assert cost.path > 1
    broken(monkeypatch)
    assert measure(Counter(), VU9P, name="counter") == cost
    # Other Verilog is another component, and so is one with another constant around it.
    with pytest.raises(ToolError, match="Yosys on other could not be started: /nowhere/yosys is not there"):
        measure(Counter(), VU9P, name="other")
    with pytest.raises(ToolError, match="could not be started"):
        measure(Counter(), VU9P, name="counter", tied={"en": 1})


def test_a_constant_input_costs_nothing(build):
    gate = XOR.format("reg q; always @(posedge clk) q <= a & b; assign c = q ^ b;")
    (free,) = measure_modules([Module(gate, "gate")], VU9P)
    (tied,) = measure_modules([Module(gate, "gate", {"b": 0})], VU9P)
    assert (free.lut, free.ff) == (2, 1)
    assert tied.lut == 0


def test_modules_are_told_of_as_they_are_done(build, monkeypatch):
    done = []

    class Told(Progress):
        def advance(self, count):
            done.append(len(list((build / "synth").glob("*.json"))))

    modules = [Module(XOR.format(f"assign c = a {sign} b;"), "gate") for sign in "&|&"]
    costs = measure_modules(iter(modules), VU9P, Told())
    assert [cost.lut for cost in costs] == [1, 1, 1]
    assert (len(done), done[-1]) == (3, 2)
    assert [path for path in build.rglob("*") if path.parent.name == "runs"] == []


def test_a_request_that_was_made_takes_no_amaranth(build, monkeypatch):
    request = Request("sru", "fxp4.3", to="int4-wrap", random="plateau3", increment=False)
    module = module_of(request, tied={"en": 1})
    assert f"module {module.top}(" in module.verilog

    def refuse(self):
        raise AssertionError("the Verilog was there")

    monkeypatch.setattr(Request, "build", refuse)
    assert module_of(request, tied={"en": 1}) == module
    with pytest.raises(AssertionError):
        module_of(Request("sru", "fxp4.3", to="int4-wrap", random="plateau2", increment=False))


@pytest.mark.parametrize(
    ("module", "sentence"),
    [
        (Module("module gate(input a;\nendmodule\n", "gate"), "design.v:1: ERROR: syntax error, unexpected ';'"),
        (Module(XOR.format("assign c = a;"), "door"), "ERROR: Module `door' not found!"),
        (Module(XOR.format("assign c = a;"), "gate", {"d": 1}), "ERROR: Failed to parse set lhs expression"),
    ],
)
def test_an_error_of_yosys_is_one_of_a_tool(build, module, sentence):
    with pytest.raises(ToolError) as caught:
        measure_modules([module], VU9P)
    assert str(caught.value).startswith(f"Yosys on {module.top} failed with exit code 1: {sentence}")
    assert [path.name for path in build.rglob("*")] == ["runs"]


def test_a_yosys_that_does_not_load_ends_the_program_with_exit_code_3(build):
    (build.parent / "pyosys").mkdir()
    (build.parent / "pyosys" / "__init__.py").write_text("import no_such_library\n")
    path = os.pathsep.join([str(build.parent), *filter(None, sys.path)])
    answer = subprocess.run(
        [sys.executable, "-m", "halfulp.sim.cli", "report", "sru"],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert (answer.returncode, answer.stdout) == (3, "")
    assert answer.stderr.startswith("halfulp: Yosys on sru1_")
    assert answer.stderr.endswith("exit code 1: ModuleNotFoundError: No module named 'no_such_library'\n")


def test_ctrl_c_leaves_no_yosys_behind(build):
    process = subprocess.Popen(
        [sys.executable, "-m", "halfulp.sim.cli", "report", "sru"], stderr=subprocess.PIPE, text=True
    )
    try:
        deadline = time.monotonic() + 60
        # A log is there before the process that writes it.
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
    assert all(json.loads(path.read_text()) for path in (build / "synth").iterdir())


def at_work_in(folder: Path) -> list[Path]:
    """Where processes are that work in a folder."""
    found = []
    for link in Path("/proc").glob("[0-9]*/cwd"):
        with contextlib.suppress(OSError):
            if folder in link.readlink().parents:
                found.append(link.readlink())
    return found
