"""Results of a run, as text and as JUnit XML."""

import itertools
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import numpy as np

from halfulp.hdl.formats import RN, Saturation
from halfulp.hdl.specs import PwlSpec
from halfulp.hdl.specs.pwl import is_table_name
from halfulp.implementation import Implementation
from halfulp.tools.paths import write_whole

from .exact_text import line, shown
from .ports import Ports

if TYPE_CHECKING:
    from halfulp.units import Unit


@dataclass(frozen=True)
class Failure:
    """Failure of a check.

    Attributes
    ----------
    kind : str
        ``mismatch`` for a wrong result, ``golden`` for a wrong golden model; ``latency``, ``stall``, ``bubble``,
        ``withdrawn``, ``payload`` or ``count`` for a violated protocol.
    text : str
        Full report.
    codes, expected, got : dict, optional
        Codes of a mismatch: inputs, expected outputs and actual outputs.
    """

    kind: str
    text: str
    codes: dict[str, int] | None = None
    expected: dict[str, int] | None = None
    got: dict[str, int] | None = None


@dataclass(frozen=True)
class Check:
    """One part of a run.

    Attributes
    ----------
    tool : str
        ``cocotb``, ``compiled loop``, ``sweep`` or ``pyuvm``.
    name : str
        ``plain``, ``chain`` or ``stream``; ``regressions``; ``tile`` for an array.
    checked, failed : int
        Numbers of compared results and of failures.
    failures : list of Failure
        First failures.
    """

    tool: str
    name: str
    checked: int
    failed: int
    failures: list[Failure]


@dataclass
class Result:
    """Result of a run.

    Attributes
    ----------
    title : str
        Text of the unit.
    what : str
        Formats, rounding and latency, in words.
    vectors : str
        Choice of the vectors, in words.
    wave : Path, optional
        File of the waveform.
    notes : list of str
        Additional lines.
    """

    title: str
    what: str
    vectors: str
    checks: list[Check] = field(default_factory=list)
    seconds: float = 0.0
    wave: Path | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def checked(self) -> int:
        """Number of compared results."""
        return sum(check.checked for check in self.checks)

    @property
    def failed(self) -> int:
        """Number of failures."""
        return sum(check.failed for check in self.checks)

    @property
    def passed(self) -> bool:
        """True if every check compared results and none failed."""
        return bool(self.checks) and all(check.checked > 0 and check.failed == 0 for check in self.checks)

    @property
    def data(self) -> dict[str, Any]:
        """Fields of the result with the verdict, for JSON."""
        own = {item.name: getattr(self, item.name) for item in fields(self)}
        return {"passed": self.passed, "checked": self.checked, "failed": self.failed} | own


MOST = 3
"""Maximum number of failures per check in the summary."""

_DOING = {
    ("cocotb", "plain"): "with stalls",
    ("cocotb", "chain"): "chained, with stalls",
    ("cocotb", "stream"): "through the stream wrapper, with back-pressure",
    ("compiled loop", "regressions"): "regressions, before all others",
    ("compiled loop", "plain"): "one per cycle",
    ("compiled loop", "chain"): "chained",
    ("sweep", "plain"): "one per cycle",
    ("pyuvm", "plain"): "observed on the unit, with stalls",
    ("pyuvm", "stream"): "observed on the stream wrapper, with back-pressure",
    ("pyuvm", "tile"): "observed on the array, with gaps and back-pressure",
}


def summary(result: Result) -> str:
    """Format a run as a short text, with the first failures in full."""
    lines = [result.title, f"  {result.what}", f"  vectors     {result.vectors}"]
    for check in result.checks:
        doing = _DOING.get((check.tool, check.name), check.name)
        if check.tool == "cocotb" and check.name == "plain" and "combinational" in result.what:
            doing = "combinational"
        if doing == "one per cycle" and "operands every" in result.what:
            doing = "as fast as they are accepted"
        wrong = f", {check.failed:,} wrong" if check.failed else ""
        lines.append(f"  {check.tool:14}{check.checked:>13,}  {doing}{wrong}")
    lines += [f"  {note}" for note in result.notes]
    lines.append(f"  mismatches  {result.failed:,}")
    lines.append(f"  seconds     {result.seconds:.1f}")
    if result.wave is not None:
        lines.append(f"  waveform    {result.wave}")
    lines.append("PASS" if result.passed else "FAIL")
    failures = 0
    for check in result.checks:
        # Violated protocols explain the mismatches that they cause, so they come first.
        for failure in sorted(check.failures, key=lambda failure: failure.kind == "mismatch")[:MOST]:
            failures += 1
            lines += [
                "",
                f"{check.tool}, {check.name}: {failure.kind}",
                *(f"  {row}" for row in failure.text.split("\n")),
            ]
    if result.failed > failures > 0:
        lines += ["", f"and {result.failed - failures:,} more"]
    return "\n".join(lines)


def describe(unit: "Unit") -> str:
    """Describe the formats, rounding and latency of a unit."""
    given = unit.parameters
    operands, results = _format_ports(unit.inputs), _format_ports(unit.outputs)
    product = f", product {given['product']}.{given['product_rounding']}" if given.get("product") is not None else ""
    source = f" from {unit.spec.random}" if unit.spec.random else ""
    saturate = {Saturation.OFF: "", Saturation.SAT: ", saturating", Saturation.SATFINITE: ", saturating infinities too"}
    split = "" if given.get("increment", True) else ", carries as outputs"
    clock = f"latency {unit.latency}" if unit.clocked else "combinational"
    clock += f", operands every {unit.initiation} cycles" if unit.initiation > 1 else ""
    rounding = f", rounding {unit.spec.rounding}" if unit.spec.ROUNDS else ""
    return f"{operands}{product} -> {results}{rounding}{source}{saturate[unit.spec.saturate]}{split}, {clock}"


