"""A waveform that shows numbers: beside each port with a format, a text signal with what its code stands for."""

import itertools
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from vcd.reader import TokenKind, Token, tokenize

from halfulp.hdl.formats import Format

from .ports import Ports


def decode_wave(trace: Path, wave: Path, unit: Any) -> None:
    """Copy a value change dump and add the decoded signals.

    Parameters
    ----------
    trace : Path
        As the simulator wrote it.
    wave : Path
        Where the copy goes, whole or not at all.
    unit : Unit
        Tells which ports have which format.
    """
    wave.parent.mkdir(parents=True, exist_ok=True)
    handle, scratch = tempfile.mkstemp(prefix=".wave.", suffix=".vcd", dir=wave.parent)
    try:
        with os.fdopen(handle, "w") as out, trace.open("rb") as source:
            _copy(tokenize(source), out, _formats(unit))
        os.replace(scratch, wave)
    except BaseException:
        os.unlink(scratch)
        raise


def _formats(unit: Any) -> dict[tuple[str, int], Format]:
    """Formats by name and width of the signals that carry them, in the harness and inside the unit."""
    found: dict[tuple[str, int], Format] = {}
    for port in (*Ports.of(unit.inputs), *Ports.of(unit.outputs)):
        if port.fmt is not None:
            for name in (port.name, f"plain_{port.name}", f"stream_{port.name}"):
                found[name, port.width] = port.fmt
            if unit.stateful and port.name == "o":
                found["accumulator", port.width] = found["base", port.width] = port.fmt
    return found


def _copy(tokens: Iterator[Token], out: IO[str], formats: dict[tuple[str, int], Format]) -> None:
    companions: dict[str, tuple[str, Format]] = {}
    fresh = (f"~{number}" for number in itertools.count())
    texts: dict[tuple[Format, str], str] = {}
    for token in tokens:
        out.write(_plain(token))
        if token.kind is TokenKind.VAR:
            var = token.var
            fmt = formats.get((var.reference, var.size))
            if fmt is not None:
                if var.id_code not in companions:
                    companions[var.id_code] = (next(fresh), fmt)
                # One signal under two names is one companion under two names.
                out.write(f"$var string 1 {companions[var.id_code][0]} {var.reference}_{fmt} $end\n".replace("-", "_"))
        elif token.kind is TokenKind.CHANGE_VECTOR and token.vector_change.id_code in companions:
            companion, fmt = companions[token.vector_change.id_code]
            value = token.vector_change.value
            key = fmt, str(value)
            if key not in texts:
                texts[key] = fmt.text(value) if isinstance(value, int) else "x"
            out.write(f"s{texts[key]} {companion}\n")


def _plain(token: Token) -> str:
    """A token as text again."""
    match token.kind:
        case TokenKind.CHANGE_TIME:
            return f"#{token.time_change}\n"
        case TokenKind.CHANGE_SCALAR:
            return f"{token.scalar_change.value}{token.scalar_change.id_code}\n"
        case TokenKind.CHANGE_VECTOR:
            value = token.vector_change.value
            text = f"{value:b}" if isinstance(value, int) else value
            return f"b{text} {token.vector_change.id_code}\n"
        case TokenKind.VAR:
            var = token.var
            bits = f" {var.bit_index}" if isinstance(var.bit_index, int) else ""
            if isinstance(var.bit_index, tuple):
                bits = f" [{var.bit_index[0]}:{var.bit_index[1]}]"
            return f"$var {var.type_.value} {var.size} {var.id_code} {var.reference}{bits} $end\n"
        case TokenKind.SCOPE:
            return f"$scope {token.scope.type_.value} {token.scope.ident} $end\n"
        case TokenKind.UPSCOPE:
            return "$upscope $end\n"
        case TokenKind.TIMESCALE:
            scale = token.timescale
            return f"$timescale {scale.magnitude.value}{scale.unit.value} $end\n"
        case TokenKind.ENDDEFINITIONS:
            return "$enddefinitions $end\n"
        case TokenKind.DUMPVARS:
            return "$dumpvars\n"
        case TokenKind.END:
            return "$end\n"
    return ""
