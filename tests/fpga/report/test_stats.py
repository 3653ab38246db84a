"""Statistics of stochastic rounding: exact probabilities, counts, tables and plots."""

import csv
import math
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from fractions import Fraction

import pytest
import torch

from halfulp import golden
from halfulp.fpga.report import stats
from halfulp.fpga.report.stats import (
    Count,
    Rounder,
    count_ups,
    fractions_table,
    mean_bias,
    measure,
    sources_table,
)
from halfulp.golden.random import of_stream
from halfulp.hdl.formats.source import Lfsr, Naive, Plateau, RepeatedPlateau, Stream
from halfulp.tools.plots import plot_chances, write

# Probability ---------------------------------------------------------------------------------------------------------

STREAMS = [
    *((Lfsr(width), bits) for width in range(2, 11) for bits in range(1, width + 1)),
    *(
        (kind(width), bits)
        for kind in (Plateau, Naive)
        for width in range(2, 7)
        for bits in (width, width + 1, width + 4)
    ),
    *((RepeatedPlateau(width), bits) for width in range(2, 6) for bits in range(width + 1, 3 * width)),
]


@pytest.mark.sampled(8)
@pytest.mark.parametrize(("source", "bits"), STREAMS, ids=str)
def test_probability_matches_full_period(source, bits):
    """Every fraction that ends one bit below the bits that the rounder uses."""
    last = source.register - 1
    for stream in (Stream(source, 1), Stream(source, 1, 1), Stream(source, 1, last, complemented=True)):
        words = of_stream(stream, source.period, bits)
        codes = torch.arange(1 << (bits + 1))
        ups = ((codes >> 1).unsqueeze(1) + words >= 1 << bits).sum(1).tolist()
        chances = [stream.chance_of_up(Fraction(code, len(codes)), bits) for code in codes.tolist()]
        assert chances == [Fraction(up, source.period) for up in ups]
        assert stream.mean_chance_of_up(bits) == sum(chances) / len(chances)
        # The number of steps is the number of distinct probabilities, and for repeated words that of fractions. For
        # complements as wide as the LFSR no word is large enough for the first step, which therefore equals zero.
        alike = isinstance(source, Lfsr) and stream.complemented and bits == source.width
        distinct = 1 << source.width if isinstance(source, RepeatedPlateau) else stream.steps(bits) - alike
        assert len(set(chances)) == distinct


@pytest.mark.parametrize("width", range(2, 9))
def test_repeated_words_stand_for_levels_that_reach_one(width):
    """Word i is i / (2^M - 1) of all ones, rounded down; for up to 3 bits, as published, that is the nearest."""
    for bits in range(width + 1, 3 * width):
        part = RepeatedPlateau(width).part(bits)
        levels = [Fraction(word << bits, (1 << width) - 1) for word in range(1 << width)]
        words = [part.word(word, bits) for word in range(1 << width)]
        assert words == [*map(math.floor, levels[:-1]), (1 << bits) - 1]
        table = [round(Fraction(word * ((1 << bits) - 1), (1 << width) - 1)) for word in range(1 << width)]
        assert words == table or width > 3
        # The golden model takes the same words from the register.
        orbit = of_stream(Stream(RepeatedPlateau(width), 1), RepeatedPlateau(width).period, bits)
        assert sorted(set(orbit.tolist())) == words


@pytest.mark.parametrize(("source", "bits"), [(Plateau(3), 8), (RepeatedPlateau(3), 8), (RepeatedPlateau(4), 10)])
def test_mean_error_of_all_fractions(source, bits):
    """Repetition leaves no mean error over all fractions of the random word; without it half of a level is lost."""
    words = of_stream(Stream(source, 1), source.period, bits)
    total = sum(int((words + fraction >> bits).sum()) for fraction in range(1 << bits))
    mean = Fraction(total, source.period << bits) - Fraction((1 << bits) - 1, 2 << bits)
    lost = 0 if isinstance(source, RepeatedPlateau) else Fraction((1 << bits - source.width) - 1, 2 << bits)
    assert mean == -lost
    # Numbers without a discarded part stay as they are.
    assert not bool((words >> bits).any())


def test_naive_words_are_those_of_a_number_rounded_to_nearest():
    """Of the multiples of 1/8, 0 has half the chance of the others, and 1 is not reached (Chang et al., equation 4)."""
    words = of_stream(Stream(Naive(3), 1), Naive(3).period, 3)
    assert torch.bincount(words).tolist() == [1, 2, 2, 2, 2, 2, 2, 2]


