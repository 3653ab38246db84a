"""Texts of letters and words, translations, their networks, perplexity and BLEU."""

import math
from dataclasses import replace
from functools import partial
from unittest import mock

import pytest
import sacrebleu
import torch

from halfulp.lab.train import loop
from halfulp.lab.train.data import IGNORED, Data
from halfulp.lab.train.language import Lstm, Translator
from halfulp.lab.train.loop import Plan, Run
from halfulp.lab.train.networks import NETWORKS, classes_loss, divided, medium, warmed
from halfulp.lab.train.results import row_of
from halfulp.lab.train.texts import PAD, RARE, START, STOP, bleu, letters, references, sentences, words
from tests.lab.train.made import PAIRS, iwslt, ptb
from tests.training_runs import plan


def test_text_files_load(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("abcd" * 320 + "ae")
    found = letters(path, 64)
    assert (found.name, found.classes, found.train[0].shape) == ("text.txt, 1,282 letters", 5, (18, 64))
    assert torch.equal(found.train[0][:, 1:], found.train[1][:, :-1])
    assert torch.equal(found.train[1][:-1, -1], found.train[0][1:, 0])
    for content, sentence in (
        (b"short", "has 5 letters; training needs at least 641"),
        (b"\xff", "is not encoded in UTF-8"),
    ):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=sentence):
            letters(path, 64)

    (tmp_path / "input.txt").write_text("abcd" * 320)
    assert letters(tmp_path, 64).name == "input.txt, 1,280 letters"


def test_words_have_the_vocabulary_of_the_training_text(tmp_path):
    data = words(ptb(tmp_path / "ptb"), 5)
    known = ["<eos>", "<unk>", "a", "cat", "n", "on", "sat", "the"]
    assert (data.name, data.classes) == ("ptb, 300 words", len(known))
    first = [known[code] for code in data.train[0].flatten()[:8]]
    assert first == ["the", "cat", "sat", "on", "a", "<unk>", "<eos>", "the"]
    assert torch.equal(data.train[1].flatten()[:-1], data.train[0].flatten()[1:])
    # 24 words, of which the last ones are "the mat <eos>"; sequences of tests are as long as the text here.
    assert data.test[0].shape == (1, 23)
    assert data.test[1][0, -3:].tolist() == [known.index(word) for word in ("the", "<unk>", "<eos>")]


