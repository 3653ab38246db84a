"""The program `halfulp`: the commands of all rooms.

Exit codes: 0 success, 1 a check failed, 2 the request is invalid, 3 a tool or the machine failed, 130 after Ctrl-C.
Commands import what they need when they run, so that help and errors are fast.
"""

import os
import pkgutil
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import click
from click.shell_completion import shell_complete

from halfulp import __version__
from halfulp.tools.commands import Refused, json_option, run, show
from halfulp.tools.errors import ToolError

GROUPS = {
    "Check a unit": {
        "sim": "halfulp.sim.cli",
        "sweep": "halfulp.sim.cli",
        "uvm": "halfulp.sim.uvm.cli",
        "save": "halfulp.sim.cli",
    },
    "Check hardware and libraries of others": {
        "vectors": "halfulp.sim.cli",
        "check": "halfulp.sim.cli",
    },
    "Prove units and measure the test bench": {
        "formal": "halfulp.sim.formal.cli",
        "coverage": "halfulp.sim.coverage.cli",
        "mutate": "halfulp.sim.mutation.cli",
    },
    "Write hardware": {
        "emit": "halfulp.fpga.vendor.cli",
        "tile": "halfulp.fpga.match.cli",
    },
    "Measure cost and error": {
        "synth": "halfulp.fpga.cli",
        "choose": "halfulp.fpga.cli",
        "report": "halfulp.cli",
        "stats": "halfulp.fpga.cli",
        "faults": "halfulp.sim.mutation.cli",
    },
    "Study networks": {
        "emulate": "halfulp.emulate",
        "train": "halfulp.lab.train.cli",
        "match": "halfulp.fpga.match.cli",
    },
    "Keep records of the project": {
        "cost": "halfulp.lab.bench.cli",
        "signoff": "halfulp.sim.cli",
        "bench": "halfulp.lab.bench.cli",
    },
}
"""Groups of commands in the help, and the module of each command."""

COMMANDS = {name: module for group in GROUPS.values() for name, module in group.items()}
"""Module of each command."""

REPORTS = {
    "sru": "halfulp.lab.papers.cli",
    "adders": "halfulp.lab.papers.cli",
    "composed": "halfulp.lab.bench.cli",
    "delays": "halfulp.lab.bench.cli",
    "peers": "halfulp.lab.bench.cli",
    "pwl": "halfulp.fpga.cli",
    "tiles": "halfulp.lab.papers.cli",
    "steps": "halfulp.lab.papers.cli",
    "clocks": "halfulp.lab.bench.cli",
    "accuracy": "halfulp.lab.papers.cli",
    "arbitor": "halfulp.lab.papers.cli",
    "blocks": "halfulp.lab.papers.cli",
    "esru": "halfulp.lab.papers.cli",
    "fase": "halfulp.lab.papers.cli",
    "mptorch": "halfulp.lab.papers.cli",
    "matrix-units": "halfulp.lab.papers.cli",
    "models": "halfulp.lab.papers.cli",
    "emulation": "halfulp.lab.papers.cli",
    "lowgen": "halfulp.lab.papers.cli",
}
"""Reports of `halfulp report`, and the module of each."""

LISTS = {
    "boards": ("halfulp.boards.catalogue:listing", "halfulp.boards.catalogue:BOARDS"),
    "formats": ("halfulp.sim.listing:formats", "halfulp.sim.listing:format_rows"),
    "grammar": ("halfulp.sim.listing:grammar", "halfulp.sim.listing:unit_rows"),
    "matrix-units": ("halfulp.hdl.specs.mma:listing", "halfulp.hdl.specs.mma:MATRIX_UNITS"),
    "targets": ("halfulp.boards.targets:listing", "halfulp.boards.targets:TARGETS"),
    "units": ("halfulp.sim.listing:units", "halfulp.sim.listing:unit_rows"),
}
"""Lists that `halfulp list` prints: the function that returns their lines, and the data for JSON."""

EXAMPLES = {
    "sim": "sim 'mac e5m2*e5m2+e6m5.sr10' --pipeline 2",
    "sweep": "sweep 'mul e4m3fn*e4m3fn=fp16'",
    "uvm": "uvm 'add fp16+fp16' --sequence directed",
    "save": "save 'mul e5m2*e5m2' --vector 0x3c,0x40 --why 'a power of two'",
    "vectors": "vectors 'fma bf16*bf16+fp32' -o fma.npz",
    "check": "check 'mul e5m2*e5m2' --results results.txt --json",
    "formal": "formal 'add e4m3fn+e4m3fn' --seconds 120",
    "coverage": "coverage 'mac e5m2*e5m2+e6m5' --code",
    "mutate": "mutate 'mul e5m2*e5m2' --mutants 500",
    "emit": "emit 'mac e4m3fn*e4m3fn+fp16.sr10' --pipeline 2 -o mac.v",
    "tile": "tile --mac 'e5m2*e5m2+e6m5.sr10' --n 16 --m 8 -o kernel",
    "synth": "synth 'fma fp16*fp16+fp16' --target ecp5-85k --route",
    "choose": "choose 'mul fp16*fp16' --target ecp5-85k --clock 100",
    "report study": "report study.toml -o results",
    "stats sru": "stats sru --rounds 4096",
    "faults": "faults 'mac e5m2*e5m2+e6m5' --bit-flips 10000",
    "emulate": "emulate --mac 'bf16*bf16+fp32.rn, elementwise=bf16.rn' train.py",
    "train": "train lenet5 --mac 'e5m2*e5m2+e6m5.sr10' --epochs 1",
    "match": "match resnet20 --board u280 --mac 'bf16*bf16+fp32'",
    "cost": "cost -o results",
    "signoff": "signoff mul add --compare",
    "bench": "bench -o speed.csv",
    "list": "list formats --json",
    "doctor": "doctor",
    "report clocks": "report clocks 'mul fp16*fp16' --stages 4",
    "report peers": "report peers multiplier.v --top multiplier",
    "report pwl": "report pwl exp --pieces 4,8",
    "report tiles": "report tiles --largest 8",
}
"""Command lines for the help, by command; other reports take their name alone."""