def test_probability_matches_closed_form():
    eighths = [Fraction(k, 8) for k in range(8)]
    plateau, naive, wide = Stream(Plateau(3), 1), Stream(Lfsr(3), 1), Stream(Lfsr(24), 1)
    assert [plateau.chance_of_up(f, 3) for f in eighths] == [0, *(Fraction(2 * k - 1, 14) for k in range(1, 8))]
    assert [naive.chance_of_up(f, 3) for f in eighths] == [Fraction(k, 7) for k in range(8)]
    assert [wide.chance_of_up(f, 8) for f in eighths] == [Fraction(k * 32 << 16, 2**24 - 1) for k in range(8)]
    # A float is converted exactly, and bits that the rounder does not use are dropped.
    assert plateau.chance_of_up(0.49, 3) == plateau.chance_of_up(0.375, 8) == Fraction(5, 14)
    # A plateau source is unbiased without dropped bits; with them the bias is half of the last used place.
    assert plateau.mean_chance_of_up(3) == Fraction(7, 16)
    assert naive.mean_chance_of_up(3) == Fraction(1, 2)


@pytest.mark.parametrize(
    ("ask", "keyword"),
    [
        (lambda: Stream(Lfsr(8), 1).chance_of_up("1/2", 4), "discarded"),
        (lambda: Stream(Lfsr(8), 1).chance_of_up(True, 4), "discarded"),
        (lambda: Stream(Lfsr(8), 1).chance_of_up(0.5, 2.0), "width"),
        (lambda: Stream(Plateau(2), 1).mean_chance_of_up("3"), "width"),
        (lambda: Stream(Plateau(2), 1).steps(True), "width"),
    ],
)
def test_stats_reject_wrong_types(ask, keyword):
    with pytest.raises(TypeError, match=re.escape(keyword)):
        ask()


@pytest.mark.parametrize(
    ("ask", "keyword"),
    [
        (lambda: Stream(Lfsr(8), 1).chance_of_up(1, 8), "discarded"),
        (lambda: Stream(Lfsr(8), 1).chance_of_up(-0.5, 8), "discarded"),
        (lambda: Stream(Lfsr(8), 1).chance_of_up(math.nan, 8), "discarded"),
        (lambda: Stream(Lfsr(8), 1).chance_of_up(0.5, 9), "lfsr8"),
        (lambda: Stream(Lfsr(8), 1).mean_chance_of_up(0), "random"),
        (lambda: Stream(Plateau(8), 1).steps(7), "plateau8"),
        (lambda: Stream(RepeatedPlateau(8), 1).steps(8), "use plateau8, or a rounding such as sr16"),
        (lambda: Stream(Naive(8), 1).steps(7), "naive8"),
        (lambda: Rounder.parse("lfsr8.rn"), "lfsr8"),
        (lambda: Rounder.parse("lfsr8."), "rounding"),
        (lambda: Rounder.parse("lfsr8.sr9"), "lfsr8"),
        (lambda: Rounder.parse("naive"), "unknown source"),
    ],
)
def test_stats_reject_bad_values(ask, keyword):
    with pytest.raises(ValueError, match=re.escape(keyword)):
        ask()


def test_rounder_text_round_trips():
    for text, source, bits in (
        ("lfsr3", Lfsr(3), 3),
        ("naive3", Naive(3), 3),
        ("plateau3-rep", RepeatedPlateau(3), 6),
        ("plateau3-rep.sr8", RepeatedPlateau(3), 8),
        ("plateau3", Plateau(3), 3),
        ("plateau3.sr8", Plateau(3), 8),
        ("lfsr24.sr8", Lfsr(24), 8),
        ("lfsr40", Lfsr(40), 32),
    ):
        rounder = Rounder.parse(text)
        assert (rounder.stream, rounder.rounding.bits) == (Stream(source, 1), bits)
        assert rounder.name == text.split(".", maxsplit=1)[0]


# Counts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["lfsr3", "naive3", "plateau3", "plateau3.sr6", "plateau3-rep.sr4", "lfsr7", "lfsr7.sr4"]
)
def test_count_ups_matches_plain_loop(text):
    rounder = Rounder.parse(text)
    period, bits = rounder.stream.source.period, rounder.rounding.bits
    for rounds in (period, 3 * period):
        count = count_ups(rounder, rounds, fraction_bits=4)
        words = of_stream(rounder.stream, rounds, bits).tolist()
        ups = [sum((code << bits >> 4) + word >= 1 << bits for word in words) for code in range(16)]
        assert count.ups == ups
        assert count.measured == count.exact
        assert (count.chi_square()[0], count.p_value()) == (0, 1)


