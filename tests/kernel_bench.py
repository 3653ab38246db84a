"""Driver of a kernel in the simulator: runs from a folder, on the memories of cocotbext-axi.

Each run writes the memory, sets the registers, starts the kernel, waits for its interrupt, and compares the error
register and the memory around the matrices.
"""

import itertools
import json
import os
import random
from pathlib import Path
from types import SimpleNamespace

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, First, RisingEdge
from cocotbext.axi import AxiLiteBus, AxiLiteMaster, AxiReadBus, AxiResp, AxiWriteBus, axi_slave
from cocotbext.axi.axi_ram import AxiRamRead, AxiRamWrite
from cocotbext.axi.sparse_memory import SparseMemory

from halfulp.fpga.kernel import layout as kernelmap
from halfulp.fpga.kernel.layout import AP_CTRL, ARGUMENTS, CONTROL, GIE, IER, ISR, MASTERS, RESULTS

FOLDER = Path(os.environ["HALFULP_JOB"])
JOB = json.loads((FOLDER / "job.json").read_text())
OFFSETS = {register.name: register.offset for register in (*ARGUMENTS, *RESULTS)}


class Faulty:
    """Base of the memories of all ports, with an address that responds with an error."""

    bad: int | None = None
    answers = AxiResp.SLVERR

    def check(self, address, length):
        if self.bad is not None and address <= self.bad < address + length:
            raise LookupError(f"no memory at {self.bad:#x}")


class Reading(AxiRamRead):
    async def _read(self, address, length):
        self.faults.check(address, length)
        return await super()._read(address, length)


class Writing(AxiRamWrite):
    async def _write(self, address, data):
        self.faults.check(address, len(data))
        await super()._write(address, data)


class Bench:
    """Kernel with its memories and its host."""

    def __init__(self, dut):
        self.dut = dut
        self.clock, self.reset = getattr(dut, kernelmap.CLOCK), getattr(dut, kernelmap.RESET)
        memory = SparseMemory(2**62)
        wiring = {"clock": self.clock, "reset": self.reset, "reset_active_level": False}
        self.host = AxiLiteMaster(AxiLiteBus.from_prefix(dut, CONTROL), **wiring)
        self.ports = [
            Reading(AxiReadBus.from_prefix(dut, MASTERS[0]), mem=memory, **wiring),
            Reading(AxiReadBus.from_prefix(dut, MASTERS[1]), mem=memory, **wiring),
            Writing(AxiWriteBus.from_prefix(dut, MASTERS[2]), mem=memory, **wiring),
        ]
        self.memory = memory
        for port in self.ports:
            port.faults = Faulty()
        self.random = random.Random(JOB["seed"])

    async def begin(self):
        self.reset.value = 0
        cocotb.start_soon(Clock(self.clock, 4, "ns").start())
        await self.pulse()

    async def pulse(self):
        self.reset.value = 0
        await ClockCycles(self.clock, 4)
        self.reset.value = 1
        await ClockCycles(self.clock, 2)

    def press(self, chance):
        """Set the probability of stalls of every channel."""
        channels = [
            channel
            for port in self.ports
            for name in ("ar_channel", "r_channel", "aw_channel", "w_channel", "b_channel")
            if (channel := getattr(port, name, None)) is not None
        ]
        for channel in channels:
            if chance:
                channel.set_pause_generator(self.random.random() < chance for _ in itertools.repeat(None))
            else:
                channel.clear_pause_generator()
                channel.pause = False

    async def write(self, offset, value):
        await self.host.write_dword(offset, value)

    async def read(self, offset):
        return await self.host.read_dword(offset)

    async def set_up(self, run):
        for place, data in run["before"].items():
            self.memory.write(int(place), bytes.fromhex(data))
        for name, value in run["arguments"].items():
            register = next(argument for argument in ARGUMENTS if argument.name == name)
            await self.write(register.offset, value & 0xFFFFFFFF)
            if register.bits == 64:
                await self.write(register.offset + 4, value >> 32)
        for port, name in zip(self.ports, "abc", strict=True):
            port.faults.bad = run["faults"].get(name)
        axi_slave.AxiResp = SimpleNamespace(OKAY=AxiResp.OKAY, SLVERR=AxiResp[run["answers"]])
        self.press(run["press"])

    async def interrupted(self):
        """Wait for the interrupt, clear it, and check the status registers."""
        stuck = ClockCycles(self.clock, JOB["patience"])
        if not self.dut.interrupt.value:
            assert await First(RisingEdge(self.dut.interrupt), stuck) is not stuck, "the kernel does not end"
        await self.write(ISR, 1)
        assert await self.read(ISR) == 0

    def compare(self, run):
        for place, data in run["after"].items():
            expected = bytes.fromhex(data)
            found = self.memory.read(int(place), len(expected))
            wrong = [index for index, pair in enumerate(zip(found, expected, strict=True)) if pair[0] != pair[1]]
            assert not wrong, f"{run['name']}: {len(wrong)} bytes of {place}, the first at {wrong[0]}"


