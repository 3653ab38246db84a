"""Texts of letters, of words and of sentences with their translations, and the BLEU score of translations."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from halfulp.tools.texts import text_of

from .data import IGNORED, Data

END, UNKNOWN = "<eos>", "<unk>"
"""Words at the end of a line, and in place of a word that the training text does not have; those of PTB."""

TESTED = 20
"""Length of the sequences of words in tests, relative to those in training: few words have no others before them."""

PAD, START, STOP, RARE = range(4)
"""Numbers of the words of no language: after the end of a sentence, before it, at its end, and for unknown words."""

LONGEST = 100
"""Words of the longest sentence in trainings."""

ORDER = 4
"""Words in the longest phrases that BLEU compares."""

Corpus = Sequence[Sequence[int]]

_TRAINING = re.compile(r"train\.(\w+-\w+)\.\w+")
"""Name of a file of training sentences, with the languages."""


def letters(path: Path | None, block: int) -> Data:
    """Split a text into sequences of ``block`` letters and their next letters; the last tenth is the test set.

    A folder has the text in ``input.txt``, as nanoGPT's of Shakespeare has.
    """
    if path is None:
        raise ValueError("transformers need --data with a text file")
    path = path / "input.txt" if path.is_dir() else path
    text = text_of(path)
    known = {letter: number for number, letter in enumerate(sorted(set(text)))}
    codes = torch.tensor([known[letter] for letter in text], dtype=torch.int64)
    pieces = (len(codes) - 1) // block
    if pieces < 10:
        raise ValueError(f"{path} has {len(codes)} letters; training needs at least {10 * block + 1}")
    inputs, classes = _sequences(codes, block)
    test = pieces // 10
    parts = [(inputs[rows], classes[rows]) for rows in (slice(None, -test), slice(-test, None))]
    return Data(f"{path.name}, {len(codes):,} letters", parts[0], parts[1], len(known))


def words(path: Path | None, block: int) -> Data:
    """Split texts into sequences of ``block`` words and their next words; in tests they are longer.

    A folder has ``ptb.train.txt`` and ``ptb.test.txt``, with any first word; of a single file, the last tenth of the
    lines is the test set. Words are what stands between blanks; the end of a line is a word too.
    """
    if path is None:
        raise ValueError("lstm needs --data with a text file, or with a folder of texts such as ptb.train.txt")
    if path.is_dir():
        lines = [_lines(_file(path, part)) for part in ("train", "test")]
    else:
        every = _lines(path)
        test = max(len(every) // 10, 1)
        lines = [every[:-test], every[-test:]]
    texts = [[word for line in part for word in (*line.split(), END)] for part in lines]
    known = {word: number for number, word in enumerate(sorted({*texts[0], UNKNOWN}))}
    codes = [torch.tensor([known.get(word, known[UNKNOWN]) for word in text], dtype=torch.int64) for text in texts]
    for what, part in zip(("training", "test"), codes, strict=True):
        if len(part) <= block:
            raise ValueError(f"{path} has {len(part)} {what} words; training needs at least {block + 1} of each set")
    train, test_pair = (
        _sequences(part, min(length, len(part) - 1))
        for part, length in zip(codes, (block, TESTED * block), strict=True)
    )
    return Data(f"{path.resolve().name}, {sum(map(len, codes)):,} words", train, test_pair, len(known))


def _sequences(codes: Tensor, block: int) -> tuple[Tensor, Tensor]:
    """Return sequences and the next code of each of their codes."""
    pieces = (len(codes) - 1) // block
    first, second = (codes[start : start + pieces * block].reshape(pieces, block) for start in (0, 1))
    return first, second


def _lines(path: Path) -> list[str]:
    """Read the lines of a text; other separators of Unicode, such as U+2028, are parts of a line."""
    return text_of(path).removesuffix("\n").split("\n")


def _file(folder: Path, part: str) -> Path:
    """Return the only file of a folder whose name is that of a set, such as ``ptb.train.txt`` or ``train.txt``."""
    files = sorted(file for file in folder.iterdir() if file.is_file() and part in file.name.split(".")[:2])
    if len(files) != 1:
        raise ValueError(f"{folder} has {len(files)} texts of the set {part!r}; expected one, such as ptb.{part}.txt")
    return files[0]


def sentences(path: Path | None) -> Data:
    """Load sentences and their translations, one on a line, from the files of a folder.

    Its files are ``train.de-en.de``, ``train.de-en.en``, ``test.de-en.de`` and ``test.de-en.en``, for any two
    languages, the source first. Both languages have one vocabulary, the words and punctuation marks that occur at least
    twice in training. Training sentences of more than 100 words are left out. Inputs are the source, `STOP`, `PAD` up
    to the longest source, `START`, and the translation; targets are the translation and `STOP`.
    """
    if path is None:
        raise ValueError("transformer needs --data with a folder of train.de-en.de, train.de-en.en, test.de-en.de, ...")
    files = sorted(path.iterdir()) if path.is_dir() else []
    pairs = sorted({match[1] for file in files if (match := _TRAINING.fullmatch(file.name))})
    if len(pairs) != 1:
        there = f"sentences of {' and '.join(pairs)}" if pairs else "no sentences"
        raise ValueError(f"{path} has {there}; expected a folder of train.de-en.de, train.de-en.en, test.de-en.de, ...")
    (pair,) = pairs
    sets = [_pairs(path, *(f"{part}.{pair}.{language}" for language in pair.split("-"))) for part in ("train", "test")]
    sets[0] = [both for both in sets[0] if max(map(len, both)) <= LONGEST]
    counts = Counter(word for both in sets[0] for side in both for word in side)
    frequent = sorted(word for word, count in counts.items() if count > 1)
    known = {word: number for number, word in enumerate(frequent, RARE + 1)}
    coded = [[tuple([known.get(word, RARE) for word in side] for side in both) for both in part] for part in sets]
    every = [both for part in coded for both in part]
    widths = [max((len(both[side]) for both in every), default=0) for side in (0, 1)]
    train, test = (_padded(part, *widths) for part in coded)
    name = f"{path.resolve().name} {pair}, {len(every):,} sentences"
    return Data(name, train, test, len(known) + RARE + 1, prepare=_trimmed)


def _pairs(folder: Path, source: str, target: str) -> list[tuple[list[str], list[str]]]:
    sides = [[_words(line) for line in _lines(folder / name)] for name in (source, target)]
    if len(sides[0]) != len(sides[1]):
        raise ValueError(
            f"{folder} has {len(sides[0])} lines in {source} and {len(sides[1])} in {target}: expected a translation "
            "of each line"
        )
    return list(zip(*sides, strict=True))


def _words(line: str) -> list[str]:
    """Split a line into words and punctuation marks."""
    return re.findall(r"\w+|[^\w\s]", line)


def _padded(pairs: Sequence[tuple[list[int], ...]], source: int, target: int) -> tuple[Tensor, Tensor]:
    """Return inputs and targets of sentences and translations that are as wide as the longest ones."""
    inputs = torch.full((len(pairs), source + target + 2), PAD)
    targets = torch.full((len(pairs), target + 1), IGNORED)
    for place, (one, other) in enumerate(pairs):
        inputs[place, : len(one) + 1] = torch.tensor([*one, STOP])
        inputs[place, source + 1 : source + 2 + len(other)] = torch.tensor([START, *other])
        targets[place, : len(other) + 1] = torch.tensor([*other, STOP])
    return inputs, targets


def _trimmed(inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Leave out the columns that all sentences of a batch have no words in."""
    source, given = inputs[:, : -targets.shape[1]], inputs[:, -targets.shape[1] :]
    longest, most = int((source != PAD).sum(1).max()), int((targets != IGNORED).sum(1).max())
    return torch.cat((source[:, :longest], given[:, :most]), 1), targets[:, :most]


