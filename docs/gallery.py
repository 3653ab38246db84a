"""Page with every plot that a command makes and what it shows, drawn when the documentation is built."""

import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from shutil import copy
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pandas as pd
from figures import Records, evaluated

from halfulp.tools.paths import write_whole

ROOT = Path(__file__).resolve().parent.parent


class Plot(NamedTuple):
    """Plot of a command.

    ``insight`` is the text of an f-string, and ``holds`` the condition under which both are true, over the tables that
    the command writes and the names of docs/figures.py.
    """

    command: str
    title: str
    holds: str
    insight: str


def _cell(table: str, column: str, **row: object) -> str:
    """Return the expression of a cell of a table."""
    return f"one('{table}', {', '.join(f'{name}={value!r}' for name, value in row.items())})['{column}']"


def _lost(mac: str) -> str:
    return _cell("accuracy_dots", "error", MAC=mac, operands="positive", length=4096)


def _trained(mac: str) -> str:
    return _cell("mptorch_accuracy", "ours", MAC=mac)


def _sru(source: str) -> str:
    return f"abs({_cell('stats_sru', 'largest error', source=source)})"


def _more(network: str, arithmetic: str) -> str:
    own, plain = (_cell("models", "loss", network=network, arithmetic=name) for name in (arithmetic, "fp32"))
    return f"({own} - {plain})"


def _gpt(unit: str) -> str:
    return _cell("matrix_trainings", "loss", network="gpt", unit=unit)


_DECODER = "examples.decoder.report --recorded"
_MATRIX = "halfulp report matrix-units --losses fpga/results/matrix-trainings.csv"
_RN, _SR, _FIXED = "e5m2*e5m2+e6m5.rn", "e5m2*e5m2+e6m5.sr10", "fxp4.4*fxp4.4=fxp4.4.{}+fxp8.8.rn"
_TINY, _WIDE = (_cell("decoder", "LUT", policy=name) for name in ("e5m2_sr", "bf16"))
_JOULE, _JOULES = (_cell("decoder", "nJ a token", policy=name) for name in ("mxfp4", "bf16"))
_ONCE, _EACH = (_cell("fase_rounding", "K = 4096", rounded=name) for name in ("once", "each operation"))
_COARSE, _FINE = (_cell("bits", "positive 4096", bits=bits) for bits in (7, 25))
_TWO, _EIGHT = (_cell("pwl", "max ulp", function="tanh", pieces=count) for count in (2, 8))
_SLOW, _FAST = (_cell("explore", "MHz", stages=count) for count in (0, 4))
_SMALL, _LARGE = (_cell("match_lenet5_u55c", "step ms", N=n, M=m, C=c) for n, m, c in ((8, 8, 5), (64, 32, 1)))
_LOOSE, _TIGHT = (_cell("delays", "GE", target_ns=target) for target in (4, 1))
_EXPONENT, _LAST = (
    _cell("faults_mac_e5m2_e5m2_e6m5_rn_bits", "median ulp", net=f"accumulator[{bit}]") for bit in (9, 0)
)
_CHOSEN = "next(row for row in choose.to_dict('records') if row['result'] == 'chosen')"
_BINS = "coverage_add_e2m3fn_e2m3fn_e2m3fn_rn"
_FLOAT, _POSIT = (_cell("families_vu9p", "LUT", MAC=mac) for mac in (_RN, "posit8*posit8+posit16.rn"))

