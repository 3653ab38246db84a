"""Host program of kernels on a card: matrix products through XRT, compared with the golden model.

The Python module ``pyxrt`` of XRT (https://xilinx.github.io/XRT) is imported when a `Card` is opened.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from torch import Tensor

from halfulp import golden
from halfulp.golden.check import broadcast_shape
from halfulp.golden.entries import Operand, elements_of, entries, matrices_of, rows_of
from halfulp.golden.quantize import BlockTensor
from halfulp.golden.sparse import SparseTensor
from halfulp.golden.zeros import corrected
from halfulp.hdl.formats import Format
from halfulp.hdl.specs import BlockMacSpec, RunningSumSpec, SparseMacSpec, Tiling, parse_cell
from halfulp.tools import commands
from halfulp.tools.errors import ToolError

from .layout import ARGUMENTS, CONTINUE, DATA_BITS, PATIENCE, element_bytes, entry_bytes


@dataclass(frozen=True)
class Tile:
    """Description of the kernels on a card, for the host.

    Parameters
    ----------
    kernel : str
        Name of the kernel; its instances are this name with _1, _2 and so on.
    cores : int
        Number of instances.
    mac : str
        Text of the multiply-accumulates, with the state after reset of the source of the first one.
    tiling : Tiling
        Tiling of the array in each instance.
    """

    kernel: str
    cores: int
    mac: str
    tiling: Tiling

    @property
    def spec(self) -> Any:
        """Parsed description of the multiply-accumulates."""
        return parse_cell(self.mac)

    def shares(self, rows: int, cores: int) -> list[slice]:
        """Divide the rows of a product among cores, in whole tiles except for the last core in use."""
        tiles = -(-rows // self.tiling.height)
        share = -(-tiles // cores) * self.tiling.height
        return [slice(first, min(first + share, rows)) for first in range(0, rows, share)]

    def turns(self, batch: int, rows: int) -> list[list[tuple[int, int, slice]]]:
        """Divide a batch of products among the cores.

        Several products run at once, each on a part of the cores, if that takes fewer rows of tiles in sequence.

        Parameters
        ----------
        batch : int
            Number of products.
        rows : int
            Rows of each product.

        Returns
        -------
        list of list of (int, int, slice)
            For each turn: cores, each with the number of a product and its rows.
        """
        tiles = -(-rows // self.tiling.height)
        at_once = min(
            range(1, min(batch, self.cores) + 1),
            key=lambda count: -(-batch // count) * -(-tiles // (self.cores // count)),
        )
        group = self.cores // at_once
        shares = list(enumerate(self.shares(rows, group)))
        return [
            [(number % at_once * group + core, number, part) for number in numbers for core, part in shares]
            for first in range(0, batch, at_once)
            for numbers in [range(first, min(first + at_once, batch))]
        ]

    def steps(self, a: Operand, rows: slice, columns: int) -> int:
        """Return the steps of each multiply-accumulate for some rows of a product."""
        k = self.spec.steps(elements_of(a).shape[-1])
        return self.tiling.steps(rows.stop - rows.start, k, columns)

    def expected(self, a: Operand, b: Operand, begun: Sequence[int]) -> Tensor:
        """Compute the products of a batch with the golden model; core i has taken ``begun[i]`` steps before."""
        x, y, result, shape = _flat(a, b)
        taken, spec = list(begun), self.spec
        for core, number, rows in (part for turn in self.turns(*result.shape[:2]) for part in turn):
            sources: dict[str, Any] = {"tiling": self.tiling, "first_step": taken[core]} if spec.words else {}
            result[number, rows] = golden.gemm(rows_of(x[number], rows), y[number], spec, **sources).cpu()
            taken[core] += self.steps(x[number], rows, result.shape[2])
        return result.reshape(shape)


def stride_of(columns: int, size: int) -> int:
    """Return the bytes from a row in memory to the next: whole beats, the fastest layout for the kernel.

    ``size`` is the number of bytes of an element.
    """
    beat = DATA_BITS // 8
    return -(-columns * size // beat) * beat


def entries_to_memory(operand: Any, spec: RunningSumSpec, name: str) -> tuple[bytes, tuple[int, int]]:
    """Return the memory image of matrix ``a`` or ``b``, and its numbers of rows and columns of entries.

    Parameters
    ----------
    operand : Tensor, BlockTensor or SparseTensor
        See `entries`.
    spec : RunningSumSpec
    name : str
    """
    codes, size = entries(operand, spec, name).cpu(), entry_bytes(spec, name)
    rows, columns, count = codes.shape
    if count == 1:
        return to_memory(codes[..., 0], spec.entry_bits(name)), (rows, columns)
    fields = codes.numpy().astype(np.uint64).reshape(rows * columns, count)
    bits = np.zeros((rows * columns, 8 * size), np.uint8)
    at = 0
    for field, fmt in zip(fields.T, spec.entries[name].values(), strict=True):
        bits[:, at : at + fmt.width] = field[:, None] >> np.arange(fmt.width, dtype=np.uint64) & np.uint64(1)
        at += fmt.width
    packed = np.packbits(bits, axis=1, bitorder="little")
    image = np.zeros((rows, stride_of(columns, size)), np.uint8)
    image[:, : columns * size] = packed.reshape(rows, columns * size)
    return image.tobytes(), (rows, columns)


def to_memory(codes: Tensor, width: int) -> bytes:
    """Return the memory image of codes: little-endian elements, rows padded with zeros to whole beats."""
    rows, columns = codes.shape
    size = element_bytes(width)
    words = np.zeros((rows, stride_of(columns, size) // size), f"<u{size}")
    words[:, :columns] = codes.cpu().numpy().astype(np.uint64)
    return words.tobytes()


def from_memory(data: bytes, width: int, shape: tuple[int, int]) -> Tensor:
    """Return the codes in a memory image."""
    words = np.frombuffer(data, f"<u{element_bytes(width)}").reshape(shape[0], -1)
    return torch.from_numpy(words[:, : shape[1]].astype(np.int64))


@contextmanager
def _xrt_errors(action: str) -> Iterator[None]:
    """Raise the errors of XRT as ToolError."""
    try:
        yield
    except RuntimeError as error:
        raise ToolError(f"XRT {action}: {error}") from error


class Card:
    """Card programmed with kernels; ToolError if XRT is not installed, or has no such card.

    Parameters
    ----------
    tile : Tile
    xclbin : Path
        File that the linker ``v++`` wrote.
    device : int
        Index of the card.
    """

    def __init__(self, tile: Tile, xclbin: Path, device: int = 0) -> None:
        try:
            import pyxrt
        except ImportError as error:
            raise ToolError(
                "there is no Python module pyxrt: install XRT, and source its setup.sh before this program"
            ) from error
        self.tile = tile
        self._xrt: Any = pyxrt
        with _xrt_errors(f"did not open card {device}"):
            self._device = pyxrt.device(device)
        with _xrt_errors(f"did not load {xclbin} on card {device}"):
            uuid = self._device.load_xclbin(str(xclbin))
            # XRT expects the name of an instance in braces.
            self._kernels = [
                pyxrt.kernel(self._device, uuid, f"{tile.kernel}:{{{tile.kernel}_{core + 1}}}", pyxrt.kernel.exclusive)
                for core in range(tile.cores)
            ]
        self._steps = [0] * tile.cores

    def product(
        self,
        a: Operand,
        b: Operand,
        *,
        go_on: bool = False,
        a_zero: Tensor | None = None,
        b_zero: Tensor | None = None,
    ) -> Tensor:
        """Multiply matrices of codes of shapes (..., n, k) and (..., k, m), sizes 1 or more; see `entries` for others.

        The cores share the rows of a product and the products of a batch; see `Tile.turns`. ``go_on`` continues the
        random words of the previous product; otherwise the sources start from their seeds. ``a_zero`` and ``b_zero``
        are zero points as for `golden.gemm`, by row and column: the host adds their terms to the sums of the cores.
        """
        x, y, result, shape = _flat(a, b)
        begun = set(range(self.tile.cores)) if go_on else set()
        with _xrt_errors(f"did not run {self.tile.kernel}"):
            for turn in self.tile.turns(*result.shape[:2]):
                runs = []
                for core, number, rows in turn:
                    runs.append(self._start(core, rows_of(x[number], rows), y[number], core in begun))
                    before = self._steps[core] if core in begun else 0
                    self._steps[core] = before + self.tile.steps(x[number], rows, result.shape[2])
                    begun.add(core)
                for (_, number, rows), run in zip(turn, runs, strict=True):
                    result[number, rows] = self._finished(*run)
        return corrected(result.reshape(shape), a, b, self.tile.spec, {"a": a_zero, "b": b_zero})

    def expected(self, a: Operand, b: Operand, *, go_on: bool = False) -> Tensor:
        """Compute the expected result of the next `product` with the golden model."""
        return self.tile.expected(a, b, self._steps if go_on else [0] * self.tile.cores)

    def _start(self, core: int, a: Operand, b: Operand, go_on: bool) -> tuple[int, Any, Any, tuple[int, int]]:
        """Send the operands to the memory of a core and start it."""
        spec, kernel = self.tile.spec, self._kernels[core]
        images = {name: entries_to_memory(operand, spec, name) for name, operand in (("a", a), ("b", b))}
        (n, k), (_, m) = (shape for _, shape in images.values())
        values: dict[str, Any] = {"n": n, "k": k, "m": m, "flags": int(go_on) << CONTINUE}
        places = {argument.name: place for place, argument in enumerate(ARGUMENTS)}
        sizes = {name: len(data) for name, (data, _) in images.items()}
        for name, rows in (("a", n), ("b", k), ("c", n)):
            size = sizes[name] if name in images else rows * stride_of(m, element_bytes(spec.o.width))
            values[f"{name}_stride"] = size // rows
            group = kernel.group_id(places[name])
            values[name] = self._xrt.bo(self._device, size, self._xrt.bo.normal, group)
        for name, (data, _) in images.items():
            values[name].write(data, 0)
            values[name].sync(self._xrt.xclBOSyncDirection.XCL_BO_SYNC_BO_TO_DEVICE, len(data), 0)
        return core, kernel(*(values[argument.name] for argument in ARGUMENTS)), values["c"], (n, m)

    def _finished(self, core: int, run: Any, buffer: Any, shape: tuple[int, int]) -> Tensor:
        """Wait for a core and fetch its result."""
        state = run.wait(PATIENCE)
        if state != self._xrt.ert_cmd_state.ERT_CMD_STATE_COMPLETED:
            raise ToolError(f"core {core + 1} of {self.tile.kernel} did not finish: {state}")
        width = self.tile.spec.o.width
        size = shape[0] * stride_of(shape[1], element_bytes(width))
        buffer.sync(self._xrt.xclBOSyncDirection.XCL_BO_SYNC_BO_FROM_DEVICE, size, 0)
        return from_memory(bytes(buffer.read(size, 0)), width, shape)


def _flat(a: Operand, b: Operand) -> tuple[list[Operand], list[Operand], Tensor, tuple[int, ...]]:
    """Return the operands of each product of a batch, an empty result, and its shape."""
    x, y = elements_of(a).shape, elements_of(b).shape
    batch = broadcast_shape(x[:-2], y[:-2])
    results = torch.empty(batch.numel(), x[-2], y[-1], dtype=torch.int64)
    return matrices_of(a, batch), matrices_of(b, batch), results, (*batch, x[-2], y[-1])


def drawn(spec: RunningSumSpec, n: int, k: int, m: int, random: torch.Generator) -> tuple[Operand, Operand]:
    """Return matrices of random codes of shapes (n, k) and (k, m), or blocks or stored weights with such codes."""

    def codes(fmt: Format, *shape: int) -> Tensor:
        return torch.randint(1 << fmt.width, shape, generator=random)

    shapes, formats = {"a": (n, k), "b": (k, m)}, spec.operands
    if isinstance(spec, SparseMacSpec):
        stored = -(-k // spec.group[1]) * spec.group[0]
        index = torch.randint(spec.group[1], (stored, m), generator=random)
        return codes(spec.a, n, k), SparseTensor(codes(spec.b, stored, m), index)
    if not isinstance(spec, BlockMacSpec):
        return codes(formats["a"], *shapes["a"]), codes(formats["b"], *shapes["b"])
    blocks = -(-k // spec.a.length)
    scales = {"a": (n, blocks), "b": (blocks, m)}
    a, b = (BlockTensor(codes(formats[x], *shapes[x]), codes(formats[f"{x}_scale"], *scales[x])) for x in ("a", "b"))
    return a, b


def run(tile: Tile) -> None:
    """Run the host program of a card; exit code 1 for a wrong result, 2 for a wrong request, 3 if the card fails."""

    @click.command(context_settings={"help_option_names": ["-h", "--help"]})
    @click.argument("xclbin", type=click.Path(exists=True, dir_okay=False, path_type=Path))
    @click.option("--device", default=0, metavar="N", type=click.IntRange(0), help="index of the card; default: 0")
    @click.option("--n", "rows", default=100, metavar="N", type=click.IntRange(1), help="rows; default: 100")
    @click.option("--k", "depth", default=100, metavar="N", type=click.IntRange(1), help="products per sum")
    @click.option("--m", "columns", default=100, metavar="N", type=click.IntRange(1), help="columns")
    @click.option("--seed", default=0, metavar="N", type=click.IntRange(0), help="seed of the operands; default: 0")
    @click.option("--runs", default=2, metavar="N", type=click.IntRange(1), help="number of products")
    def main(xclbin: Path, device: int, rows: int, depth: int, columns: int, seed: int, runs: int) -> None:
        """Run matrix products of random codes on a card and check every element. XCLBIN is the output of v++."""
        card = Card(tile, xclbin, device)
        random = torch.Generator().manual_seed(seed)
        spec = tile.spec
        for number in range(1, runs + 1):
            a, b = drawn(spec, rows, depth, columns, random)
            go_on = number > 1
            want = card.expected(a, b, go_on=go_on)
            wrong = (card.product(a, b, go_on=go_on) != want).nonzero()
            shape = f"product {number}, {rows} x {depth} x {columns} of {spec.expression}"
            if len(wrong):
                row, column = wrong[0].tolist()
                click.echo(f"{shape}: {len(wrong):,} of {want.numel():,} elements are wrong, first [{row}, {column}]")
                sys.exit(1)
            click.echo(f"{shape}: all {want.numel():,} elements match the golden model")

    commands.run(main, Path(sys.argv[0]).name)