def test_count_ups_uses_each_word_once(monkeypatch):
    """Each word is used once, and the counts differ from the exact probability only by chance."""
    taken = []
    plain = golden.convert

    def watched(codes, *, random, **options):
        taken.extend(random.flatten().tolist())
        return plain(codes, random=random, **options)

    monkeypatch.setattr(golden, "convert", watched)
    monkeypatch.setattr(stats, "CHUNK", 1000)
    rounder = Rounder.parse("lfsr24")
    count = count_ups(rounder, 2000, fraction_bits=3)
    assert sorted(taken) == sorted(of_stream(rounder.stream, 16_000, 24).tolist())
    assert not count.whole
    assert 0.001 < count.p_value() < 0.999
    for up, chance in zip(count.ups, count.exact, strict=True):
        assert abs(up - 2000 * chance) <= 5 * math.sqrt(2000 * chance * (1 - chance))


def test_mean_bias_matches_probability():
    for text in ("plateau3", "plateau3-rep.sr8", "naive3", "lfsr3", "lfsr24.sr4"):
        rounder = Rounder.parse(text)
        bias, error = mean_bias(rounder)
        assert 1e-4 < error < 1e-3
        assert abs(bias - (rounder.mean_probability - Fraction(1, 2))) < 4 * error


def count_of(text, rounds, ups):
    return Count(Rounder.parse(text), rounds, ups)


def test_chi_square_matches_hand_calculation():
    """Counts of plateau3 at 0, 1/4, 1/2, 3/4: 0, 3, 7 and 11 of 14."""
    total, freedom = count_of("plateau3", 140, [0, 36, 70, 104]).chi_square()
    # Six off where 30 and 110 are expected, and where 110 and 30 are expected.
    assert total == pytest.approx(2 * (36 / 30 + 36 / 110))
    assert freedom == 3
    # With two degrees of freedom the tail is exp(-x / 2). lfsr3 at quarters has three; at 0 and 1/2 it has one.
    one = count_of("lfsr3", 70, [0, 46])
    assert one.chi_square() == (pytest.approx(36 / 40 + 36 / 30), 1)
    assert one.p_value() == pytest.approx(math.erfc(math.sqrt(2.1 / 2)))
    three = count_of("lfsr3", 70, [0, 26, 40, 60])
    x = three.chi_square()[0]
    tail = math.erfc(math.sqrt(x / 2)) + math.sqrt(2 * x / math.pi) * math.exp(-x / 2)
    assert three.p_value() == pytest.approx(tail)


def test_chi_square_of_impossible_counts_is_infinite():
    possible = [0, 1, 2, 3, 4, 5, 6, 7]
    assert count_of("lfsr3", 7, possible).chi_square() == (0, 6)
    for index, up in ((0, 1), (7, 6)):
        count = count_of("lfsr3", 7, [*possible[:index], up, *possible[index + 1 :]])
        assert count.chi_square() == (math.inf, 6)
        assert count.p_value() == 0
    # Probabilities of 0 and 1 with correct counts.
    assert (count_of("lfsr3", 7, [0]).chi_square(), count_of("lfsr3", 7, [0]).p_value()) == ((0, 0), 1)


@pytest.mark.parametrize("text", ["lfsr16", "lfsr24"])
def test_chi_square_detects_biased_words(monkeypatch, text):
    """One word in fifty is replaced by zero."""

    def biased(stream, steps, bits):
        words = of_stream(stream, steps, bits)
        words[::50] = 0
        return words

    monkeypatch.setattr(golden.random, "of_stream", biased)
    count = count_ups(Rounder.parse(text), 20_000, fraction_bits=3)
    assert count.p_value() < 1e-9


# Tables and plots ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def measurements():
    return [measure(Rounder.parse("plateau3")), measure(Rounder.parse("lfsr24.sr3"), 500)]


def test_stats_tables_have_counts(measurements):
    frame = fractions_table(measurements).frame
    assert frame["fraction"].tolist() == [k / 8 for k in range(8)] * 2
    assert frame["up"].tolist()[:8] == [0, 1, 3, 5, 7, 9, 11, 13]
    assert frame["expected, exact"].tolist()[:8] == ["0", "1/14", "3/14", "5/14", "1/2", "9/14", "11/14", "13/14"]
    assert frame["bias"].tolist()[:8] == [0] * 8
    assert frame["error"].tolist()[:8] == pytest.approx([0, *((k - 4) / 56 for k in range(1, 8))])
    for _, row in frame.iterrows():
        assert row["P(up)"] == row["up"] / row["rounds"]
        assert row["bias"] == pytest.approx(row["P(up)"] - row["expected"])
        assert row["error"] == pytest.approx(row["P(up)"] - row["fraction"])
    table = sources_table(measurements)
    whole, part = table.frame.to_dict("records")
    assert (whole["chi-square"], whole["freedom"], whole["p"]) == (0, 224, 1)
    assert (whole["bias, no drop"], whole["expected bias"]) == (0, -1 / 16)
    # Just below a quarter, one word in 14 rounds up.
    assert (whole["largest error"], whole["at"]) == (pytest.approx(1 / 14 - 63 / 256), 63 / 256)
    assert part["chi-square"] > 0
    assert part["p"] < 1
    assert "whole periods of plateau3; 500 of lfsr24, whose period has 16,777,215." in table.notes[-1]
    assert any("chi-square is 0 and p is 1" in note for note in table.notes)
    assert any("follows its distribution only approximately" in note for note in table.notes)
    assert not any("approximately" in note for note in sources_table(measurements[:1]).notes)