def references(targets: Tensor) -> list[list[int]]:
    """Return the words of targets; unknown ones are -1, so that no word of a translation equals them."""
    kept = [[word for word in row if word not in (IGNORED, STOP)] for row in targets.tolist()]
    return [[-1 if word == RARE else word for word in row] for row in kept]


def bleu(translations: Corpus, references: Corpus) -> float:
    """Compute BLEU in percent (Papineni et al., ACL 2002) of translations with one reference each.

    It is the geometric mean of the shares of phrases of 1 to 4 words that the references have too, each counted at most
    as often as there, times exp(1 - r / c) if the translations have c words, fewer than the r of the references. It is
    not smoothed: without a phrase of four words in common it is 0.
    """
    common, every = [0] * ORDER, [0] * ORDER
    for translation, reference in zip(translations, references, strict=True):
        for order in range(ORDER):
            ours, theirs = (Counter(_phrases(side, order + 1)) for side in (translation, reference))
            common[order] += (ours & theirs).total()
            every[order] += ours.total()
    if not all(common):
        return 0.0
    given, wanted = (sum(map(len, side)) for side in (translations, references))
    logarithm = sum(math.log(one / all_) for one, all_ in zip(common, every, strict=True)) / ORDER
    return 100 * math.exp(logarithm + min(0, 1 - wanted / given))


def _phrases(side: Sequence[int], length: int) -> Iterable[tuple[int, ...]]:
    return (tuple(side[start : start + length]) for start in range(len(side) - length + 1))
