"""Initial contents of memories in files for Yosys, and one synthesis for cost and clock of a module."""

import json
import subprocess
import sys

import pytest
from amaranth.hdl import Module as Design
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from halfulp.boards.targets import TARGETS
from halfulp.fpga.synth.measure import Module, yosys_job
from halfulp.fpga.synth.memories import with_files

ECP5 = TARGETS["ecp5-85k"]
RESULTS = ("cells.json", "path.txt", "netlist.json")


class Store(wiring.Component):
    """Memory with a read port and, if it has no contents, a write port."""

    at: In(5)
    new: In(9)
    value: Out(9)

    def __init__(self, contents):
        self.contents = contents
        super().__init__()

    def elaborate(self, platform):
        m = Design()
        m.submodules.words = memory = Memory(shape=9, depth=32, init=self.contents)
        read = memory.read_port()
        m.d.comb += [read.addr.eq(self.at), self.value.eq(read.data)]
        if not self.contents:
            write = memory.write_port()
            m.d.comb += [write.addr.eq(self.at), write.data.eq(self.new), write.en.eq(1)]
        return m


def job_of(folder, module, **job):
    """Write the input files of a synthesis."""
    folder.mkdir()
    (folder / "design.v").write_text(module.verilog)
    (folder / "job.json").write_text(json.dumps({"top": module.top, "ties": [], **yosys_job(ECP5, False), **job}))
    return folder


def run(folder, change="pass"):
    """Synthesise with a changed program; return the cell counts."""
    program = f"from halfulp.fpga.synth import yosys\n{change}\nyosys.main()"
    command = [sys.executable, "-c", program]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL, timeout=200)
    return json.loads((folder / "cells.json").read_text())["design"]["num_cells_by_type"]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("contents", [[], [7 * word % 512 for word in range(32)]], ids=["zeros", "words"])
def test_contents_of_memory_move_to_a_file(contents, tmp_path):
    module = Module.of(Store(contents), "store")
    text, files = with_files(module.verilog)
    assert list(files) == ["memory0.hex"]
    assert [int(line, 16) for line in files["memory0.hex"].split()] == (contents or [0] * 32)
    assert "[0] =" not in text
    assert "for (" not in text
    # Yosys makes the same circuit of both texts.
    counts = run(job_of(tmp_path / "files", module, netlist=False))
    plain = "yosys.read_design = lambda: 'read_verilog design.v'"
    assert counts == run(job_of(tmp_path / "assignments", module, netlist=False), plain)
    assert not (tmp_path / "assignments/synthesised.v").exists()
    assert sum(counts.values()) > 4


def test_other_blocks_keep_their_assignments():
    start = "  initial begin\n    words[1] = 4'h2;\n    words[2] = 4'h3;\n  end\n"
    unknown = "  initial begin\n    words[0] = 4'hx;\n  end\n"
    register = "  initial begin\n    count = 4'h0;\n  end\n"
    assert with_files(start + unknown + register) == (start + unknown + register, {})


def test_cost_and_clock_take_one_synthesis(tmp_path, monkeypatch):
    monkeypatch.setenv("HALFULP_BUILD", str(tmp_path / "build"))
    module = Module.of(Store([]), "store")
    cost, clock = (job_of(tmp_path / name, module) for name in ("cost", "clock"))
    run(cost)
    (entry,) = (tmp_path / "build/cache/netlist").iterdir()
    assert {path.name for path in entry.iterdir()} >= set(RESULTS)
    # A second synthesis would fail.
    run(clock, "yosys.FpgaSynthesis.run = lambda recipe: 1 / 0")
    assert all((clock / name).read_bytes() == (cost / name).read_bytes() for name in RESULTS)
