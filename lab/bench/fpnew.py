"""FPnew, measured with the settings of this library's units: the sources of CV32E40P, which a package of Python has."""

import importlib
import re
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pandas as pd

from halfulp.boards.targets import target_of
from halfulp.fpga.synth.measure import Cost
from halfulp.implementation import short
from halfulp.tools.digests import version
from halfulp.tools.errors import ToolError
from halfulp.tools.jobs import LOCAL, JobPool
from halfulp.tools.progress import Progress, silent
from halfulp.tools.tables import Table

from .peers import measure

PACKAGE = "pythondata-cpu-cv32e40p"
"""Package of the extra ``dev`` with the sources of CV32E40P."""

MANIFEST = "cv32e40p_fpu_manifest.flist"
"""File of the core that lists its sources."""

PORTS = Path(__file__).with_name("fpnew.sv")
"""Modules with plain ports."""

COMMAND = "halfulp report peers"

_OPERATION = "one operation of fpnew_fma; subnormals; rounding mode as an input, five modes; "
_NO_FLAGS, _FLAGS = f"{_OPERATION}flags not connected; ", f"{_OPERATION}flags; "
_FPU = "EnableNanBox; ADDMUL and CONV MERGED, NONCOMP PARALLEL; PipeRegs 0; "


@dataclass(frozen=True)
class Row:
    """Module that is measured.

    Attributes
    ----------
    unit : str
        Unit of this library with the same function.
    module : str
        Module of ``fpnew.sv``.
    configuration : str
    target : str
    stages : int
        Register stages between operands and result.
    """

    unit: str
    module: str
    configuration: str
    target: str = "vu9p"
    stages: int = 0

    def measured(self, pool: JobPool = LOCAL) -> Cost:
        """Return its cost; with its clock between registers at all ports, if nextpnr supports the device."""
        files, include = sources()
        target = target_of(self.target)
        return measure(
            [PORTS, *files],
            self.module,
            target,
            include=[include],
            clock="clk_i",
            route=bool(target.nextpnr),
            pool=pool,
        )


ROWS: tuple[Row, ...] = (
    *(
        Row(f"{unit} {fmt}", f"fpnew_{unit}_{fmt}", f"{_NO_FLAGS}combinational")
        for unit in ("mul", "add", "fma")
        for fmt in ("e5m2", "fp16", "bf16")
    ),
    *(
        Row(
            str(short(unit, fmt, rounding="port", flags="after")), f"fpnew_{unit}_{fmt}_flags", f"{_FLAGS}combinational"
        )
        for unit in ("mul", "add", "fma")
        for fmt in ("e5m2", "fp16")
    ),
    *(
        Row(
            "fma fp16",
            f"fpnew_fma_fp16_{stages}" if stages else "fpnew_fma_fp16",
            f"{_NO_FLAGS}registers DISTRIBUTED",
            "ecp5-85k",
            stages,
        )
        for stages in (0, 1, 2, 3, 6)
    ),
    Row("fpu fp32", "fpnew_fp32", f"RV32F; {_FPU}DIVSQRT DISABLED; IntFmtMask 4'b0010"),
    Row("fpu fp32 divide", "fpnew_fp32_divide", f"RV32F; {_FPU}DIVSQRT MERGED, PulpDivsqrt 0; IntFmtMask 4'b0010"),
    Row(
        "fpu fp32,fp16,bf16,e5m2 width=32",
        "fpnew_formats",
        f"FpFmtMask 5'b10111, EnableVectors; {_FPU}DIVSQRT DISABLED; IntFmtMask 4'b1110",
    ),
)
"""Rows of ``peers.csv`` that are measured."""


def sources() -> tuple[list[Path], Path]:
    """Return the files of FPnew in their order, and the folder of the files that they include.

    Raises
    ------
    ToolError
        If the package is not installed.
    """
    folder = Path(_package().data_location)
    listed = re.findall(r"^\$\{DESIGN_RTL_DIR\}/(vendor/\S+)$", (folder / MANIFEST).read_text(), re.MULTILINE)
    # The core does not use the unit of one format.
    files = [folder / "rtl" / name for name in (*listed, "vendor/pulp_platform_fpnew/src/fpnew_fma.sv")]
    return files, folder / "rtl/vendor/pulp_platform_common_cells/include"


def _package() -> ModuleType:
    try:
        return importlib.import_module(PACKAGE.replace("-", "_"))
    except ImportError:
        raise ToolError(f"{PACKAGE} is not installed; it has the sources of FPnew (pip install {PACKAGE})") from None


def table(progress: Progress = silent, pool: JobPool = LOCAL) -> Table:
    """Return the rows of ``peers.csv`` that are measured."""
    origin = {"version": f"{PACKAGE} {version(PACKAGE)}", "commit": f"CV32E40P {_package().data_git_hash}"}
    found = []
    progress.total("units", len(ROWS))
    for row in ROWS:
        cost = row.measured(pool)
        progress.advance(1)
        asked = {"unit": row.unit, "design": "FPnew", "target": row.target, "stages": row.stages}
        figures = {"LUT": cost.lut, "FF": cost.ff, "path": cost.path, "MHz": cost.fmax}
        found.append(asked | figures | origin | {"configuration": row.configuration, "command": COMMAND})
    notes = ["MHz: after place and route, between registers at all ports, which are not counted."]
    return Table("Units of FPnew", pd.DataFrame(found), {"MHz": ".1f"}, notes)
