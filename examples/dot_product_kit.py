"""Cocotb test of a user's design that has a multiply-accumulate inside, with parts of `halfulp.sim.kit`.

    python examples/dot_product_kit.py

Random terms go through the design of `dot_product.py`, with gaps and back-pressure. A monitor observes the ports of the
multiply-accumulate inside, and each of its steps is compared with the golden model.
"""

import random

import cocotb
from dot_product import TERM, TERMS, DotProduct

from halfulp.sim import kit


@cocotb.test()
async def every_step_is_bit_exact(dut):
    mac, noise = DotProduct().mac, random.Random(1)
    gaps, stalls = kit.paced(noise)
    steps = kit.Reference(mac, coverage=True)
    bench = kit.Bench(dut.clk, dut.rst)
    streams = kit.Streams(kit.source(dut, "i", TERM), kit.sink(dut, "o", {"total": mac.outputs["o"]}))
    terms = bench.drive(streams, gaps=gaps, stalls=stalls)
    bench.watch(kit.pins(mac, dut.mac, clk=dut.clk, rst=dut.rst), steps)
    async with bench:
        await terms.send(*(noise.getrandbits(TERMS.width) for _ in range(2000)))
    cocotb.log.info(steps.report)


if __name__ == "__main__":
    for name in kit.simulate(DotProduct(), __file__):
        print(f"PASS {name}")
