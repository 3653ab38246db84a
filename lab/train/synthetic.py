"""Networks on data that are drawn at random, for studies of arithmetic: a citation graph, short sentences, and a text.

Each function returns what a user's function does: ``halfulp train halfulp.lab.train.synthetic:graph``.
"""

from functools import partial

import torch
from torch import Tensor, nn

from .language import Lstm
from .networks import classes_loss
from .small import Pair, Parts

TOPICS = (351, 217, 418, 818, 426, 298, 180)
"""Papers of each topic, as in Cora (McCallum et al., 2000)."""

VOCABULARY, WORDS, CITATIONS = 1433, 18, 5278
"""Words that are known, words of a paper, and citations, as in Cora."""

OWN_TOPIC, FLATNESS = 0.78, 0.2
"""Share of citations that are drawn within a topic, so that 81 % stay there as in Cora; frequency of foreign words."""

LABELLED, TESTED = 20, 1000
"""Training papers of each topic, and test papers, as Kipf and Welling (ICLR 2017) divide Cora."""

NOUNS, VERBS, ADJECTIVES = 8, 8, 4
"""Words of the source language."""

LENGTH = 4
"""Words of a sentence: subject, verb, adjective, object; in the target language subject, object, adjective, verb."""

KINDS = 32
"""Kinds of words in a text: the kind of a word decides which words are likely to follow it."""


class _Graph(nn.Module):
    """Graph convolutional network of two layers (Kipf and Welling, ICLR 2017); inputs are numbers of papers."""

    def __init__(self, words: Tensor, citations: Tensor, *, width: int = 16) -> None:
        super().__init__()
        papers = torch.arange(len(words))
        self.words, self.papers = words.flatten(), papers.repeat_interleave(words.shape[1])
        # Each paper cites itself, and a citation counts in both directions.
        self.source = torch.cat((citations[0], citations[1], papers))
        self.target = torch.cat((citations[1], citations[0], papers))
        degree = torch.bincount(self.target).float()
        self.share = (degree[self.source] * degree[self.target]).rsqrt()[:, None]
        self.of_words = nn.Parameter(nn.init.xavier_uniform_(torch.empty(VOCABULARY, width)))
        self.out = nn.Linear(width, len(TOPICS))

    def forward(self, papers: Tensor) -> Tensor:
        """Return the scores of the topics of papers."""
        # The features are 0 or 1, so that their product with the weights is a sum of rows.
        features = _sum_rows(self.of_words.index_select(0, self.words), self.papers)
        scores = self._spread(self.out(self._spread(features).relu()))
        return scores.index_select(0, papers)

    def _spread(self, x: Tensor) -> Tensor:
        return _sum_rows(x.index_select(0, self.source) * self.share, self.target)


def _sum_rows(rows: Tensor, places: Tensor) -> Tensor:
    """Add rows to the places of their results."""
    return rows.new_zeros(int(places.max()) + 1, rows.shape[1]).index_add(0, places, rows)


def graph() -> Parts:
    """Return a graph network for the topics of papers, whose citations and words are drawn with the sizes of Cora."""
    draw = torch.Generator().manual_seed(0)
    count = sum(TOPICS)
    topics = torch.repeat_interleave(torch.arange(len(TOPICS)), torch.tensor(TOPICS))
    topics = topics[torch.randperm(count, generator=draw)]
    shares = torch.rand(len(TOPICS), VOCABULARY, generator=draw).pow(4) + FLATNESS
    words = torch.multinomial(shares[topics], WORDS, generator=draw)
    citing, any_paper = (torch.randint(count, (CITATIONS,), generator=draw) for _ in range(2))
    topic = topics[citing]
    place = (torch.rand(CITATIONS, generator=draw) * torch.tensor(TOPICS)[topic]).long()
    same_topic = topics.argsort(stable=True)[torch.tensor((0, *TOPICS)).cumsum(0)[topic] + place]
    cited = torch.where(torch.rand(CITATIONS, generator=draw) < OWN_TOPIC, same_topic, any_paper)
    order = torch.randperm(count, generator=draw)
    tests, others = order[:TESTED], order[TESTED:]
    chosen = torch.cat([others[topics[others] == topic][:LABELLED] for topic in range(len(TOPICS))])
    model = _Graph(words, torch.stack((citing, cited)))
    optimizer = partial(torch.optim.SGD, lr=0.3, momentum=0.9, weight_decay=5e-4)
    return model, (chosen, topics[chosen]), (tests, topics[tests]), classes_loss, optimizer