def test_stats_tables_print_infinity():
    measurement = replace(count_of("lfsr3", 7, [1, 1, 2, 3, 4, 5, 6, 7]), bias=0.0, bias_error=0.1)
    assert " inf " in sources_table([measurement]).markdown()
    assert ",inf," in sources_table([measurement]).csv()


def test_stats_plots_are_reproducible(measurements, tmp_path):
    drawn = []
    for name in ("one", "two"):
        files = [tmp_path / name / f"plot.{ending}" for ending in ("png", "svg", "pdf")]
        for file in files:
            write(plot_chances([measurements[0].plotted()], title="P(up)"), file)
        drawn.append([file.read_bytes() for file in files])
    assert drawn[0] == drawn[1]


@pytest.mark.parametrize("sources", [1, 5, 7])
def test_stats_plots_have_two_panels_per_source(measurements, sources):
    counts = [measurements[index % 2] for index in range(sources)]
    figure = plot_chances([count.plotted() for count in counts], title="P(up)")
    assert len(figure.axes) == 2 * sources
    titles = [panel.get_title() for panel in figure.axes if panel.get_title()]
    assert titles == [f"{count.rounder.name}, sr3" for count in counts]
    # All panels of a kind have the same axes.
    assert len({panel.get_ylim() for panel in figure.axes}) == 2


# Command -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_stats_command_writes_tables_and_plots(halfulp, monkeypatch, tmp_path):
    folder = tmp_path / "new" / "folder"
    options = ("--random", "plateau3", "--random", "lfsr12.sr8", "--rounds", "140", "-o", str(folder))
    code, out, err = halfulp("stats", "sru", *options)
    assert code == 0
    names = [f"stats-sru-fractions.{ending}" for ending in ("md", "csv", "tex")]
    names += [f"stats-sru.{ending}" for ending in ("md", "csv", "tex", "svg", "pdf")]
    assert sorted(path.name for path in folder.iterdir()) == sorted(names)
    assert err == "".join(f"halfulp: wrote {folder / name}\n" for name in names)
    tables = [(folder / f"{stem}.md").read_text() for stem in ("stats-sru-fractions", "stats-sru")]
    assert out == "\n".join(tables)
    assert all("\\toprule" in path.read_text() for path in folder.glob("*.tex"))
    with (folder / "stats-sru-fractions.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["up"]) for row in rows[:8]] == [0, 10, 30, 50, 70, 90, 110, 130]
    assert [row["source"] for row in rows] == ["plateau3"] * 8 + ["lfsr12"] * 8
    assert (folder / "stats-sru.pdf").read_bytes().startswith(b"%PDF")
    plot_coverage = ET.parse(folder / "stats-sru.svg").getroot()
    assert plot_coverage.tag == "{http://www.w3.org/2000/svg}svg"
    assert "date" not in (folder / "stats-sru.svg").read_text()
    # Again, in the configured build folder.
    monkeypatch.setenv("HALFULP_BUILD", str(tmp_path))
    code, _, err = halfulp("stats", "sru", *options[:-2])
    assert code == 0
    assert err == "".join(f"halfulp: wrote {tmp_path / 'reports' / name}\n" for name in names)
    for path in folder.iterdir():
        assert (tmp_path / "reports" / path.name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        ("sru --random noise", 2, "unknown source 'noise'"),
        ("sru --random lfsr8.rn", 2, "not rn"),
        ("sru --random lfsr8.sr9", 2, "words of 8 bits"),
        ("sru --rounds 0", 2, "Invalid value for '--rounds'"),
        ("sru --random lfsr8 -o README.md", 2, "Directory 'README.md' is a file"),
        ("sru --random lfsr8 -o README.md/folder", 3, "could not be written"),
        ("sru lfsr8", 2, "unexpected extra argument"),
        ("mac", 2, "No such command 'mac'"),
    ],
)
def test_stats_command_rejects_bad_requests(halfulp, monkeypatch, request, words, code, sentence):
    monkeypatch.chdir(request.config.rootpath)
    found, out, err = halfulp("stats", *words.split())
    assert (found, out) == (code, "")
    (line,) = err.splitlines()
    assert line.startswith("halfulp: ")
    assert sentence in line
