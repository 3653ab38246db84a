"""Files of test vectors for programs and simulators that are not Python, and files of their results."""

import io
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from halfulp.hdl.specs.formula import Port
from halfulp.tools.paths import machine_errors, write_whole

from .bench import plan
from .ports import Codes, Ports
from .reference import reference

if TYPE_CHECKING:
    from halfulp.units import Unit

DEFAULT = 1 << 16
"""Default number of vectors of a unit that is not exhaustive."""

TITLE = "Test vectors of "
"""Beginning of the first line of a file, before the text of the unit."""

PER_LINE = 8
"""Number of codes in a line of an array."""


@dataclass(frozen=True)
class Table:
    """Vectors of a unit with its results.

    The vectors are independent. An accumulator loads its start value, the port ``c``, in each vector; the controls
    ``load`` and ``clear`` are not in the files. A unit with its own random source is reset before the first vector and
    then takes one vector in each cycle.

    Attributes
    ----------
    unit : Unit
    codes : mapping of str to Codes
        Codes of all inputs.
    results : mapping of str to Codes
        Codes of all outputs.
    what : str
        Choice of the vectors, in words.
    """

    unit: "Unit"
    codes: Mapping[str, Codes]
    results: Mapping[str, Codes]
    what: str

    @classmethod
    def of(cls, unit: "Unit", *, seed: int = 0, limit: int | None = None) -> "Table":
        """Choose the vectors of a unit and compute its results with the golden model."""
        vectors = plan(unit, seed=seed, limit=limit or DEFAULT).vectors
        return cls(unit, vectors.codes, reference(unit, vectors.codes), vectors.what)

    @property
    def ports(self) -> list[tuple[Port, Codes]]:
        """Ports of the files, inputs before outputs, with their codes."""
        inputs, outputs = Ports.inputs_of(self.unit).stateless, Ports.of(self.unit.outputs)
        return [(port, self.codes[port.name]) for port in inputs] + [
            (port, self.results[port.name]) for port in outputs
        ]

    @property
    def count(self) -> int:
        """Number of vectors."""
        return len(self.ports[0][1])