@cocotb.test()
async def runs(dut):
    """Check runs in sequence, some of them interrupted by a reset."""
    bench = Bench(dut)
    await bench.begin()
    assert await bench.read(AP_CTRL) == 1 << kernelmap.IDLE
    await bench.write(GIE, 1)
    await bench.write(IER, 1)
    cycles = []
    for run in JOB["runs"]:
        await bench.set_up(run)
        await bench.write(AP_CTRL, 1)
        if run["reset"]:
            await ClockCycles(bench.clock, run["reset"])
            assert await bench.read(AP_CTRL) == 1, "it was to be reset while it runs"
            await bench.pulse()
            assert await bench.read(AP_CTRL) == 1 << kernelmap.IDLE
            assert await bench.read(GIE) == 0
            await bench.write(GIE, 1)
            await bench.write(IER, 1)
            continue
        await bench.interrupted()
        assert await bench.read(AP_CTRL) == sum(1 << bit for bit in (kernelmap.DONE, kernelmap.IDLE, kernelmap.READY))
        assert await bench.read(AP_CTRL) == 1 << kernelmap.IDLE, "done and ready are cleared when they are read"
        assert await bench.read(OFFSETS["error"]) == run["error"], run["name"]
        cycles.append(await bench.read(OFFSETS["cycles"]))
        bench.compare(run)
    (FOLDER / "cycles.json").write_text(json.dumps(cycles))


@cocotb.test()
async def registers(dut):
    """Check that written words and bytes read back, and that unused addresses read as 0."""
    bench = Bench(dut)
    await bench.begin()
    for argument in ARGUMENTS:
        for offset in range(argument.offset, argument.offset + argument.bits // 8, 4):
            value = bench.random.getrandbits(32)
            await bench.write(offset, value)
            byte = bench.random.randrange(4)
            await bench.host.write(offset + byte, b"\x5a")
            value = value & ~(0xFF << 8 * byte) | 0x5A << 8 * byte
            assert await bench.read(offset) == value, argument.name
    for offset in (OFFSETS["error"], OFFSETS["cycles"], 0x64, 0x80, 0x7FC, 0xFFC):
        await bench.write(offset, 0xFFFFFFFF)
        assert await bench.read(offset) == 0, hex(offset)
    for offset, bits in ((GIE, 1), (IER, 3)):
        await bench.write(offset, 0xFFFFFFFF)
        assert await bench.read(offset) == bits, hex(offset)
    assert not dut.interrupt.value
    await bench.write(ISR, 2)
    assert dut.interrupt.value, "a status bit that is written is toggled"
    await bench.write(GIE, 0)
    assert not dut.interrupt.value


@cocotb.test()
async def again(dut):
    """Check that auto_restart repeats a run until it is cleared."""
    bench = Bench(dut)
    await bench.begin()
    run = JOB["runs"][0]
    await bench.set_up(run)
    await bench.write(GIE, 1)
    await bench.write(IER, 1)
    await bench.write(AP_CTRL, 1 | 1 << kernelmap.AUTO_RESTART)
    for _ in range(2):
        await bench.interrupted()
        bench.compare(run)
    await bench.write(AP_CTRL, 0)
    await bench.interrupted()
    await ClockCycles(bench.clock, 10)
    assert await bench.read(AP_CTRL) & ~(1 << kernelmap.DONE | 1 << kernelmap.READY) == 1 << kernelmap.IDLE
    bench.compare(run)