PLOTS = {
    "accuracy-dots": Plot(
        "halfulp report accuracy --count 64",
        "Stochastic rounding keeps long sums from stalling",
        f"{_lost(_SR)} < {_lost(_RN)} / 5 and {_lost(_FIXED.format('rn'))} > 0.5",
        f"A sum of 4096 positive products stalls in e6m5 with `rn`, which loses {{{_lost(_RN)}:.0%}} of it; `sr10` has "
        f"an error of {{{_lost(_SR)}:.0%}}, and fxp8.8 saturates and loses {{{_lost(_FIXED.format('rn'))}:.0%}}.",
    ),
    "mptorch-accuracy": Plot(
        "halfulp report mptorch --add fpga/results/mptorch.json",
        "In a short training from torch's initial weights, stochastic rounding helps fixed point most",
        f"{_trained(_FIXED.format('rn'))} + 20 < {_trained(_FIXED.format('sr4'))} < {_trained(_SR)} - 1 and "
        f"abs({_trained(_SR)} - {_trained('fp32')}) < 0.5",
        "In a short training of LeNet5, stochastic rounding of products in fxp4.4 raises the accuracy from "
        f"{{{_trained(_FIXED.format('rn'))}:.0f}} % to {{{_trained(_FIXED.format('sr4'))}:.0f}} %, but that of sums in "
        f"e6m5 gives {{{_trained(_SR)}:.1f}} %, as FP32 does ({{{_trained('fp32')}:.1f}} %). With larger "
        "initial weights rounding to nearest trains too ([MPTorch-FPGA](paper_mptorch_fpga.md)).",
    ),
    "models": Plot(
        "halfulp report models --losses fpga/results/models.csv",
        "Eight bits cost a transformer little, four bits much",
        f"20 * {_more('llama', 'e4m3fn, tensor')} < {_more('llama', 'mxfp4')}",
        f"Products in e4m3fn add {{{_more('llama', 'e4m3fn, tensor')}:.3f}} to the loss of Llama, and those in mxfp4 "
        f"{{{_more('llama', 'mxfp4')}:.3f}}, {{{_more('llama', 'mxfp4')} / {_more('llama', 'e4m3fn, tensor')}:.0f}} "
        "times as much.",
    ),
    "matrix-trainings": Plot(
        _MATRIX,
        "Sums of three bits end a training, and thirteen are enough",
        f"{_gpt('aligned3, FP8')} - 0.1 > {_gpt('exact, FP8')} > {_gpt('h100.wgmma, FP8')} - 0.01",
        f"A small GPT has the loss {{{_gpt('h100.wgmma, FP8')}:.3f}} with the 13 bits of an H100 and "
        f"{{{_gpt('exact, FP8')}:.3f}} with exact sums, but {{{_gpt('aligned3, FP8')}:.3f}} with 3 bits.",
    ),
    "decoder-lut": Plot(
        _DECODER,
        "An engine in e5m2 takes a third of the lookup tables of bf16",
        f"0.25 < {_TINY} / {_WIDE} < 0.4",
        f"With stochastic rounding the engine in e5m2 takes {{{_TINY}:,}} LUT instead of {{{_WIDE}:,}}, for "
        f"{{{_cell('decoder', 'loss', policy='e5m2_sr')} - {_cell('decoder', 'loss', policy='bf16')}:.2f}} more loss.",
    ),
    "decoder-energy": Plot(
        _DECODER,
        "Blocks of four bits save most energy, and cost most loss",
        f"{_JOULE} <= decoder['nJ a token'].min() and {_cell('decoder', 'loss', policy='mxfp4')} >= decoder.loss.max()",
        f"A token in mxfp4 takes {{{_JOULES} / {_JOULE}:.1f}} times less energy than in bf16, for "
        f"{{{_cell('decoder', 'loss', policy='mxfp4')} - {_cell('decoder', 'loss', policy='bf16')}:.2f}} more loss.",
    ),
    "stats-sru": Plot(
        "halfulp stats sru",
        "Few random bits round up with the wrong probability",
        f"1000 * {_sru('lfsr16')} < {_sru('plateau3')}",
        f"Three bits of a plateau source miss the ideal probability of rounding up by {{{_sru('plateau3')}:.2f}}; "
        f"sixteen bits of an LFSR miss it by {{{_sru('lfsr16')}:.0e}}.",
    ),
    "fase-rounding": Plot(
        "halfulp report fase --quick",
        "Rounding only the final result underestimates the error of hardware",
        f"{_EACH} > 20 * {_ONCE}",
        f"Sums of 4096 products in BF16 are off by {{{_EACH}:.1%}} if each operation is rounded, as in hardware: "
        f"{{{_EACH} / {_ONCE}:.0f}} times as much as if only the result is.",
    ),
    "matrix-units": Plot(
        _MATRIX,
        "The bits that sums keep decide the error of a matrix unit",
        f"{_COARSE} > 0.5 and {_FINE} < 1e-5",
        f"Products of 4096 positive FP8 numbers are off by {{{_COARSE}:.0%}} in sums that keep 7 bits after the point, "
        f"and by {{{_FINE}:.1e}} with 25 bits.",
    ),
    "families-vu9p": Plot(
        "halfulp report examples/families.toml",
        "Narrow floats take fewer lookup tables than posits",
        f"{_POSIT} > 1.3 * {_FLOAT} and {_cell('families_vu9p', 'error', MAC=_RN)} > "
        f"{_cell('families_vu9p', 'error', MAC='posit8*posit8+posit16.rn')}",
        f"`{_RN}` takes {{{_FLOAT}:,}} LUT, and `posit8*posit8+posit16.rn`, with a smaller error, {{{_POSIT}:,}}.",
    ),
    "pwl": Plot(
        "halfulp report pwl tanh --fmt fxp3.6 --pieces 2,4,8",
        "Eight segments are as good as rounding",
        f"{_EIGHT} < 0.51 and {_TWO} > 2",
        f"tanh in fxp3.6 with 8 segments is within {{{_EIGHT}:.2f}} ulp, where 0.50 is the best possible, and with 2 "
        f"within {{{_TWO}:.1f}} ulp.",
    ),
    "explore": Plot(
        "halfulp synth mul e5m2 --explore 0..4 --target ecp5-85k",
        "Four register stages triple the clock",
        f"2.7 < {_FAST} / {_SLOW} < 3.3",
        f"A product in e5m2 runs at {{{_SLOW}:.0f}} MHz without register stages, and with four, which take "
        f"{{{_cell('explore', 'FF', stages=4)}}} registers, at {{{_FAST}:.0f}} MHz.",
    ),
    "choose": Plot(
        "halfulp choose mul e5m2 --clock 120 --target ecp5-85k",
        "A search finds the smallest build for a clock",
        f"{_CHOSEN}['MHz'] >= 120",
        f"Of {{len(choose)}} builds of a product in e5m2, `{{{_CHOSEN}['build']}}` is the smallest for 120 MHz, with "
        f"{{{_CHOSEN}['MHz']:.0f}} MHz after place and route.",
    ),
    "delays": Plot(
        "halfulp synth mul e5m2 --target asic --liberty tests/fpga/synth/cells.lib --delays 1,2,4",
        "Standard cells trade area for delay",
        f"{_TIGHT} > 1.2 * {_LOOSE}",
        f"For a target of 1 ns the mapping takes {{{_TIGHT}:.0f}} GE, and for 4 ns {{{_LOOSE}:.0f}} GE: the smallest "
        f"circuit needs {{{_cell('delays', 'ns', target_ns=4)}:.1f}} ns.",
    ),
    "match-lenet5-u55c": Plot(
        "halfulp match lenet5 --model published",
        "Small arrays train a small network faster",
        f"1.3 * {_SMALL} < {_LARGE}",
        f"Five arrays of 8 x 8 compute a training step of LeNet5 in {{{_SMALL}:.1f}} ms, and one of 64 x 32, with six "
        f"times as many multiply-accumulates, in {{{_LARGE}:.1f}} ms.",
    ),
    _BINS.replace("_", "-", 1): Plot(
        "halfulp coverage add e2m3fn",
        "No reachable bin stays without a hit",
        f"{_BINS}['open'].sum() == 0",
        f"The bench of an adder hits all {{{_BINS}['hit'].sum():,}} bins that operands can reach.",
    ),
    "faults-mac_e5m2_e5m2_e6m5_rn": Plot(
        "halfulp faults mac e5m2 --bit-flips 20000",
        "A flipped exponent bit changes results most, a flipped mantissa bit is noise",
        f"{_EXPONENT} > 1e5 and {_LAST} < 10",
        f"A flip of the second exponent bit of the sum moves results by {{{_EXPONENT}:.0e}} ulp, and one of "
        f"the last bit by {{{_LAST}:.0f}} ulp (medians).",
    ),
}
"""Plots by the name of their file, in the order of the page."""


