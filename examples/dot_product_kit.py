"""Cocotb test of a user's design that has a multiply-accumulate inside, with parts of `halfulp.sim.kit`.

    python examples/dot_product_kit.py

Random terms go through the design of `dot_product.py`, with gaps and back-pressure. A monitor observes the ports of the
multiply-accumulate inside, and each of its steps is compared with the golden model. The totals, fewer than the terms,
are compared with products of vectors.
"""

import random

import cocotb
import torch
from dot_product import TERMS, DotProduct

from halfulp import golden
from halfulp.sim import kit

DESIGN = DotProduct()


def totals(words):
    """Return the results of all terms: a term with ``last`` set ends a sum."""
    results, terms = [], []
    for x, y, last in map(TERMS.unpack, words):
        terms.append((x, y))
        if last:
            a, b = torch.tensor(terms).T
            results.append(int(golden.gemm(a[None], b[:, None], DESIGN.mac.spec)))
            terms = []
    return results


@cocotb.test()
async def steps_and_totals_are_bit_exact(dut):
    mac, noise = DESIGN.mac, random.Random(1)
    gaps, stalls = kit.paced(noise)
    steps = kit.Reference(mac, coverage=True)
    bench = kit.Bench(dut.clk, dut.rst)
    streams = kit.Streams(kit.source(dut, "i", DESIGN.i.p.shape()), kit.sink(dut, "o", DESIGN.o.p.shape()))
    terms = bench.drive(streams, gaps=gaps, stalls=stalls)
    bench.watch(streams, kit.Expected(totals))
    bench.watch(kit.pins(mac, dut.mac, clk=dut.clk, rst=dut.rst), steps)
    async with bench:
        await terms.send(*(noise.getrandbits(TERMS.width) for _ in range(2000)))
    cocotb.log.info(steps.report)


if __name__ == "__main__":
    for name in kit.simulate(DESIGN, __file__):
        print(f"PASS {name}")
