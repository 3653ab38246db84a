"""Train the decoder on the characters of the text.

    python -m examples.decoder.train --layers 2 --width 64 --steps 1000 -o build/decoder.pt

The text is too short for a test set: the loss at the end is that on the text itself.
"""

import argparse
import time
from pathlib import Path

import torch
from torch import Tensor

from halfulp.tools.paths import build_root

from .model import TEXT, Decoder, Shape, characters, save


def tokens() -> Tensor:
    """Return the tokens of the text."""
    place = {character: token for token, character in enumerate(characters())}
    return torch.tensor([place[character] for character in TEXT.read_text()])


def contexts(shape: Shape) -> tuple[Tensor, Tensor]:
    """Return the text in contexts, and the token that follows each of its tokens, both of shape (contexts, length)."""
    every = tokens()
    count = (len(every) - 1) // shape.context * shape.context
    return every[:count].unflatten(0, (-1, shape.context)), every[1 : count + 1].unflatten(0, (-1, shape.context))


def train(shape: Shape, *, steps: int, batch: int = 8, seed: int = 1, report: int = 0) -> Decoder:
    """Train a model; with ``report`` print the loss after so many steps."""
    torch.manual_seed(seed)
    model, given = Decoder(shape), tokens()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)
    rates = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=max(steps, 2))
    for step in range(steps):
        starts = torch.randint(len(given) - shape.context, (batch, 1))
        rows = given[starts + torch.arange(shape.context + 1)]
        loss = torch.nn.functional.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        rates.step()
        if report and (step + 1) % report == 0:
            print(f"step {step + 1}: loss {loss:.3f}", flush=True)
    return model.eval()


def add_sizes(parser: argparse.ArgumentParser) -> None:
    """Add the options for the sizes of a model."""
    for name, default in (("layers", 2), ("width", 64), ("heads", 2), ("context", 64)):
        parser.add_argument(f"--{name}", type=int, default=default)


def shape_of(arguments: argparse.Namespace) -> Shape:
    """Return the sizes that the options give."""
    sizes = {name: getattr(arguments, name) for name in ("layers", "width", "heads", "context")}
    return Shape(**sizes, vocabulary=len(characters()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_sizes(parser)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("-o", "--output", type=Path, default=build_root() / "decoder.pt")
    arguments = parser.parse_args()
    shape, started = shape_of(arguments), time.perf_counter()
    model = train(shape, steps=arguments.steps, report=100)
    with torch.no_grad():
        rows, targets = contexts(shape)
        loss = torch.nn.functional.cross_entropy(model(rows).flatten(0, 1), targets.flatten())
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    save(model, arguments.output)
    print(f"{arguments.output}: loss {loss:.3f}, {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