def test_words_of_one_file_and_bad_texts(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("a b c\n" * 30)
    data = words(path, 4)
    # A word more than the sequences have is their last target.
    assert [len(part[0].flatten()) for part in (data.train, data.test)] == [104, 11]
    for place, sentence in (
        (None, "lstm needs --data with a text file, or with a folder of texts such as ptb.train.txt"),
        (tmp_path / "none.txt", "none.txt cannot be read"),
        (tmp_path, "has 0 texts of the set 'train'; expected one, such as ptb.train.txt"),
    ):
        with pytest.raises(ValueError, match=sentence):
            words(place, 4)
    path.write_text("a b c\n" * 9)
    with pytest.raises(ValueError, match="has 4 test words; training needs at least 5 of each set"):
        words(path, 4)


def test_sentences_are_pairs_of_one_vocabulary(tmp_path):
    data = sentences(iwslt(tmp_path / "iwslt"))
    # Twice or more in training, in the order of their codes.
    known = {word: code for code, word in enumerate((",", ".", "Hund", "der", "dog", "the"), RARE + 1)}
    known = {word: known.get(word, RARE) for text in PAIRS.values() for word in text.split()} | known
    assert (data.name, data.classes) == ("iwslt de-en, 4 sentences", 10)
    source, target = ([known[word] for word in side.split()] for side in ("der Hund schläft .", "the dog sleeps ."))
    assert data.train[0][0].tolist() == [*source, STOP, PAD, START, *target, PAD]
    assert data.train[1][0].tolist() == [*target, STOP, IGNORED]
    # The point is a word of its own.
    assert data.test[1][0].tolist() == [known["the"], RARE, known["."], STOP, IGNORED, IGNORED]
    inputs, targets = data.prepare(*(part[:1] for part in data.test))
    assert inputs[0].tolist() == [known["der"], RARE, known["."], STOP, START, known["the"], RARE, known["."]]
    assert targets[0].tolist() == [known["the"], RARE, known["."], STOP]
    assert references(data.test[1]) == [[known["the"], -1, known["."]], [-1]]


def test_sentences_reject_bad_folders(tmp_path):
    for place in (tmp_path, tmp_path / "none"):
        with pytest.raises(ValueError, match=r"has no sentences; expected a folder of train\.de-en\.de"):
            sentences(place)
    with pytest.raises(ValueError, match=r"transformer needs --data with a folder of train\.de-en\.de"):
        sentences(None)
    folder = iwslt(tmp_path / "iwslt", **{"test.de-en.en": "the bird.\n"})
    with pytest.raises(
        ValueError, match=r"2 lines in test\.de-en\.de and 1 in test\.de-en\.en: expected a translation"
    ):
        sentences(folder)
    (folder / "test.de-en.en").unlink()
    with pytest.raises(ValueError, match=r"test\.de-en\.en cannot be read"):
        sentences(folder)
    with pytest.raises(ValueError, match=r"has sentences of de-en and fr-en; expected a folder of train\.de-en\.de"):
        sentences(iwslt(tmp_path / "both", **{"train.fr-en.fr": ""}))
    long = "w " * 101 + "\n"
    with pytest.raises(ValueError, match="the training set is empty"):
        sentences(iwslt(folder, **{"train.de-en.de": long, "train.de-en.en": "v\n", "test.de-en.en": "a\n\n"}))


def test_separators_of_unicode_end_no_line(tmp_path):
    """Texts of speech have them within sentences of one language."""
    text = PAIRS["train.de-en.de"].replace("Hund", "Hund\u2028\x85\x1d", 1)
    data = sentences(iwslt(tmp_path / "iwslt", **{"train.de-en.de": text}))
    assert torch.equal(data.train[0], sentences(iwslt(tmp_path / "plain")).train[0])
    (tmp_path / "text.txt").write_text("a b\u2028c\n" * 30)
    assert words(tmp_path / "text.txt", 4).name == "text.txt, 120 words"


@pytest.mark.parametrize(("loss", "perplexity"), [(1.0, math.e), (1e4, math.inf), (math.nan, math.nan)])
def test_perplexity_of_any_loss_is_a_number(loss, perplexity, tmp_path):
    usual = replace(NETWORKS["lstm"], build=lambda data: Lstm(data.classes, 8))
    run = Run(plan("lstm", "fp32"), words(ptb(tmp_path / "ptb"), 5), tmp_path, network=usual)
    assert run._score(loss) == pytest.approx(perplexity, nan_ok=True)


def test_bleu_of_examples():
    # Papineni et al.: seven times "the" against a reference that has it twice.
    assert bleu([[1] * 7], [[1, 2, 3, 4, 1, 5]]) == 0
    assert bleu([[1, 2, 3, 4, 5]], [[1, 2, 3, 4, 5]]) == pytest.approx(100)
    # 5 of 6 words, 4 of 5 pairs, 3 of 4 phrases of three and 2 of 3 of four.
    ours, theirs = [[1, 2, 3, 4, 5, 9]], [[1, 2, 3, 4, 5, 6, 7, 8]]
    shares = 5 / 6 * 4 / 5 * 3 / 4 * 2 / 3
    assert bleu(ours, theirs) == pytest.approx(100 * shares**0.25 * math.exp(1 - 8 / 6))
    # Counts are those of the corpus, and a longer translation has no penalty.
    assert bleu([*ours, [1]], [*theirs, [2]]) == pytest.approx(
        100 * (5 / 7 * 4 / 5 * 3 / 4 * 2 / 3) ** 0.25 * math.exp(1 - 9 / 7)
    )
    assert bleu(theirs, ours) == pytest.approx(100 * (5 / 8 * 4 / 7 * 3 / 6 * 2 / 5) ** 0.25)
    assert bleu([[]], [[1]]) == 0


def test_bleu_equals_sacrebleu():
    draw = torch.Generator().manual_seed(0)
    for count in (1, 5, 50):
        lengths = torch.randint(4, 20, (count, 2), generator=draw).tolist()
        wanted = [torch.randint(6, (length,), generator=draw).tolist() for length, _ in lengths]
        ours = [
            [word if torch.rand(1, generator=draw) < 0.8 else word // 2 for word in row[:length]]
            for row, (_, length) in zip(wanted, lengths, strict=True)
        ]
        texts = [[" ".join(f"w{word}" for word in row) for row in side] for side in (ours, wanted)]
        score = sacrebleu.corpus_bleu(texts[0], [texts[1]], tokenize="none", smooth_method="none", force=True).score
        assert bleu(ours, wanted) == pytest.approx(score)


def test_places_without_a_class_do_not_count():
    targets = torch.tensor([[1, 0, IGNORED], [1, IGNORED, IGNORED]])
    data = Data("made", (torch.zeros(2, 3), targets), (torch.zeros(2, 3), targets), 2)

    class Scores(torch.nn.Module):
        def forward(self, x):
            return torch.tensor([0.0, 1.0]).expand(*x.shape, 2)

    loss, accuracy = loop.tested(Scores(), data, classes_loss)
    ones = math.log(1 + math.exp(-1))
    assert (loss, accuracy) == (pytest.approx((2 * ones + ones + 1) / 3), pytest.approx(200 / 3))
    # A batch of tests without any class has no mean loss.
    part = torch.tensor([[1, 0, IGNORED], [IGNORED] * 3])
    with mock.patch.object(loop, "TESTED", 1):
        assert loop.tested(Scores(), replace(data, test=(torch.zeros(2, 3), part)), classes_loss) == (
            pytest.approx((2 * ones + 1) / 2),
            50,
        )
    with pytest.raises(ValueError, match="the training set is empty"):
        replace(data, train=(torch.zeros(1, 1), torch.tensor([[IGNORED]])))


def test_networks_of_words_have_published_sizes():
    with torch.device("meta"):
        lstm, translator = Lstm(10_000, 650, 0.5), Translator(100)
    # Zaremba et al.: 650 units in each layer, and a vocabulary of 10,000 words; torch has two biases.
    assert sum(parameter.numel() for parameter in lstm.parameters()) == 2 * 4 * 650 * 1302 + 20_000 * 650 + 10_000
    # Vaswani et al., Table 3, base: an attention in each layer, and a second one in those of the decoder.
    matrices = [one.numel() for name, one in translator.named_parameters() if "coder" in name and one.dim() > 1]
    assert sum(matrices) == 6 * 3 * 4 * 512**2 + 12 * 2 * 512 * 2048
    assert translator.encoder[5].self_attn.num_heads == 8


def test_translation_does_not_depend_on_padding():
    """Padding of a source changes no score, and later words no earlier one."""
    torch.manual_seed(0)
    network = Translator(12, width=16, heads=2, layers=2, inner=32).eval()
    source, target = torch.tensor([[5, 6, STOP]]), torch.tensor([[START, 7, 8, 9]])
    scores = network(torch.cat((source, target), 1))
    padded = network(torch.cat((source, torch.full((1, 4), PAD), target), 1))
    torch.testing.assert_close(scores, padded)
    other = network(torch.cat((source, target[:, :3], torch.tensor([[10]])), 1))
    torch.testing.assert_close(scores[:, :3], other[:, :3])
    assert (scores[:, 3] != other[:, 3]).all()
    (row,) = network.translate(source)
    assert STOP not in row
    assert len(row) <= 3 + 50
    # Each word has the highest score after those before it.
    given = network(torch.cat((source, torch.tensor([[START, *row]])), 1)).argmax(-1)[0].tolist()
    assert given[: len(row)] == row


def test_runs_give_perplexity_and_bleu(tmp_path):
    """A translator learns to copy two sentences; the score of its last epoch is in the row, and is saved."""
    text = "a b c d e .\na c b e d .\n"
    data = sentences(iwslt(tmp_path / "copies", **dict.fromkeys(PAIRS, text)))
    build = partial(Translator, width=16, heads=2, layers=1, inner=32, dropout=0.0)
    usual = replace(NETWORKS["transformer"], build=lambda data: build(data.classes))
    run = Run(plan("transformer", "fp32", epochs=60, rate=0.02), data, tmp_path, network=usual)
    assert run.train().score == pytest.approx(100)
    assert all(epoch.score is None for epoch in run.epochs[:-1])
    row = row_of(run, "halfulp train")
    assert (row["BLEU"], row["perplexity"]) == ("100", "")
    again = Run(run.plan, data, tmp_path, network=usual)
    again.load(run.final)
    assert again.epochs[-1] == run.epochs[-1]
    usual = replace(NETWORKS["lstm"], build=lambda data: Lstm(data.classes, 8))
    run = Run(plan("lstm", "fp32", rate=1.0), words(ptb(tmp_path / "ptb"), 5), tmp_path, network=usual)
    end = run.train()
    assert end.score == pytest.approx(math.exp(end.loss))
    assert row_of(run, "halfulp train")["perplexity"] == f"{end.score:.6g}"


def test_gradients_are_clipped_and_rates_follow_the_schedule(tmp_path):
    usual = replace(
        NETWORKS["lstm"],
        build=lambda data: Lstm(data.classes, 8),
        clip=1e-3,
        schedule=partial(divided, after=(0.5,), by=10),
    )
    run = Run(plan("lstm", "fp32", batch=28), words(ptb(tmp_path / "ptb"), 5), tmp_path, network=usual)
    assert run.steps == 2
    rates = []
    for _ in range(2):
        before = [parameter.detach().clone() for parameter in run.model.parameters()]
        run._step()
        steps = [after - old for after, old in zip(run.model.parameters(), before, strict=True)]
        rates.append(torch.cat([step.detach().flatten() for step in steps]).norm().item() / 1e-3)
    # The tolerance is that of differences of weights up to 0.05 in float32.
    assert rates == pytest.approx([0.01, 0.001], rel=0.02)


def test_schedules_of_publications():
    assert [divided(step, 200, after=(0.3, 0.6, 0.8), by=5) for step in (0, 59, 60, 119, 120, 160, 199)] == (
        pytest.approx([1, 1, 0.2, 0.2, 0.04, 0.008, 0.008])
    )
    # Zaremba et al.: the sixth epoch is the last one with the first rate.
    assert [medium(39 * epoch, 39 * 39) for epoch in (0, 5, 6, 38)] == pytest.approx([1, 1, 1 / 1.2, 1.2**-33])
    rises = [warmed(step, 100, rises=0.04) for step in (0, 3, 15)]
    assert rises == pytest.approx([0.25, 1, 0.5])


def test_devices_have_runs_of_their_own(tmp_path):
    data = words(ptb(tmp_path / "ptb"), 5)
    one, other = (Plan("lstm", (("*", "fp32"),), 0, 1, 2, 0.1, device=name) for name in ("cpu", "meta"))
    assert one.key(data) != other.key(data)
    run = Run(other, data, tmp_path, network=replace(NETWORKS["lstm"], build=lambda data: Lstm(data.classes, 8)))
    assert {parameter.device.type for parameter in run.model.parameters()} == {"meta"}