COMPLETE = "_HALFULP_COMPLETE"
"""Environment variable of shell completion: ``bash_source`` prints the script of a shell, and others complete words."""


WITHOUT_JSON = {"emulate": "standard output is that of the program; -o writes the report as JSON"}
"""Commands without ``--json``, with the reason."""


def _finished(command: click.Command, words: str) -> click.Command:
    """Return the command with its example below its help, and with ``--json``; a group with those of its commands."""
    example = next((text for name, text in EXAMPLES.items() if f"{name} ".startswith(f"{words} ")), words)
    command.epilog = f"\b\nExample:\n  halfulp {example}"
    if isinstance(command, click.Group):
        for name, part in command.commands.items():
            _finished(part, f"{words} {name}")
    elif words not in WITHOUT_JSON and not any("--json" in parameter.opts for parameter in command.params):
        json_option(command)
    return command


class Lazy(click.Group):
    """Group that imports a command at its first use."""

    modules: ClassVar[Mapping[str, str]]
    """Module of each command."""

    prefix: ClassVar[str] = ""
    """Words before the names of the commands."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return sorted({*super().list_commands(ctx), *self.modules})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command with this name."""
        if cmd_name not in self.modules:
            command = super().get_command(ctx, cmd_name)
            return command and _finished(command, cmd_name)
        return self.load(ctx, self.modules[cmd_name], cmd_name)

    def load(self, ctx: click.Context, module: str, name: str) -> click.Command:
        """Import a command."""
        command: click.Command = pkgutil.resolve_name(f"{module}:{name.replace('-', '_')}")
        return _finished(command, f"{self.prefix}{name}")


class Commands(Lazy):
    """Group of the commands of all rooms."""

    modules = COMMANDS

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, group by group."""
        for title, names in {**GROUPS, "Look up": list(self.commands)}.items():
            with formatter.section(title):
                commands = [(name, self.get_command(ctx, name)) for name in names]
                formatter.write_dl(
                    [(f"{name:8}", command.get_short_help_str(64)) for name, command in commands if command]
                )

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve the name of a command; refuse an unknown one with the most similar one."""
        names = self.list_commands(ctx)
        if args[0] not in names and not ctx.resilient_parsing:
            from halfulp.hdl.formats.checks import did_you_mean
            from halfulp.hdl.specs import COMPOSED, UNITS

            if args[0] in UNITS | COMPOSED:
                raise Refused(f"{args[0]} is a unit, not a command; halfulp emit {args[0]} writes its Verilog")
            raise Refused(f"unknown command {args[0]!r}; {did_you_mean(args[0], names, 'halfulp --help lists them')}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; name the extra to install if a package is missing."""
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            from .tools.extras import missing_of, without

            if not (names := missing_of(error)):
                raise
            raise ToolError(without(names)) from error


class Reports(Lazy):
    """Group of the named reports; it also accepts the file of a study in place of a name."""

    modules = REPORTS
    prefix = "report "

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve the name of a report, or the file of a study, to a command and its arguments."""
        if Path(args[0]).suffix in (".toml", ".json"):
            return "STUDY", self.load(ctx, "halfulp.fpga.cli", "study"), args
        if args[0] not in self.modules:
            raise Refused(
                f"unknown report {args[0]!r}; expected {', '.join(self.modules)}, or a .toml file that describes a "
                "study; halfulp synth measures one unit"
            )
        return super().resolve_command(ctx, args)


@click.group(cls=Reports)
def report() -> None:
    """Compare units by cost, error and accuracy, in tables and plots.

    COMMAND is a report of the list below, or the TOML file of a study, which compares multiply-accumulates by cost,
    clock, error and accuracy. The JSON file of a finished study draws its tables and plots again.
    """


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def cli() -> None:
    """Arithmetic units in RTL, bit-exact against a golden model."""


@cli.command(name="list")
@click.argument("what", type=click.Choice(list(LISTS)))
def list_(what: str) -> None:
    """Print boards, formats, grammar, matrix units, targets or units."""
    lines, rows = map(pkgutil.resolve_name, LISTS[what])
    show("\n".join(lines()), {what: rows() if callable(rows) else rows})


@cli.command()
def doctor() -> None:
    """Check packages, programs and the build folder."""
    from .doctor import findings

    lines = list(findings())
    text = "\n".join(f"{line.state:8}{line.name:10}{line.text}" for line in lines)
    show(text, {"findings": [line._asdict() for line in lines]})
    if any(line.state == "needed" for line in lines):
        raise click.exceptions.Exit(1)


def _end(signum: int, frame: Any) -> NoReturn:
    """Handle SIGTERM like Ctrl-C, so that cleanup code runs."""
    raise KeyboardInterrupt


def main() -> None:
    """Run the program."""
    signal.signal(signal.SIGTERM, _end)
    if shell := os.environ.get(COMPLETE):
        sys.exit(shell_complete(cli, {}, "halfulp", COMPLETE, shell))
    run(cli)


if __name__ == "__main__":
    main()
