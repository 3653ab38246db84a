"""Verilated model of a kernel with a simulated memory and host."""

import numpy as np
from torch import Tensor

from halfulp.golden.entries import Operand
from halfulp.golden.zeros import corrected
from halfulp.sim.driver import DriverPorts
from halfulp.sim.model import CompiledModel
from halfulp.tools.errors import ToolError

from . import layout as kernelmap
from .host import entries_to_memory, from_memory, stride_of
from .kernel import Kernel
from .layout import AP_CTRL, ARGUMENTS, GIE, IER, ISR, RESULTS, element_bytes
from .timing import cycles

BASE = 1 << 40
"""Base address of the memory; it has bits in both words of an address register."""

PAGE = 4096
"""Alignment of operands and result."""

SLOWEST = 64
"""Multiple of the expected cycles after which a run is stopped as failed."""

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
    """Verilated model of a kernel.

    Attributes
    ----------
    cycles : int
        Register ``cycles`` after the last run.
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

    def product(  # noqa: PLR0913 - zero points, and the behaviour of the memory by name
        self,
        a: Operand,
        b: Operand,
        *,
        go_on: bool = False,
        read: int = 1,
        write: int = 1,
        stall: float = 0.0,
        seed: int = 1,
        a_zero: Tensor | None = None,
        b_zero: Tensor | None = None,
    ) -> Tensor:
        """Multiply matrices of codes of shapes (n, k) and (k, m), or blocks or groups along k; see `entries`.

        The kernel reports a size of 0.

        ToolError if the kernel does not finish, reports an error, violates AXI4, or writes outside the result.

        Parameters
        ----------
        a, b : Tensor, BlockTensor or SparseTensor
        go_on : bool
            Continue the random words of the previous product instead of starting from the seeds.
        read, write, stall, seed
            Behaviour of the memory; see `halfulp.sim.model.CompiledModel.attach`.
        a_zero, b_zero : Tensor, optional
            Zero points as for `golden.gemm`, by row and column. The host adds their terms to the sums of the kernel,
            which must be exact.
        """
        mac = self.kernel.array.mac
        (image_a, (n, k)), (image_b, (_, m)) = entries_to_memory(a, mac, "a"), entries_to_memory(b, mac, "b")
        images = [image_a, image_b, bytes(n * stride_of(m, element_bytes(mac.o.width)))]
        arguments = {"n": n, "k": k, "m": m, "flags": int(go_on) << kernelmap.CONTINUE}
        for name, image, rows in zip("abc", images, (n, k, n), strict=True):
            arguments[f"{name}_stride"] = len(image) // max(rows, 1)
        result = self.run(images, arguments, read=read, write=write, stall=stall, seed=seed)
        return corrected(from_memory(result, mac.o.width, (n, m)), a, b, mac, {"a": a_zero, "b": b_zero})

    def run(
        self,
        images: list[bytes],
        arguments: dict[str, int],
        *,
        read: int = 1,
        write: int = 1,
        stall: float = 0.0,
        seed: int = 1,
    ) -> bytes:
        """Run the kernel on the memory images of a, b and c, and return the image of c; other options as `product`.

        ``arguments`` are those of the registers in `layout.ARGUMENTS` but for the addresses.
        """
        memory, places = _laid_out(images)
        before, result = memory.copy(), slice(places[2], places[2] + len(images[2]))
        self._core.attach(memory, BASE, read=read, write=write, stall=stall, seed=seed)
        addresses = {name: BASE + place for name, place in zip("abc", places, strict=True)}
        n, k, m = (arguments[name] for name in "nkm")
        limit = SLOWEST * (cycles(self.kernel, n, k, m, read=read, write=write) + read + write)
        self._run(arguments | addresses, limit)
        written = memory[result].tobytes()
        memory[result] = before[result]
        if not np.array_equal(memory, before):
            raise ToolError(f"{self.kernel.name} wrote outside the result of a product of {n} x {k} x {m}")
        return written

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
                + f"register error is {results['error']:#x}, with {core.faults - faults} violations of AXI4"
            )


def _laid_out(parts: list[bytes]) -> tuple[np.ndarray, list[int]]:
    """Return a memory with each part at the start of a page, and the addresses of the parts."""
    places, end = [], 0
    for part in parts:
        places.append(end)
        end += -(-len(part) // PAGE) * PAGE
    memory = np.zeros(end, np.uint8)
    for part, place in zip(parts, places, strict=True):
        memory[place : place + len(part)] = np.frombuffer(part, np.uint8)
    return memory, places