def _digits(port: Port) -> int:
    return -(-port.width // 4)


def text(table: Table) -> str:
    """Return lines of codes in hexadecimal, separated by spaces: operands, then results, as TestFloat writes them.

    The lines before them, which begin with ``#``, have the text of the unit, and the ports in their order.
    """
    columns = [[f"{code:0{_digits(port)}X}" for code in codes.tolist()] for port, codes in table.ports]
    rows = (" ".join(row) for row in zip(*columns, strict=True))
    return "".join(f"{line}\n" for line in (*(f"# {line}" for line in _head(table)), *rows))


def c_header(table: Table) -> str:
    """Return a C header with an array of the narrowest unsigned type for each port."""
    name = table.unit.name
    arrays = [
        _array(f"static const {_c_type(port)} {name}_{port.name}[{name}_count] = {{", "0x", "};", port, codes)
        for port, codes in table.ports
    ]
    guard = f"{name}_vectors_h".upper()
    head = [f"/* {line} */" for line in _head(table)]
    return "\n".join(
        [
            *(*head, f"#ifndef {guard}", f"#define {guard}", "#include <stdint.h>", ""),
            *(f"enum {{ {name}_count = {table.count} }};", *arrays, "#endif", ""),
        ]
    )


def system_verilog(table: Table) -> str:
    """Return an include file for SystemVerilog with an unpacked array parameter for each port."""
    name = table.unit.name
    arrays = [
        _array(
            f"localparam logic [{port.width - 1}:0] {name}_{port.name} [0:{table.count - 1}] = '{{",
            f"{port.width}'h",
            "};",
            port,
            codes,
        )
        for port, codes in table.ports
    ]
    head = [f"// {line}" for line in _head(table)]
    return "\n".join([*head, f"localparam int {name}_count = {table.count};", *arrays, ""])


def _head(table: Table) -> list[str]:
    inputs, outputs = Ports.inputs_of(table.unit).stateless, Ports.of(table.unit.outputs)
    ports = [
        f"{port.name}: {f'{port.fmt}, ' if port.fmt else ''}{port.width} bit{'s' * (port.width > 1)}"
        for port in (*inputs, *outputs)
    ]
    return [f"{TITLE}{table.unit.spec.text}, {table.what}. Written by halfulp.", "; ".join(ports)]


def _array(begin: str, prefix: str, end: str, port: Port, codes: Codes) -> str:
    shown = [f"{prefix}{code:0{_digits(port)}x}" for code in codes.tolist()]
    lines = [", ".join(shown[start : start + PER_LINE]) for start in range(0, len(shown), PER_LINE)]
    return "\n".join([begin, ",\n".join(f"  {line}" for line in lines), end])


def _bits(port: Port) -> int:
    """Return the width of the narrowest unsigned integer of a computer that holds the codes of a port."""
    return max(8, 1 << (port.width - 1).bit_length())


def _c_type(port: Port) -> str:
    return f"uint{_bits(port)}_t"


def npz(table: Table) -> bytes:
    """Return a numpy archive with an array for each port, and the text of the unit as ``unit``."""
    file = io.BytesIO()
    arrays: dict[str, Any] = {port.name: codes.astype(f"uint{_bits(port)}") for port, codes in table.ports}
    np.savez_compressed(file, unit=np.array(table.unit.spec.text), **arrays)
    return file.getvalue()


LAYOUTS: dict[str, tuple[str, Callable[[Table], str | bytes]]] = {
    "txt": (".txt", text),
    "c": (".h", c_header),
    "sv": (".svh", system_verilog),
    "npz": (".npz", npz),
}
"""Layouts of files, with the ending of their names and the function that writes them."""


def layout_of(output: Path | None, asked: str | None) -> str:
    """Return the layout that is asked for, or that of a file's name; raises ValueError if there is none."""
    if asked is not None:
        return asked
    if output is None:
        return "txt"
    layout = next((name for name, (ending, _) in LAYOUTS.items() if output.suffix == ending), None)
    if layout is None:
        endings = ", ".join(ending for ending, _ in LAYOUTS.values())
        raise ValueError(f"{output.name} has none of the endings {endings}; choose one, or a layout with --as")
    return layout


def write(table: Table, layout: str, output: Path) -> None:
    """Write a file, whole or not at all."""
    content = LAYOUTS[layout][1](table)
    write_whole(output, content, str(output))


def read(path: Path, unit: "Unit") -> Table:
    """Read vectors with results, as text or as a numpy archive.

    Raises
    ------
    ValueError
        If the file is empty or names another unit, or a line or an array does not fit the ports of the unit.
    """
    inputs, outputs = Ports.inputs_of(unit), Ports.of(unit.outputs)
    ports = [*inputs.stateless, *outputs]
    columns = _arrays(path, ports, unit) if path.suffix == ".npz" else _lines(path, ports, unit)
    if not len(columns[0]):
        raise ValueError(f"{path.name} has no vectors")
    by_port = {port.name: column for port, column in zip(ports, columns, strict=True)}
    count = len(columns[0])
    state = {port.name: np.full(count, port.name == "load", dtype=np.uint64) for port in inputs}
    codes = {port.name: by_port.get(port.name, state[port.name]) for port in inputs}
    return Table(unit, codes, {port.name: by_port[port.name] for port in outputs}, f"{count:,} of {path.name}")


def _check_unit(path: Path, named: str, unit: "Unit") -> None:
    """Raise ValueError if a file names another unit; ``named`` is its text and what follows."""
    if not f"{named},".startswith(f"{unit.spec.text},"):
        raise ValueError(
            f"{path.name} has vectors of another unit than {unit.spec.text}: {named}; delete its first line, or the "
            "array unit, to compare its results anyway"
        )


def _lines(path: Path, ports: list[Port], unit: "Unit") -> list[Codes]:
    rows = []
    names = " ".join(port.name for port in ports)
    with machine_errors(str(path)):
        try:
            # Editors of Windows begin a text with a mark of its byte order.
            lines = path.read_text(encoding="utf-8-sig").splitlines()
        except UnicodeDecodeError:
            raise ValueError(
                f"{path.name} is not a text file; expected lines of codes in hexadecimal: {names}"
            ) from None
    for number, line in enumerate(lines, 1):
        content, _, comment = line.partition("#")
        words = content.split()
        if number == 1 and comment.startswith(f" {TITLE}"):
            _check_unit(path, comment.removeprefix(f" {TITLE}").removesuffix(". Written by halfulp."), unit)
        if not words:
            continue
        if len(words) != len(ports):
            raise ValueError(
                f"{path.name}, line {number}: expected {len(ports)} codes separated by blanks, {names}; "
                f"found {len(words)}"
            )
        try:
            codes = [int(word, 16) for word in words]
        except ValueError:
            raise ValueError(f"{path.name}, line {number}: {line.strip()!r} is not hexadecimal: {names}") from None
        for port, word, code in zip(ports, words, codes, strict=True):
            if not 0 <= code < 1 << port.width:
                raise ValueError(
                    f"{path.name}, line {number}: {word} does not fit the {port.width} bits of {port.name}"
                )
        rows.append(codes)
    return list(np.array(rows, dtype=np.uint64).reshape(len(rows), len(ports)).T)


def _arrays(path: Path, ports: list[Port], unit: "Unit") -> list[Codes]:
    names = ", ".join(port.name for port in ports)
    try:
        # numpy takes other files for arrays or pickled objects.
        with zipfile.ZipFile(path), np.load(path) as archive:
            arrays = {port.name: archive[port.name] for port in ports if port.name in archive}
            named = str(archive["unit"]) if "unit" in archive else unit.spec.text
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error):
        raise ValueError(f"{path.name} is not a numpy archive with arrays of integers: {names}") from None
    _check_unit(path, named, unit)
    if missing := [port.name for port in ports if port.name not in arrays]:
        raise ValueError(f"{path.name} has no array {missing[0]}; expected {names}")
    columns = []
    for port in ports:
        array = arrays[port.name]
        if array.ndim != 1 or array.dtype.kind not in "ui" or len(array) != len(arrays[ports[0].name]):
            raise ValueError(f"{path.name}: {port.name} must be an array of integers, as long as the others")
        if len(array) and (int(array.min()) < 0 or int(array.max()) >= 1 << port.width):
            raise ValueError(f"{path.name}: {port.name} has codes that do not fit its {port.width} bits")
        columns.append(array.astype(np.uint64))
    return columns