class _Cell(nn.Module):
    """Cell of an LSTM with an embedding of words; its activations are modules, so that they can be replaced."""

    def __init__(self, words: int, width: int) -> None:
        super().__init__()
        self.words, self.gates = nn.Embedding(words, width), nn.Linear(2 * width, 4 * width)
        self.sigmoid, self.tanh = nn.Sigmoid(), nn.Tanh()

    def forward(self, word: Tensor, state: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Return the next state and the next memory."""
        enter, keep, leave, new = self.gates(torch.cat((self.words(word), state), 1)).chunk(4, 1)
        memory = self.sigmoid(keep) * memory + self.sigmoid(enter) * self.tanh(new)
        return self.sigmoid(leave) * self.tanh(memory), memory


class _Translator(nn.Module):
    """Encoder and decoder of one LSTM each; inputs are the source words, a start word and the target words but one."""

    def __init__(self, sources: int, targets: int, *, width: int = 24) -> None:
        super().__init__()
        self.encoder, self.decoder = _Cell(sources, width), _Cell(targets + 1, width)
        self.out = nn.Linear(width, targets)

    def forward(self, words: Tensor) -> Tensor:
        """Return the scores of the target words at each place."""
        state = memory = self.out.weight.new_zeros(len(words), self.out.in_features)
        for word in words[:, :LENGTH].unbind(1):
            state, memory = self.encoder(word, state, memory)
        states = []
        for word in words[:, LENGTH:].unbind(1):
            state, memory = self.decoder(word, state, memory)
            states.append(state)
        scores: Tensor = self.out(torch.stack(states, 1))
        return scores


def translation() -> Parts:
    """Return an encoder and decoder for all sentences of a small language.

    In the target language the verb is last, and adjective and verb have one of two forms, which the object and the
    subject decide: the decoder must remember them.
    """
    sizes = (NOUNS, VERBS, ADJECTIVES, NOUNS)
    subject, verb, adjective, noun = torch.cartesian_prod(*map(torch.arange, sizes)).unbind(1)
    starts = torch.tensor((0, NOUNS, NOUNS + VERBS, NOUNS + VERBS + ADJECTIVES))
    source = torch.stack((subject, verb, adjective, noun), 1) + starts
    places = torch.tensor((0, NOUNS, 2 * NOUNS, 2 * NOUNS + 2 * ADJECTIVES))
    target = torch.stack((subject, noun, 2 * adjective + noun % 2, 2 * verb + subject % 2), 1) + places
    targets = 2 * (NOUNS + ADJECTIVES + VERBS)
    inputs = torch.cat((source, torch.full((len(target), 1), targets), target[:, :-1]), 1)
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(0))
    inputs, target, count = inputs[order], target[order], len(inputs) * 4 // 5
    model = _Translator(sum(sizes), targets)
    optimizer = partial(torch.optim.SGD, lr=1.5, momentum=0.9)
    return model, (inputs[:count], target[:count]), (inputs[count:], target[count:]), classes_loss, optimizer


def text(words: int, sequences: int, length: int) -> Pair:
    """Draw sequences of a language of so many words, and their next words.

    Few words are frequent, as the law of Zipf says, and each kind of words has few likely successors.
    """
    draw = torch.Generator().manual_seed(0)
    shares = torch.rand(KINDS, words, generator=draw).pow(KINDS) / torch.arange(1, words + 1)
    drawn = [torch.randint(words, (sequences, 1), generator=draw)]
    for _ in range(length):
        drawn.append(torch.multinomial(shares[drawn[-1][:, 0] % KINDS], 1, generator=draw))
    return torch.cat(drawn[:-1], 1), torch.cat(drawn[1:], 1)


def words() -> Parts:
    """Return an LSTM of two layers, 32 wide, for sequences of 10 of 512 words."""
    inputs, targets = text(512, 1200, 10)
    train, test = ((inputs[part], targets[part]) for part in (slice(200, None), slice(200)))
    model = Lstm(512, 32, largest=0.4)
    return model, train, test, classes_loss, partial(torch.optim.SGD, lr=10.0)
