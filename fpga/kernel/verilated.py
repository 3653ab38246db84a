"""The Verilated model of a kernel, with a memory and a host, at compiled speed."""

import numpy as np
from torch import Tensor

from halfulp.sim.driver import DriverPorts
from halfulp.sim.model import CompiledModel
from halfulp.tools.errors import ToolError

from . import layout as kernelmap
from .host import from_memory, stride_of, to_memory
from .kernel import Kernel
from .layout import AP_CTRL, ARGUMENTS, GIE, IER, ISR, RESULTS
from .timing import cycles

BASE = 1 << 40
"""Address of the memory, with bits in both words."""

PAGE = 4096
"""Alignment of operands and result."""

SLOWEST = 64
"""Multiple of the expected cycles after which a run has failed."""

PORTS = DriverPorts(
    clock=kernelmap.CLOCK,
    reset=kernelmap.RESET,
    reset_on=0,
    interrupt=kernelmap.INTERRUPT,
    host=kernelmap.CONTROL,
    reads=kernelmap.MASTERS[:2],
    writes=kernelmap.MASTERS[2:],
)


class Verilated:
    """The Verilated model of a kernel.

    Attributes
    ----------
    cycles : int
        Clock cycles of the last run, by the count of the kernel.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.cycles = 0
        self._core = CompiledModel.of_core(kernel, PORTS)

    def close(self) -> None:
        """Release the model."""
        self._core.close()

    def __enter__(self) -> "Verilated":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def product(
        self,
        a: Tensor,
        b: Tensor,
        *,
        go_on: bool = False,
        read: int = 1,
        write: int = 1,
        stall: float = 0.0,
        seed: int = 1,
    ) -> Tensor:
        """Matrix product of codes of shapes (n, k) and (k, m), without a size of 0.

        ToolError if the kernel does not finish, reports an error, breaks a rule of AXI4, or writes beside the result.

        Parameters
        ----------
        a, b : Tensor
        go_on : bool
            Continue the random words of the product before, instead of a start from the seeds.
        read, write, stall, seed
            Behaviour of the memory, as for `halfulp.sim.model.CompiledModel.attach`.
        """
        mac, (n, k), m = self.kernel.array.mac, a.shape, b.shape[1]
        size = n * stride_of(m, mac.o.width)
        parts = [to_memory(a, mac.a.width), to_memory(b, mac.b.width), bytes(size)]
        memory, places = _laid_out(parts)
        before = memory.copy()
        self._core.attach(memory, BASE, read=read, write=write, stall=stall, seed=seed)
        arguments = {"n": n, "k": k, "m": m, "flags": int(go_on) << kernelmap.CONTINUE}
        for name, place, fmt, columns in zip("abc", places, (mac.a, mac.b, mac.o), (k, m, m), strict=True):
            arguments |= {name: BASE + place, f"{name}_stride": stride_of(columns, fmt.width)}
        self._run(arguments, SLOWEST * (cycles(self.kernel, n, k, m, read=read, write=write) + read + write))
        result = memory[places[2] : places[2] + size].tobytes()
        memory[places[2] : places[2] + size] = 0
        if not np.array_equal(memory, before):
            raise ToolError(f"{self.kernel.name} wrote beside the result of a product of {n} x {k} x {m}")
        return from_memory(result, mac.o.width, (n, m))

    def _run(self, arguments: dict[str, int], limit: int) -> None:
        core, faults = self._core, self._core.faults
        core.put(GIE, 1)
        core.put(IER, 1)
        for register in ARGUMENTS:
            for word in range(register.bits // 32):
                core.put(register.offset + 4 * word, arguments[register.name] >> (32 * word) & 0xFFFFFFFF)
        core.put(AP_CTRL, 1 << kernelmap.START)
        ended = core.wait(limit)
        core.put(ISR, 1)
        results = {register.name: core.get(register.offset) for register in RESULTS}
        self.cycles = results["cycles"]
        # A read clears done and ready.
        done = ended and core.get(AP_CTRL) >> kernelmap.DONE & 1
        if not done or results["error"] or core.faults != faults:
            core.reset()
            raise ToolError(
                f"{self.kernel.name} failed: "
                + ("" if done else f"it is not done after {limit:,} cycles; ")
                + f"its register error is {results['error']:#x}, and {core.faults - faults} rules of AXI4 were broken"
            )


def _laid_out(parts: list[bytes]) -> tuple[np.ndarray, list[int]]:
    """A memory with each part at a page, and the places of these."""
    places, end = [], 0
    for part in parts:
        places.append(end)
        end += -(-len(part) // PAGE) * PAGE
    memory = np.zeros(end, np.uint8)
    for part, place in zip(parts, places, strict=True):
        memory[place : place + len(part)] = np.frombuffer(part, np.uint8)
    return memory, places
