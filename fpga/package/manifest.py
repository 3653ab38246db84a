"""Manifest of a package, as data for `manifest.json`; `manifest.schema.json` is its JSON schema."""

import csv
import functools
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from halfulp.boards.targets import ASIC, TARGETS
from halfulp.hdl.formats import SATFINITE
from halfulp.implementation import Implementation
from halfulp.tools.digests import version
from halfulp.tools.paths import kind_of

from .contents import Package, PackagedPort, PackagedUnit, codes_of, format_fields, type_name
from .streams import Channel

SCHEMA = "manifest.schema.json"
"""Name of the JSON schema, in this folder and in each package."""

LAYOUT = 2
"""Version of the layout of the manifest."""

RECORDS = Path(__file__).parents[1] / "results"
"""Folder of the measured costs, which `halfulp cost` writes."""

_FILES = ("small.csv", "catalogue.csv")
"""Records of units; the second one has clocks."""

_STAGES = "clocks-stages.csv", "ecp5-85k"
"""Record of the clocks of units by register stages, and its target."""

_CELLS, _LIBRARY = "cells.csv", "osu018_stdcells"
"""Record of units in standard cells, and their library."""

_CELL_FIGURES = {
    "cells": "cells",
    "ff": "FF",
    "area_um2": "um^2",
    "gate_equivalents": "GE",
    "delay_ns": "ns",
    "energy_pj": "pJ",
    "leakage_nw": "leakage nW",
}
"""Names of the figures of standard cells in the manifest and in their record."""

_COUNTS = ("LUT", "FF", "carry", "mux", "DSP", "BRAM", "URAM")

_KINDS = {
    ".hex": "vectors",
    ".vlt": "waivers",
    ".core": "fusesoc",
    ".cpp": "model",
    ".h": "model",
    ".xml": "ipxact",
    ".md": "documentation",
    ".json": "schema",
}
"""Kinds of files of a package by suffix, where they are not those of `kind_of`."""

_OF_TOOLS = {"asic": {".yaml": "librelane", ".py": "siliconcompiler"}}
"""Kinds of files in folders for tools."""


def manifest(package: Package, files: Mapping[str, str]) -> dict[str, Any]:
    """Return the manifest of a package with these files."""
    return {
        "$schema": SCHEMA,
        "layout": LAYOUT,
        "name": package.name,
        "generator": {"name": "halfulp", "version": version("halfulp")},
        "formats": [_format(fmt) for fmt in package.formats],
        "units": [_unit(unit, package, files) for unit in package.units],
        "files": [{"path": path, "kind": file_kind(path), "sha256": _sha256(text)} for path, text in files.items()],
    }


def file_kind(path: str) -> str:
    """Return the kind of a file; copies of Verilog in the cores of Vivado are not that of the package."""
    folder, suffix = path.partition("/")[0], Path(path).suffix
    own = _OF_TOOLS.get(folder, {}).get(suffix) or ("vivado" if folder == "vivado" else _KINDS.get(suffix))
    return own or kind_of(Path(path))


def _format(fmt: Any) -> dict[str, Any]:
    return {
        "format": str(fmt),
        "description": fmt.describe(),
        "width": fmt.width,
        "type": type_name(fmt),
        "fields": [{"name": name, "low": low, "width": width} for name, low, width in format_fields(fmt)],
        "codes": {name: f"0x{code:0{-(-fmt.width // 4)}x}" for name, code in codes_of(fmt).items()},
    }


