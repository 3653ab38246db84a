"""GPT-2 and Llama of `transformers`, small, for the letters of a text.

Each function returns what a user's function does: ``halfulp train halfulp.lab.train.models:gpt2``.
"""

from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from halfulp.tools.texts import text_of

from .networks import classes_loss
from .small import Parts

TEXT = Path(__file__).parent / "shipped" / "poems.txt"

LAYERS, WIDTH, HEADS, INNER = 2, 64, 2, 256
"""Sizes of both models; Llama has one head of keys and values."""

CONTEXT, STRIDE = 64, 16
"""Letters of a sequence, and letters between the first ones of two training sequences."""


class _Scores(nn.Module):
    """Model of `transformers` that returns the scores of the next letters alone."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, letters: Tensor) -> Tensor:
        scores: Tensor = self.model(input_ids=letters, use_cache=False).logits
        return scores


def gpt2() -> Parts:
    """Return GPT-2 without dropout."""
    from transformers import GPT2Config, GPT2LMHeadModel

    count, *sets = _sequences()
    sizes: dict[str, Any] = {
        "n_layer": LAYERS,
        "n_head": HEADS,
        "n_embd": WIDTH,
        "n_inner": INNER,
        "n_positions": CONTEXT,
    }
    dropout: dict[str, Any] = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    return _parts(
        GPT2LMHeadModel(GPT2Config(**sizes, **dropout, vocab_size=count, bos_token_id=0, eos_token_id=0)), sets
    )


def llama() -> Parts:
    """Return Llama with grouped queries."""
    from transformers import LlamaConfig, LlamaForCausalLM

    count, *sets = _sequences()
    heads: dict[str, Any] = {"num_attention_heads": HEADS, "num_key_value_heads": 1}
    sizes: dict[str, Any] = {"num_hidden_layers": LAYERS, "hidden_size": WIDTH, "intermediate_size": INNER}
    config = LlamaConfig(**heads, **sizes, vocab_size=count, max_position_embeddings=CONTEXT)
    return _parts(LlamaForCausalLM(config), sets)


def _parts(model: nn.Module, sets: list[tuple[Tensor, Tensor]]) -> Parts:
    return _Scores(model), sets[0], sets[1], classes_loss, partial(torch.optim.AdamW, lr=3e-3)


def _sequences() -> tuple[int, tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Return the number of letters of the alphabet, the training set and the test set, which is the same text once."""
    text = text_of(TEXT)
    known = {letter: number for number, letter in enumerate(sorted(set(text)))}
    rows = torch.tensor([known[letter] for letter in text]).unfold(0, CONTEXT + 1, STRIDE)
    inputs, targets = rows[:, :-1], rows[:, 1:]
    once = slice(None, None, CONTEXT // STRIDE)
    return len(known), (inputs, targets), (inputs[once], targets[once])
