"""All files of a package."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from halfulp.tools.progress import Progress, silent
from halfulp.units.verilog import HIGH, SYNC

from .contents import Controls, Package
from .manifest import SCHEMA, manifest


def files(  # noqa: PLR0913 - options of `emit`, by name
    components: Sequence[Any],
    name: str,
    *,
    prefix: str = "",
    reset: str = SYNC,
    enable: str = HIGH,
    ports: Mapping[str, str] | None = None,
    initial: bool = True,
    streams: Mapping[str, int] | None = None,
    progress: Progress = silent,
) -> dict[str, str]:
    """Return the texts of the files of a package, by path.

    Parameters
    ----------
    components : sequence of Unit
    name : str
        Name of the package; also that of the module if there is one component.
    prefix : str
        Prefix of the names of modules and of the package.
    reset, enable, ports, initial
        Controls of all units that have them; see `halfulp.units.verilog.emit`.
    streams : mapping of str to int, optional
        Parameters of `halfulp.units.AxiStream` for the streams of units on which they have an effect.
    progress : Progress

    Raises
    ------
    TypeError, ValueError
        If a unit is given twice, Verilog does not allow a name, or no unit has a port that the controls describe or
        a stream on which an option has an effect.
    ToolError
        If Yosys fails.
    """
    controls = Controls(reset, enable, dict(ports or {}), initial)
    package = Package.of(components, name, prefix=prefix, controls=controls, streams=streams or {}, progress=progress)
    texts = package.files()
    texts[SCHEMA] = Path(__file__).with_name(SCHEMA).read_text()
    return {**texts, "manifest.json": json.dumps(manifest(package, texts), indent=2) + "\n"}
