"""The command line: one program, put together from the commands of all rooms.

Exit codes: 0 success; 1 the thing checked is wrong; 2 the request is wrong; 3 a tool or the machine failed; 130 after
Ctrl-C. A command is imported when it runs, so that help and refusals come at once.
"""

import pkgutil
import signal
from typing import Any, NoReturn

import click

from halfulp import __version__
from halfulp.tools.commands import run
from halfulp.tools.errors import ToolError

COMMANDS = {
    "bench": "halfulp.sim.cli",
    "cost": "halfulp.fpga.cli",
    "coverage": "halfulp.sim.coverage.cli",
    "emit": "halfulp.fpga.vendor.cli",
    "faults": "halfulp.sim.mutation.cli",
    "formal": "halfulp.sim.formal.cli",
    "match": "halfulp.fpga.match.cli",
    "mutate": "halfulp.sim.mutation.cli",
    "report": "halfulp.fpga.cli",
    "save": "halfulp.sim.cli",
    "sim": "halfulp.sim.cli",
    "stats": "halfulp.fpga.cli",
    "sweep": "halfulp.sim.cli",
    "synth": "halfulp.fpga.cli",
    "tile": "halfulp.fpga.match.cli",
    "train": "halfulp.train",
    "uvm": "halfulp.sim.uvm.cli",
}
"""Commands, and the module of each."""

LISTS = {
    "boards": "halfulp.boards.catalogue:listing",
    "formats": "halfulp.sim.listing:formats",
    "grammar": "halfulp.sim.listing:grammar",
    "targets": "halfulp.boards.targets:listing",
    "units": "halfulp.sim.listing:units",
}
"""Lists that `halfulp list` prints, and the function of each."""

EXTRAS = ("uvm", "sim", "fpga", "train")
"""Optional dependencies of commands, under the names of their modules."""


class Commands(click.Group):
    """The commands of all rooms, each imported at its use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all commands."""
        return sorted({*super().list_commands(ctx), *COMMANDS})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name."""
        ctx.meta["command"] = cmd_name
        if cmd_name not in COMMANDS:
            return super().get_command(ctx, cmd_name)
        command: click.Command = pkgutil.resolve_name(f"{COMMANDS[cmd_name]}:{cmd_name}")
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command. A package that is not installed is one sentence."""
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            if error.name is None or error.name.startswith("halfulp"):
                raise
            parts = COMMANDS.get(ctx.meta.get("command", ""), "").split(".")
            extra = next((name for name in EXTRAS if name in parts), "all")
            raise ToolError(f"{error.name} is not installed; run: pip install 'halfulp[{extra}]'") from error


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def cli() -> None:
    """Arithmetic units in RTL, bit-exact against a golden model."""


@cli.command(name="list")
@click.argument("what", type=click.Choice(list(LISTS)))
def list_(what: str) -> None:
    """Print boards, formats, the grammar, targets or units."""
    click.echo("\n".join(pkgutil.resolve_name(LISTS[what])()))


def _end(signum: int, frame: Any) -> NoReturn:
    """Treat SIGTERM like Ctrl-C, so that cleanup runs."""
    raise KeyboardInterrupt


def main() -> None:
    """Run the program."""
    signal.signal(signal.SIGTERM, _end)
    run(cli)


if __name__ == "__main__":
    main()
