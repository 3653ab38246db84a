"""Networks for texts of words: a language model of LSTM layers, and a transformer that translates."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from .texts import PAD, START, STOP

MORE = 50
"""Words of the longest translation beyond those of its source (Vaswani et al., 2017, section 6.1)."""


class Lstm(nn.Module):
    """Language model of two LSTM layers (Zaremba et al., Recurrent Neural Network Regularization, 2014).

    Each sequence starts from a state of zeros. Dropout is before, between and after the layers. Initial parameters are
    uniform, up to ``largest``.
    """

    def __init__(self, words: int, width: int, dropout: float = 0.0, largest: float = 0.05) -> None:
        super().__init__()
        self.word, self.out = nn.Embedding(words, width), nn.Linear(width, words)
        self.cells = nn.LSTM(width, width, 2, batch_first=True, dropout=dropout)
        self.dropout = nn.Dropout(dropout)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -largest, largest)

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores of the next words."""
        states = self.cells(self.dropout(self.word(x)))[0]
        scores: Tensor = self.out(self.dropout(states))
        return scores


class Translator(nn.Module):
    """Transformer of an encoder and a decoder (Vaswani et al., NeurIPS 2017), normalised before each layer.

    Parameters
    ----------
    words : int
        Number of words of both languages.
    width, heads, layers, inner : int
        Size of the vector of a word, heads of attention, layers of encoder and of decoder, and size within a layer.
    dropout : float
        Probability of dropout.
    """

    def __init__(
        self, words: int, *, width: int = 512, heads: int = 8, layers: int = 6, inner: int = 2048, dropout: float = 0.1
    ) -> None:
        super().__init__()
        self.word, self.dropout = nn.Embedding(words, width), nn.Dropout(dropout)
        nn.init.normal_(self.word.weight, std=width**-0.5)
        options: dict[str, Any] = {"dropout": dropout, "batch_first": True, "norm_first": True}
        self.encoder = nn.ModuleList(nn.TransformerEncoderLayer(width, heads, inner, **options) for _ in range(layers))
        self.decoder = nn.ModuleList(nn.TransformerDecoderLayer(width, heads, inner, **options) for _ in range(layers))
        self.encoder_norm, self.decoder_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.out = nn.Linear(width, words)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the scores of the words of the translation.

        Inputs are those of `halfulp.lab.train.texts.sentences`: sources, and their translations from `START` on.
        """
        start = int((inputs[0] == START).nonzero()[0])
        source = inputs[:, :start]
        return self._decoded(inputs[:, start:], self._encoded(source), source == PAD)

    @torch.no_grad()
    def translate(self, source: Tensor) -> list[list[int]]:
        """Return translations, of which each word is the one with the highest score after the words before it."""
        coded, padding = self._encoded(source), source == PAD
        given = torch.full((len(source), 1), START, device=source.device)
        ended = torch.zeros(len(source), dtype=torch.bool, device=source.device)
        while not ended.all() and given.shape[1] <= source.shape[1] + MORE:
            word = self._decoded(given, coded, padding)[:, -1].argmax(-1)
            given, ended = torch.cat((given, word[:, None]), 1), ended | (word == STOP)
        rows = given[:, 1:].tolist()
        return [row[: row.index(STOP)] if STOP in row else row for row in rows]

    def _encoded(self, source: Tensor) -> Tensor:
        x = self._embedded(source)
        for layer in self.encoder:
            x = layer(x, src_key_padding_mask=source == PAD)
        coded: Tensor = self.encoder_norm(x)
        return coded

    def _decoded(self, target: Tensor, coded: Tensor, padding: Tensor) -> Tensor:
        length = target.shape[1]
        later = torch.ones(length, length, dtype=torch.bool, device=target.device).triu(1)
        x = self._embedded(target)
        for layer in self.decoder:
            x = layer(x, coded, tgt_mask=later, memory_key_padding_mask=padding)
        scores: Tensor = self.out(self.decoder_norm(x))
        return scores

    def _embedded(self, words: Tensor) -> Tensor:
        """Return the vectors of words, with sines and cosines of their places."""
        width = self.word.embedding_dim
        rates = torch.exp(torch.arange(0, width, 2, device=words.device) * (-math.log(10_000.0) / width))
        angles = torch.arange(words.shape[1], device=words.device)[:, None] * rates
        places = torch.stack((angles.sin(), angles.cos()), -1).flatten(1)
        embedded: Tensor = self.dropout(self.word(words) * math.sqrt(width) + places)
        return embedded
