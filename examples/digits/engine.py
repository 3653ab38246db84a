# amaranth: UnusedElaboratable=no
"""The engine: one multiply-accumulate for each channel, and the weights in a memory of the circuit.

    image  ->  pixels  ->  windows of 3 x 3  ->  lanes  ->  rounding, ReLU, maximum of 2 x 2  ->  features
               features  ->  lanes  ->  score

A lane computes a channel of the convolution, and then a score of each group of as many classes as there are lanes. Sums
are rounded to operands before ReLU and maximum: rounding is monotonic, so it gives the same numbers.
"""

from fractions import Fraction
from typing import Any

import torch
from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from halfulp import golden
from halfulp.golden.nn import Policy
from halfulp.hdl.specs import MacSpec
from halfulp.hdl.wire import word_at
from halfulp.units import Compare, Convert, Mac

from .model import CELLS, CLASSES, SIZE, TAPS, Network


class Engine(wiring.Component):
    """Scores of one image after the other.

    Parameters
    ----------
    network : Network
        Its weights are in the circuit; it has as many lanes as channels.
    policy : Policy
        ``mac`` of numbers, and roundings of weights and activations to its operands, without random words.

    Members
    -------
    image : In(stream)
        Pixels of an image, row by row, in the format of the first operand.
    score : Out(stream)
        Scores of the classes, in the format of the sums, with ``last`` at the last of them.

    Raises
    ------
    ValueError
        If the policy has a part for which the engine has no unit.
    """

    def __init__(self, network: Network, policy: Policy) -> None:
        mac = policy.forward
        if not isinstance(mac, MacSpec) or mac.words:
            raise ValueError(f"the engine has multiply-accumulates of numbers without random words, not {mac}")
        for cast in (policy.activations, policy.weights):
            if cast.fmt is not None or cast.rounding.bits or cast.before or cast.is_for_operands:
                raise ValueError(f"the engine rounds to the operands of the product, not by {cast}")
        self.mac, self.policy, self.name = mac, policy, "digits"
        self.lanes: int = network.conv.out_channels
        self.groups = -(-CLASSES // self.lanes)
        self.weights = self._words(network)
        super().__init__(
            {
                "image": In(stream.Signature(unsigned(mac.a.width))),
                "score": Out(stream.Signature(data.StructLayout({"code": unsigned(mac.o.width), "last": 1}))),
            }
        )

    def encode(self, images: torch.Tensor) -> torch.Tensor:
        """Return the pixels of images as codes."""
        cast = self.policy.activations
        return golden.encode(images, self.mac.a, cast.rounding, saturate=cast.saturate)

    @property
    def _zero(self) -> int:
        """Code of 0, which is not 0 in codebooks."""
        return self.mac.a.encode(Fraction(0))

    def _words(self, network: Network) -> list[int]:
        """Return the words of the weight memory: those of all lanes for one step, kernels first."""
        cast, head = self.policy.weights, network.head.weight.detach()
        rows = torch.zeros(self.groups * self.lanes, head.shape[1])
        rows[:CLASSES] = head
        parts = [network.conv.weight.detach().flatten(1), *rows.split(self.lanes)]
        codes = golden.encode(torch.cat(parts, dim=1), self.mac.b, cast.rounding, saturate=cast.saturate)
        return [sum(code << lane * self.mac.b.width for lane, code in enumerate(step)) for step in codes.mT.tolist()]

    def elaborate(self, platform: object) -> Module:
        m = Module()
        a, lanes, zero = self.mac.a, self.lanes, self._zero
        weights = self._memory(m, "weights", lanes * self.mac.b.width, self.weights)
        pixels = self._memory(m, "pixels", a.width, [0] * SIZE**2)
        features = self._memory(m, "features", lanes * a.width, [0] * CELLS)
        head, busy = Signal(), Signal()
        step, number = Signal(range(max(TAPS, lanes * CELLS))), Signal(range(SIZE**2))
        place, weight, lane = Signal(range(SIZE**2)), Signal(range(len(self.weights))), Signal(range(lanes))
        within, cell = number[:2], number[2:]

        # Address of a pixel: place in the window of the sum, whose centre is `within` the cell of the maximum.
        row, column = (
            Cat(within[1 - side], cell[2 - 2 * side : 4 - 2 * side]) + Array(shift)[step]
            for side, shift in enumerate(([tap // 3 for tap in range(TAPS)], [tap % 3 for tap in range(TAPS)]))
        )
        inside = Cat((line >= 1) & (line <= SIZE) for line in (row, column)).all()
        m.d.comb += [
            weights.read.addr.eq(weight),
            features.read.addr.eq(step[: CELLS.bit_length() - 1]),
            pixels.read.addr.eq(Cat((column - 1)[:3], (row - 1)[:3])),
            pixels.write.addr.eq(place),
            pixels.write.data.eq(self.image.payload),
        ]

        # Memories give their data in the next cycle.
        valid, first, padded, channel = Signal(), Signal(), Signal(), Signal(range(lanes))
        m.d.sync += [valid.eq(busy), first.eq(step == 0), padded.eq(~inside), channel.eq(step // CELLS)]
        feature = word_at(features.read.data, channel, a.width)
        operand = Mux(head, feature, Mux(padded, zero, pixels.read.data))
        sums, largest, maxima = [], [], []
        for index in range(lanes):
            m.submodules[f"mac{index}"] = mac = Mac.of(self.mac)
            b = weights.read.data.word_select(index, self.mac.b.width)
            m.d.comb += [
                Value.cast(mac.a).eq(operand),
                Value.cast(mac.b).eq(b),
                mac.valid.eq(valid),
                mac.clear.eq(first),
            ]
            best, maximum = self._maximum(m, index, mac.o.as_value())
            sums.append(mac.o.as_value())
            largest.append(best)
            maxima.append(maximum)

        wait = Signal(range(mac.latency + 1))
        end = Mux(head, lanes * CELLS - 1, TAPS - 1)
        m.d.comb += [
            features.write.addr.eq(cell),
            features.write.data.eq(Cat(maxima)),
            self.score.p.code.eq(Array(sums)[lane]),
            self.score.p.last.eq(number * lanes + lane == CLASSES - 1),
        ]
        with m.FSM():
            with m.State("image"):
                m.d.comb += [self.image.ready.eq(1), pixels.write.en.eq(self.image.valid)]
                m.d.sync += [head.eq(0), number.eq(0), weight.eq(0)]
                with m.If(self.image.valid):
                    m.d.sync += place.eq(place + 1)
                    with m.If(place == SIZE**2 - 1):
                        m.next = "multiply"
            with m.State("multiply"):
                m.d.comb += busy.eq(1)
                m.d.sync += [step.eq(step + 1), weight.eq(weight + 1)]
                with m.If(step == end):
                    m.d.sync += [step.eq(0), wait.eq(mac.latency)]
                    m.next = "sum"
            with m.State("sum"):
                m.d.sync += wait.eq(wait - 1)
                with m.If(wait == 0):
                    with m.If(head):
                        m.next = "send"
                    with m.Else():
                        m.next = "pool"
            with m.State("pool"):
                # The last place of a cell writes its maximum, and the next cell begins with 0, which is ReLU.
                m.d.comb += features.write.en.eq(within == 3)
                m.d.sync += [best.eq(Mux(within == 3, zero, own)) for best, own in zip(largest, maxima, strict=True)]
                m.d.sync += [number.eq(number + 1), weight.eq(0)]
                with m.If(number == SIZE**2 - 1):
                    m.d.sync += [head.eq(1), weight.eq(TAPS)]
                m.next = "multiply"
            with m.State("send"):
                m.d.comb += self.score.valid.eq(1)
                with m.If(self.score.ready):
                    m.d.sync += lane.eq(lane + 1)
                    with m.If(self.score.p.last):
                        m.d.sync += lane.eq(0)
                        m.next = "image"
                    with m.Elif(lane == lanes - 1):
                        m.d.sync += [lane.eq(0), number.eq(number + 1)]
                        m.next = "multiply"
        return m

    def _memory(self, m: Module, name: str, width: int, init: list[int]) -> Any:
        """Add a memory and return an object with its ports."""
        m.submodules[name] = memory = Memory(shape=unsigned(width), depth=len(init), init=init)
        memory.read, memory.write = memory.read_port(), memory.write_port()
        return memory

    def _maximum(self, m: Module, index: int, code: Value) -> tuple[Signal, Value]:
        """Return the largest operand of a lane so far, and its maximum with a sum that is rounded to an operand."""
        a, cast = self.mac.a, self.policy.activations
        if self.mac.o != a:
            m.submodules[f"round{index}"] = unit = Convert(
                a=self.mac.o, o=a, rounding=cast.rounding, saturate=cast.saturate
            )
            m.d.comb += Value.cast(unit.a).eq(code)
            code = unit.o.as_value()
        best = Signal(a.width, name=f"largest{index}", init=self._zero)
        m.submodules[f"compare{index}"] = compare = Compare(a=a, b=a)
        m.d.comb += [Value.cast(compare.a).eq(best), Value.cast(compare.b).eq(code)]
        return best, compare.maximum.as_value()
