"""Training steps of emulated programs, and the same steps in FP32."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from halfulp import golden
from halfulp.golden.nn import convert


class Transformer(nn.Module):
    """Transformer that predicts the next letter: torch encoder layers with a causal mask."""

    def __init__(self, letters: int, tokens: int, width: int, layers: int) -> None:
        super().__init__()
        self.letter = nn.Embedding(letters, width)
        self.place = nn.Parameter(torch.zeros(tokens, width))
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, width // 64, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
            for _ in range(layers)
        )
        self.out = nn.Linear(width, letters)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(tokens))

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores of the next letters."""
        x = self.letter(x) + self.place
        for block in self.blocks:
            x = block(x, src_mask=self.mask)
        scores: Tensor = self.out(x)
        return scores


@dataclass(frozen=True)
class TrainingStep:
    """Training step whose speed is measured: a network, its size, the shape of its input, its classes and policies.

    ``layers`` are policies of converted layers, ``policies`` those of emulated programs, and ``compiled`` those of
    programs whose forward and backward pass torch.compile emulates.
    """

    name: str
    size: str
    build: Callable[[], nn.Module]
    shape: tuple[int, ...]
    classes: int
    policies: tuple[str, ...]
    layers: tuple[str, ...] = ()
    compiled: tuple[str, ...] = ()


Run = Callable[[], None]


def converted(step: TrainingStep, policy: str) -> tuple[Run, Run]:
    """Return a step with converted layers, and one in FP32."""
    model = step.build()
    return _training_step(step, convert(model, policy).model), _training_step(step, model)


def emulated(step: TrainingStep, policy: str) -> tuple[Run, Run]:
    """Return an emulated step, and one in FP32."""
    plain = _training_step(step, step.build())
    return golden.emulate(policy)(plain), plain


def compiled_step(step: TrainingStep, policy: str, backend: Any = None) -> tuple[Run, Run]:
    """Return a step emulated by torch.compile, with its optimiser in a context, and one in FP32.

    ``backend`` is the backend of the policy, whose report counts roundings; default: a new one.
    """
    # All steps have the code of one function, and torch keeps few graphs of it.
    torch.compiler.reset()
    model = step.build()
    backend = backend or golden.emulate.backend(policy)

    def compiled(loss: Callable[[], Tensor]) -> Callable[[], Tensor]:
        made: Callable[[], Tensor] = torch.compile(loss, backend=backend)
        return made

    return _training_step(step, model, compiled, golden.emulate(policy)), _training_step(step, model)


def _training_step(
    step: TrainingStep,
    model: nn.Module,
    changed: Callable[[Callable[[], Tensor]], Callable[[], Tensor]] = lambda loss: loss,
    update: AbstractContextManager[Any] | None = None,
) -> Run:
    """Return a training step, with a changed function of the loss, and with its optimiser in a context."""
    optimizer = torch.optim.AdamW(model.parameters())
    images = len(step.shape) == 4
    x: Any = torch.randn(step.shape) if images else torch.randint(step.classes, step.shape)
    y = torch.randint(step.classes, step.shape[:1] if images else step.shape)
    loss = changed(lambda: F.cross_entropy(model(x).reshape(-1, step.classes), y.reshape(-1)))

    def run() -> None:
        optimizer.zero_grad()
        loss().backward()
        with update or nullcontext():
            optimizer.step()

    return run
