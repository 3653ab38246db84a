"""Page with a small picture of every plot that a command makes, drawn when the documentation is built."""

import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from shutil import copy
from tempfile import TemporaryDirectory

from halfulp.tools.paths import write_whole

ROOT = Path(__file__).resolve().parent.parent

DECODER = "examples.decoder.report --recorded"

PLOTS = {
    "decoder-lut": (DECODER, "Loss of a language model against the lookup tables of its engine, for four policies."),
    "decoder-energy": (DECODER, "Loss of the same model against the energy of a token."),
    "stats-sru": (
        "halfulp stats sru",
        "Probability that stochastic rounding rounds up, beside the ideal one, for each random source.",
    ),
    "families-vu9p": (
        "halfulp report examples/families.toml",
        "Error of dot products against lookup tables, for multiply-accumulates of three families.",
    ),
    "accuracy-dots": (
        "halfulp report accuracy --count 64",
        "Error of dot products against their length, in the published multiply-accumulates.",
    ),
    "fase-rounding": (
        "halfulp report fase --quick",
        "Error of sums in BF16 against their length, rounded after each operation, each chunk, or once.",
    ),
    "matrix-units": (
        "halfulp report matrix-units --losses fpga/results/matrix-trainings.csv",
        "Error of products of FP8 matrices against the bits that the sums of a matrix unit keep, for several lengths.",
    ),
    "matrix-trainings": (
        "halfulp report matrix-units --losses fpga/results/matrix-trainings.csv",
        "Loss of two networks after a short training against the bits of the sums, beside exact sums.",
    ),
    "models": (
        "halfulp report models --losses fpga/results/models.csv",
        "Loss of GPT-2 and Llama in many formats and on matrix units, beyond that in FP32.",
    ),
    "pwl": (
        "halfulp report pwl tanh --fmt fxp3.6 --pieces 2,4,8",
        "A function as line segments, and the error of each number of segments.",
    ),
    "explore": (
        "halfulp synth mul e5m2 --explore 0..4 --target ecp5-85k",
        "Clock and registers against lookup tables, for each number of register stages of a unit.",
    ),
    "choose": (
        "halfulp choose mul e5m2 --clock 120 --target ecp5-85k",
        "Clock and registers against lookup tables, for the builds of a unit that a search for a clock routes.",
    ),
    "delays": (
        "halfulp synth mul e5m2 --target asic --liberty tests/fpga/synth/cells.lib --delays 1,2,4",
        "Delay against area in standard cells, for each delay target of the mapping.",
    ),
    "match-lenet5-u55c": (
        "halfulp match lenet5 --model published",
        "Time of a training step against the size of systolic arrays.",
    ),
    "coverage-add_e2m3fn_e2m3fn_e2m3fn_rn": (
        "halfulp coverage add e2m3fn",
        "Coverage of a bench: a panel for each group of bins, a patch for each bin.",
    ),
    "faults-mac_e5m2_e5m2_e6m5_rn": (
        "halfulp faults mac e5m2 --bit-flips 20000",
        "Error of wrong results against their share, for a bit flip in each register.",
    ),
}
"""Command and description of each plot, by the name of its file."""


QUICK = ("decoder-lut", "decoder-energy", "stats-sru", "delays", "match-lenet5-u55c")
"""Plots that take seconds."""


def write(folder: Path, *, quick: bool = False) -> None:
    """Run all commands, or those of `QUICK` only, and write the page."""
    plots = {name: PLOTS[name] for name in (QUICK if quick else PLOTS)}
    pictures = folder / "gallery"
    pictures.mkdir(parents=True, exist_ok=True)
    # The tables that the commands write, too, are not pages.
    with TemporaryDirectory() as scratch, ThreadPoolExecutor(2) as pool:
        commands = dict.fromkeys(command for command, _ in plots.values())
        list(pool.map(lambda command: draw(command, Path(scratch)), commands))
        for name in plots:
            copy(Path(scratch) / f"{name}.png", pictures)
    lines = [
        "# Gallery",
        "",
        f"This page shows {'the quick plots' if quick else 'every plot'} that a command writes, with the command.",
        "They were drawn when this page was built; a click enlarges one. Colours are those of Okabe and Ito, which",
        "colour-blind readers tell apart, and marks, lines and hatches differ too. Each command writes the plot beside",
        "its tables into the folder of `-o`.",
        "",
        ":::::{container} gallery",
    ]
    for name, (command, sentence) in plots.items():
        lines += ["", f"::::{{figure}} gallery/{name}.png", f":alt: {sentence}", f":target: ../_images/{name}.png"]
        lines += ["", f"`{command}`", "", sentence, "::::"]
    write_whole(folder / "gallery.md", "\n".join([*lines, "", ":::::", ""]))


def draw(command: str, folder: Path) -> None:
    """Run a command that writes to a folder; RuntimeError if it fails."""
    words = [sys.executable, "-m", *shlex.split(command), "-o", str(folder)]
    run = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    if run.returncode:
        raise RuntimeError(f"{command} failed: {run.stderr}")
