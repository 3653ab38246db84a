"""Waveforms with decoded numbers: each port with a format has a text signal with its value."""

import functools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from halfulp.hdl.formats import Format
from halfulp.tools.paths import machine_errors, replacing

from .ports import Ports

if TYPE_CHECKING:
    from halfulp.units import Unit


def decode_wave(trace: Path, wave: Path, unit: "Unit") -> None:
    """Copy a value change dump and add decoded signals.

    Parameters
    ----------
    trace : Path
        File from the simulator.
    wave : Path
        Path of the copy, written atomically.
    unit : Unit
        Unit of the waveform.
    """
    with machine_errors("the waveform"), replacing(wave) as raw, trace.open() as source:
        raw.writelines(line.encode() for line in _decoded(source, _formats(unit)))


def _formats(unit: "Unit") -> dict[tuple[str, int], Format]:
    """Return the formats of signals in the harness and the unit, by name and width."""
    found: dict[tuple[str, int], Format] = {}
    for port in (*Ports.inputs_of(unit), *Ports.of(unit.outputs)):
        if port.fmt is not None:
            for name in (port.name, f"plain_{port.name}", f"stream_{port.name}"):
                found[name, port.width] = port.fmt
            if unit.stateful and port.name == "o":
                names = ["accumulator", "base"]
                names += [f"accumulator_{turn}" for turn in range(unit.spec.interleave)]
                found |= {(name, port.width): port.fmt for name in names}
    return found


def _decoded(lines: Iterable[str], formats: dict[tuple[str, int], Format]) -> Iterator[str]:
    """Yield all lines with those of decoded signals; Verilator writes one declaration or change per line.

    Parts of signals (see `halfulp.units.verilog.emit`) and temporary signals of Yosys are dropped.
    """
    declared: set[str] = set()
    companions: dict[str, tuple[str, Format]] = {}
    text = functools.cache(lambda fmt, bits: fmt.text(int(bits, 2)))
    for line in lines:
        words = line.split()
        if not words or words[0][0] in "$#":
            # Some readers reject Verilator's name of the top scope.
            line = line.replace("$rootio", "TOP") if words[:1] == ["$scope"] else line
            if words[:1] == ["$var"]:
                _, _, width, identifier, name, *_ = words
                fmt = formats.get((name, int(width)))
                if fmt is None and re.match(r"\$|.*_part\d+$", name):
                    continue
                declared.add(identifier)
                if fmt is not None:
                    # A signal with two names has a companion with two names.
                    companion, _ = companions.setdefault(identifier, (f"~{len(companions)}", fmt))
                    line += f"$var string 1 {companion} {name}_{str(fmt).replace('-', '_')} $end\n"
            yield line
        elif len(words) == 1:
            if words[0][1:] in declared:
                yield line
        elif words[1] in declared:
            yield line
            if words[1] in companions:
                companion, fmt = companions[words[1]]
                yield f"s{text(fmt, words[0][1:])} {companion}\n"