def _format_ports(shapes: Any) -> str:
    """Format the names and formats of ports; a numbered series is one entry."""
    formats = Ports.of(shapes).formats
    rows = [list(row) for _, row in itertools.groupby(formats, lambda name: name.rstrip("0123456789"))]
    return ", ".join(f"{row[0]}{f' to {row[-1]}' * (len(row) > 1)} {formats[row[0]]}" for row in rows)


def mismatch(
    unit: "Unit", codes: dict[str, int], expected: dict[str, int], got: dict[str, int], commands: bool = True
) -> Failure:
    """Create the failure of a wrong result, with the commands that run and save its vector in this library's unit.

    A unit with its own random source is replaced by the same unit with random ports; the codes include the random
    words.
    """
    if unit.sources:
        unit = Implementation(unit.spec.without_source, unit.build).component()
    inputs, outputs = Ports.inputs_of(unit), Ports.of(unit.outputs)
    lines = shown(unit, inputs, codes)
    for port in outputs:
        if expected[port.name] != got[port.name]:
            lines.append(line(port, expected[port.name], "expected"))
            lines.append(line(port, got[port.name], "got"))
    if (exact := exact_codes(unit, codes, expected)) != expected:
        codes_of_exact = ", ".join(map(hex, exact.values()))
        lines.append(f"wrong golden model: exact arithmetic gives {codes_of_exact}")
    asked, vector = Implementation.of(unit), ("--vector", inputs.stateless.write(codes))
    if commands:
        lines += [f"again: {asked.command('sim', *vector)}", f"save:  {asked.command('save', *vector)}"]
    return Failure("mismatch", "\n".join(lines), codes, expected, got)


def unexplained(
    unit: "Unit", codes: dict[str, int], expected: dict[str, int], got: dict[str, int], where: str
) -> Failure:
    """Create the failure of a wrong sum that depends on earlier steps and has no command to reproduce it."""
    lines = [where, *(line(port, codes[port.name]) for port in Ports.inputs_of(unit))]
    for output in Ports.of(unit.outputs):
        lines += [line(output, expected[output.name], "expected"), line(output, got[output.name], "got")]
    return Failure("mismatch", "\n".join(lines), codes, expected, got)


def expected_lines(unit: "Unit", codes: dict[str, int]) -> list[str]:
    """Format one vector with its expected result."""
    from .reference import reference

    want = reference(unit, {name: np.array([code], dtype=np.uint64) for name, code in codes.items()})
    lines = shown(unit, Ports.inputs_of(unit), codes)
    return lines + [line(port, int(want[port.name][0]), "expected") for port in Ports.of(unit.outputs)]


def fit_lines(unit: "Unit") -> list[str]:
    """Format the largest error of a fitted function over every number; empty for other units."""
    if not isinstance(unit.spec, PwlSpec) or is_table_name(unit.spec.function):
        return []
    # numpy and mpmath load slowly.
    from halfulp.hdl.fit.error import errors
    from halfulp.hdl.fit.functions import function_of

    rounding = RN if unit.spec.rounding.mode in ("sr", "exact") else unit.spec.rounding
    fit_errors = errors(unit.table, function_of(unit.spec.function), rounding=rounding)
    ulp, absolute = fit_errors.ulp.max(), fit_errors.absolute.max()
    return [f"fit         largest error {ulp:.4g} ulp, at a = {fit_errors.at:.6g}; {absolute:.3g} absolute"]


def exact_codes(unit: "Unit", codes: dict[str, int], expected: dict[str, int]) -> dict[str, int]:
    """Compute the results of one vector with the exact model, by port: faithful ones are those expected, if right."""
    from halfulp.golden import exact

    from .reference import exact_call

    operation, operands, parameters = exact_call(unit, codes)
    if unit.spec.rounding.faithful and expected["o"] in exact.neighbours(operation, *operands, **parameters):
        return expected
    answer = operation(*operands, **parameters)
    fields = answer if isinstance(answer, tuple) else (answer,)
    if (fmt := getattr(unit.spec, "o", None)) is not None and 1 < fmt.parts == len(unit.outputs):
        fields = (fmt.codes_of(answer),)
    fields = tuple(code for field in fields for code in (field if isinstance(field, list) else [field]))
    return {name: int(value) for name, value in zip(unit.outputs, fields, strict=True)}


def write_junit(result: Result, path: Path) -> None:
    """Write a run as JUnit XML."""
    root = ElementTree.Element("testsuites")
    suite = ElementTree.SubElement(
        root,
        "testsuite",
        name=result.title,
        tests=str(len(result.checks)),
        failures=str(sum(check.failed > 0 or check.checked == 0 for check in result.checks)),
        time=f"{result.seconds:.3f}",
    )
    for check in result.checks:
        case = ElementTree.SubElement(
            suite, "testcase", classname=f"halfulp.{result.title}", name=f"{check.tool} {check.name}"
        )
        properties = ElementTree.SubElement(case, "properties")
        ElementTree.SubElement(properties, "property", name="vectors", value=str(check.checked))
        if check.failed or not check.checked:
            message = f"{check.failed} of {check.checked} wrong" if check.checked else "nothing was checked"
            node = ElementTree.SubElement(case, "failure", message=message)
            node.text = "\n\n".join(failure.text for failure in check.failures)
    ElementTree.indent(root)
    write_whole(path, ElementTree.tostring(root, encoding="utf-8", xml_declaration=True), "the test results")
