"""Boards: dies match the device, memory banks have ports, and pins reach Vivado."""

import re
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec

import pytest
from amaranth.hdl import Elaboratable, Module, Signal
from amaranth.lib import io

from halfulp.boards.board import KINDS, Memory, Resources, equal_dies, fields_of
from halfulp.boards.catalogue import BOARDS, board_of, listing
from halfulp.boards.targets import TARGETS


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_board_matches_its_device(board):
    assert board.target is TARGETS[board.name]
    assert find_spec(f"halfulp.boards.{board.name}")
    for kind in KINDS:
        assert sum(getattr(slr, kind) for slr in board.slrs) == getattr(board.target, kind)
    for memory in board.memories:
        assert all(0 <= slr < len(board.slrs) for slr in memory.slrs)
    assert board.sources
    device, package, speed = fields_of(board.target.part)
    assert f"{device}-{package}-{speed}" == board.target.part


def test_board_rejects_dies_that_differ_from_device():
    board = BOARDS["u55c"]
    short = (replace(board.slrs[0], dsp=0), *board.slrs[1:])
    with pytest.raises(ValueError, match="dies of u55c have 6,144 DSP"):
        replace(board, slrs=short)
    assert equal_dies(TARGETS["u250"], 4)[0] == Resources(lut=432_000, ff=864_000, dsp=3_072, bram=672, uram=320)
    with pytest.raises(ValueError, match=r"vu9p .* 7 equal"):
        equal_dies(TARGETS["vu9p"], 7)
    with pytest.raises(ValueError, match="3 dies"):
        Memory(tag="DDR", kind="DDR4", banks=4, bank_mib=1, bank_gbps=1, masters=1, latency_ns=1, slrs=(0, 1, 2))


def test_board_core_count_is_limited_by_memory_ports():
    """With three ports per core, 32 ports of HBM serve ten cores, as published; the linker limits ports of DDR."""
    assert BOARDS["u55c"].cores(3) == 10
    assert BOARDS["u55c"].memory.banks * BOARDS["u55c"].memory.bank_gbps == 460
    assert BOARDS["u250"].cores(3) == 20
    assert BOARDS["u250"].cores(1) == 31
    assert [memory.tag for memory in BOARDS["u280"].memories] == ["HBM", "DDR"]


def test_board_memory_has_latency_and_rate_per_port():
    """HBM is slower than a port of 512 bits at 300 MHz; ports share the DDR banks."""
    latency, rate = BOARDS["u55c"].beats(300, 20)
    assert (latency, rate) == (33, pytest.approx(14.375 / 19.2))
    assert BOARDS["u55c"].beats(100, 20) == (11, 1.0)
    assert BOARDS["u250"].beats(300, 2) == (22, 1.0)
    assert BOARDS["u250"].beats(300, 16)[1] == pytest.approx(0.25)


def test_board_of_rejects_unknown_name():
    with pytest.raises(ValueError, match=r"^unknown board 'u50'; the boards are u55c, u250, u280, u200, vcu1525, "):
        board_of("u50")


def test_board_listing_has_parts_and_sources():
    shown = "\n".join(listing())
    for board in BOARDS.values():
        assert re.search(rf"^{board.name} +{board.target.part} ", shown, re.MULTILINE)
        assert f"  {board.name}: {board.target.source}; {board.sources[0]}" in shown
    assert "  2 x 16 GiB DDR4-2400" in shown
    answer = subprocess.run([sys.executable, "-m", "halfulp", "list", "boards"], capture_output=True, text=True)
    assert (answer.returncode, answer.stdout) == (0, shown + "\n")


@pytest.mark.parametrize("part", ["xc7a100tcsg324-1", "LFE5U-85F-6BG381C", "xcvu9p-flga2104"])
def test_part_of_another_family_is_rejected(part):
    with pytest.raises(ValueError, match=f"invalid UltraScale. part {part}"):
        fields_of(part)


class Blink(Elaboratable):
    """Counter that drives a light."""

    def elaborate(self, platform):
        m = Module()
        count = Signal(24)
        m.submodules.led = led = io.Buffer("o", platform.request("led", 0, dir="-"))
        m.d.sync += count.eq(count + 1)
        m.d.comb += led.o.eq(count[-1])
        return m


@pytest.mark.parametrize(
    ("name", "clock", "pins"),
    [("vcu118", 8.0, ("AY24", "AY23", "AT32")), ("vcu1525", 10 / 3, ("AY37", "AY38", "BC21"))],
)
def test_amaranth_platform_targets_the_part_of_the_board(name, clock, pins):
    """Amaranth's platform writes input of Vivado for the part of the device."""
    plan = BOARDS[name].build_platform().prepare(Blink())
    texts = {file: text if isinstance(text, str) else text.decode() for file, text in plan.files.items()}
    assert f"-part {BOARDS[name].target.part}\n" in texts["top.tcl"]
    for pin in pins:
        assert re.search(rf"set_property LOC {pin} ", texts["top.xdc"])
    assert float(re.search(r"create_clock -name \S+ -period (\S+) ", texts["top.xdc"])[1]) == pytest.approx(clock)
    assert "STARTUPE3" in texts["top.v"]


def test_data_center_cards_have_no_amaranth_platform():
    for name in ("u55c", "aws_f1"):
        with pytest.raises(ValueError, match=f"^{name} has no platform for Amaranth"):
            BOARDS[name].build_platform()