def _unit(unit: PackagedUnit, package: Package, files: Mapping[str, str]) -> dict[str, Any]:
    netlist = package.netlist_files(unit)
    reset, enable, valid, ready, clock = (unit.control(role) for role in ("rst", "en", "valid", "ready", "clk"))
    return {
        "text": unit.text,
        "build": unit.component.build.options,
        "description": unit.summary,
        "module": unit.module,
        "latency": unit.latency,
        "initiation_interval": unit.initiation_interval,
        "rounding": unit.rounding,
        "saturates": bool(unit.component.saturate),
        "saturates_infinities": unit.component.saturate == SATFINITE,
        "stateful": unit.stateful,
        "clock": clock and {"port": clock.name, "edge": "rising"},
        "reset": reset and {"port": reset.name, "active": _active(reset), "style": ("sync", "async")[unit.async_reset]},
        "enable": enable and {"port": enable.name, "active": _active(enable)},
        "valid": valid and {"port": valid.name, "active": _active(valid)},
        "ready": ready and {"port": ready.name, "active": _active(ready)},
        "ports": [_port(port) for port in unit.ports],
        "typed": {"module": f"{unit.module}_typed", "file": f"rtl/{unit.module}_typed.sv"},
        "axi_stream": {
            "module": unit.stream.name,
            "file": f"rtl/{unit.stream.name}.v",
            "inputs": [_stream(channel) for channel in unit.stream.sources],
            "output": _stream(unit.stream.result),
            "result_per_sum": unit.stream.sums,
            "registered_ready": unit.stream.registered,
        },
        "vectors": {"file": package.vector_file(unit), "in_order": unit.stateful},
        "model": {"function": unit.model.function or None, "refusal": unit.model.refusal or None},
        "netlist": {
            "files": netlist,
            "sha256": _sha256("".join(files[path] for path in netlist)),
        },
        "costs": costs(unit.command),
    }


def _active(port: PackagedPort) -> str:
    return "low" if port.active_low else "high"


def _port(port: PackagedPort) -> dict[str, Any]:
    return {
        "name": port.name,
        "direction": port.direction,
        "width": port.width,
        "role": {"clk": "clock", "rst": "reset", "en": "enable"}.get(port.role, port.role),
        "format": None if port.fmt is None else str(port.fmt),
    }


def _stream(channel: Channel) -> dict[str, Any]:
    """Return the signals and the payload of an AXI4-Stream."""
    placed = [{"port": field.port.name, "low": field.low, "width": field.port.width} for field in channel.fields]
    return {"prefix": channel.prefix, "width": channel.bits, "fields": placed, "beside": channel.beside}


def costs(command: str) -> dict[str, dict[str, Any] | None]:
    """Return the recorded area and clock or delay of a unit by target; None where there is no record."""
    by_unit = _records().get(command, {})
    return {target: by_unit.get(target) for target in (*TARGETS, ASIC)}


@functools.cache
def _records() -> dict[str, dict[str, dict[str, Any]]]:
    by_unit: dict[str, dict[str, dict[str, Any]]] = {}
    for name in _FILES:
        with (RECORDS / name).open(newline="") as file:
            for row in csv.DictReader(file):
                clock = row.get("MHz") or None
                figures = {
                    **{kind.lower(): _number(row[kind]) for kind in _COUNTS},
                    "cells_on_path": int(row["path"]),
                    "clock_mhz": None if clock is None else _clock(clock),
                    "record": name,
                }
                by_unit.setdefault(row["unit"], {})[row["target"]] = figures
    name, target = _STAGES
    unknown = dict.fromkeys([*map(str.lower, _COUNTS), "cells_on_path"])
    with (RECORDS / name).open(newline="") as file:
        for row in csv.DictReader(file):
            unit = str(Implementation.parse(row["unit"], pipeline=int(row["stages"])))
            figures = {**unknown, "clock_mhz": _clock(row["MHz"]), "record": name}
            # Areas of units with stages are not recorded; other records have those without.
            by_unit.setdefault(unit, {}).setdefault(target, figures)
    with (RECORDS / _CELLS).open(newline="") as file:
        for row in csv.DictReader(file):
            figures = {name: _number(row[column]) for name, column in _CELL_FIGURES.items()}
            by_unit.setdefault(row["unit"], {})[ASIC] = figures | {"library": _LIBRARY, "record": _CELLS}
    return by_unit


def _clock(text: str) -> float:
    """Round a clock to 0.1 MHz; placements with other seeds differ by some percent."""
    return round(float(text), 1)


def _number(text: str) -> float:
    return float(text) if "." in text else int(text)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