QUICK = ("mptorch-accuracy", "decoder-lut", "decoder-energy", "stats-sru", "delays", "match-lenet5-u55c")
"""Plots that take seconds."""


def write(folder: Path, *, quick: bool = False) -> None:
    """Run all commands, or those of `QUICK` only, and write the page."""
    plots = {name: PLOTS[name] for name in (QUICK if quick else PLOTS)}
    pictures = folder / "gallery"
    pictures.mkdir(parents=True, exist_ok=True)
    lines = [
        "# Gallery",
        "",
        f"This page shows {'the quick plots' if quick else 'every plot'} that a command writes, with the command.",
        "They were drawn when this page was built, and the figures below are theirs; a click enlarges one.",
        "Colours are those of Okabe and Ito, which colour-blind readers tell apart, and marks and hatches differ",
        "too. Each command writes the plot as SVG and PDF beside its tables into the folder of `-o`.",
        "",
        ":::::{container} gallery",
    ]
    # The tables that the commands write, too, are not pages.
    with TemporaryDirectory() as scratch, ThreadPoolExecutor(2) as pool:
        commands = dict.fromkeys(plot.command for plot in plots.values())
        list(pool.map(lambda command: draw(command, Path(scratch)), commands))
        for name, plot in plots.items():
            copy(Path(scratch) / f"{name}.svg", pictures)
            lines += ["", f"::::{{figure}} gallery/{name}.svg", f":alt: {plot.title}"]
            lines += [f":target: ../_images/{name}.svg", "", f"**{plot.title}.** {insight(plot, Path(scratch))}"]
            lines += ["", f"`{plot.command}`", "::::"]
    write_whole(folder / "gallery.md", "\n".join([*lines, "", ":::::", ""]))


def insight(plot: Plot, folder: Path) -> str:
    """Return the insight of a plot with the figures of its tables; ValueError if it does not hold."""
    names = Records()
    names |= {re.sub(r"\W", "_", path.stem): pd.read_csv(path) for path in folder.glob("*.csv")}
    if not evaluated(plot.holds, names):
        raise ValueError(f"the figures contradict the title {plot.title!r} in docs/gallery.py")
    return str(evaluated(f'f"""{plot.insight}"""', names))


def draw(command: str, folder: Path) -> None:
    """Run a command that writes to a folder; RuntimeError if it fails."""
    words = [sys.executable, "-m", *shlex.split(command), "-o", str(folder)]
    run = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    if run.returncode:
        raise RuntimeError(f"{command} failed: {run.stderr}")
