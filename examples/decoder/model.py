"""A decoder-only transformer of characters, in plain torch."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

TEXT = Path(__file__).with_name("text.txt")
NORM_EPS = 2.0**-20
"""Number that is added to a mean square: representable in the narrow formats of elementwise operations too."""


@dataclass(frozen=True)
class Shape:
    """Sizes of a model: numbers of layers, of elements of a vector, of heads, of positions and of characters."""

    layers: int = 2
    width: int = 64
    heads: int = 2
    context: int = 64
    vocabulary: int = 64

    @property
    def head(self) -> int:
        """Number of elements of a head."""
        return self.width // self.heads

    @property
    def hidden(self) -> int:
        """Number of elements between the two products of a feed-forward part."""
        return 4 * self.width


class Cache:
    """Keys and values of earlier positions, for each layer."""

    def __init__(self, layers: int) -> None:
        self.rows: list[tuple[Tensor, Tensor] | None] = [None] * layers

    def extended(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Append the rows of new positions to a layer and return all of its rows."""
        before = self.rows[layer]
        if before is not None:
            keys, values = (torch.cat(pair, dim=-2) for pair in zip(before, (keys, values), strict=True))
        self.rows[layer] = keys, values
        return keys, values


class Attention(nn.Module):
    """Causal attention of several heads."""

    def __init__(self, shape: Shape, layer: int) -> None:
        super().__init__()
        self.shape, self.layer = shape, layer
        self.query, self.key, self.value, self.output = (
            nn.Linear(shape.width, shape.width, bias=False) for _ in range(4)
        )

    def forward(self, h: Tensor, cache: Cache | None) -> Tensor:
        query, keys, values = (
            part(h).unflatten(-1, (self.shape.heads, self.shape.head)).transpose(-2, -3)
            for part in (self.query, self.key, self.value)
        )
        if cache is not None:
            keys, values = cache.extended(self.layer, keys, values)
        scores = query @ keys.mT * self.shape.head**-0.5
        if cache is None:
            later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
            scores = scores.masked_fill(later, -torch.inf)
        mixed = torch.softmax(scores, dim=-1) @ values
        output: Tensor = self.output(mixed.transpose(-2, -3).flatten(-2))
        return output


class Block(nn.Module):
    """Attention and a feed-forward part, each added to its operand."""

    def __init__(self, shape: Shape, layer: int) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(shape.width, eps=NORM_EPS)
        self.attention = Attention(shape, layer)
        self.feed_norm = nn.RMSNorm(shape.width, eps=NORM_EPS)
        self.up = nn.Linear(shape.width, shape.hidden, bias=False)
        self.down = nn.Linear(shape.hidden, shape.width, bias=False)

    def forward(self, x: Tensor, cache: Cache | None) -> Tensor:
        x = x + self.attention(self.attention_norm(x), cache)
        return x + self.down(nn.functional.gelu(self.up(self.feed_norm(x))))


class Decoder(nn.Module):
    """Decoder-only transformer; logits of the next character from those so far.

    With a `Cache`, the tokens follow those of earlier calls, one in each call.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.positions = nn.Embedding(shape.context, shape.width)
        self.blocks = nn.ModuleList(Block(shape, layer) for layer in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width, eps=NORM_EPS)
        self.head = nn.Linear(shape.width, shape.vocabulary, bias=False)

    def forward(self, tokens: Tensor, position: int = 0, cache: Cache | None = None) -> Tensor:
        x = self.tokens(tokens) + self.positions(torch.arange(position, position + tokens.shape[-1]))
        for block in self.blocks:
            x = block(x, cache)
        logits: Tensor = self.head(self.norm(x))
        return logits

    def reader(self) -> Callable[[Tensor, int], Tensor]:
        """Return a function of the tokens at a position, of shape (sequences, 1); it keeps keys and values."""
        cache = Cache(self.shape.layers)

        @torch.no_grad()
        def read(tokens: Tensor, position: int) -> Tensor:
            nonlocal cache
            if position == 0:
                cache = Cache(self.shape.layers)
            logits: Tensor = self(tokens, position, cache)
            return logits

        return read

    def stepper(self) -> "Step":
        """Return a function that reads the tokens of one sequence."""
        read = self.reader()
        return lambda token, position: read(torch.tensor([[token]]), position)[0, 0]


Step = Callable[[int, int], Tensor]
"""Function of a token and its position that returns the logits after it; position 0 begins a new sequence."""


def steps(count: int, context: int) -> Iterator[tuple[int, int]]:
    """Yield index and position of each token of a text that a decoder reads, in order.

    When all positions are used, the decoder begins a new sequence with the last half of the context, which it reads
    again, and then goes on.
    """
    position = 0
    for index in range(count):
        if position == context:
            position = context // 2
            yield from zip(range(index - position, index), range(position), strict=True)
        yield index, position
        position += 1


def generate(step: Step, context: int, prompt: list[int], count: int) -> tuple[list[int], Tensor]:
    """Append the most probable token ``count`` times; return all tokens and the logits of each step."""
    tokens, logits = list(prompt), []
    for index, position in steps(len(prompt) + count - 1, context):
        logits.append(step(tokens[index], position))
        if index + 1 == len(tokens):
            tokens.append(int(logits[-1].argmax()))
    return tokens, torch.stack(logits)


def products(shape: Shape) -> list[str]:
    """Return the modules with products of matrices, by their names in the model."""
    parts = [f"attention{part}" for part in ("", ".query", ".key", ".value", ".output")] + ["up", "down"]
    return [f"blocks.{layer}.{part}" for layer in range(shape.layers) for part in parts] + ["head"]


def characters() -> str:
    """Return the characters of the text in ascending order; the index of each is its token."""
    return "".join(sorted(set(TEXT.read_text())))


def save(model: Decoder, path: Path) -> None:
    """Write the sizes and parameters of a model to a file."""
    torch.save({"shape": asdict(model.shape), "parameters": model.state_dict()}, path)


def load(path: Path) -> Decoder:
    """Read a model that `save` wrote."""
    saved = torch.load(path, weights_only=True)
    model = Decoder(Shape(**saved["shape"]))
    model.load_state_dict(saved["parameters"])
    return model.eval()
