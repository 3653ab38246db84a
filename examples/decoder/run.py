"""Generate text with torch and with the engine in Verilator, and compare the bits of all logits.

    python -m examples.decoder.run --model build/decoder.pt --policy examples/decoder/policies/e4m3fn.toml

Both take their formats from the policy file. The exit code is 1 if a bit differs.
"""

import argparse
import sys
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from halfulp import golden
from halfulp.tools.paths import build_root
from halfulp.units.verilog import emit

from .arithmetic import Arithmetic
from .engine import Engine
from .model import Decoder, characters, generate, load
from .simulation import Simulation

POLICY = Path(__file__).with_name("policies") / "e4m3fn.toml"


@dataclass
class Comparison:
    """Tokens and logits of torch and of the engine.

    Attributes
    ----------
    tokens, engine_tokens : list of int
        The prompt and the tokens after it.
    logits, engine_logits : Tensor
        Logits after each token that was read.
    cycles : list of int
        Clock cycles of the engine for each token.
    """

    tokens: list[int]
    engine_tokens: list[int]
    logits: Tensor
    engine_logits: Tensor
    cycles: list[int] = field(default_factory=list)

    @property
    def mismatches(self) -> int:
        """Number of logits whose bits differ, signs of zeros and NaN included."""
        pair = [logits.view(torch.int32) for logits in (self.logits, self.engine_logits)]
        return int((pair[0] != pair[1]).sum())

    @property
    def equal(self) -> bool:
        """True if all tokens and all bits of the logits are equal."""
        return self.tokens == self.engine_tokens and self.mismatches == 0


def compare(model: Decoder, engine: Engine, prompt: list[int], count: int) -> Comparison:
    """Generate tokens with torch under `golden.emulate`, and with the Verilated engine, each from its own logits."""
    with golden.emulate(engine.arithmetic.rules, strict=True):
        tokens, logits = generate(model.stepper(), model.shape.context, prompt, count)
    with Simulation(engine, model) as simulation:
        engine_tokens, engine_logits = simulation.generate(prompt, count)
        return Comparison(tokens, engine_tokens, logits, engine_logits, simulation.cycles)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=build_root() / "decoder.pt")
    parser.add_argument("--policy", type=Path, default=POLICY)
    parser.add_argument("--prompt", default="The ")
    parser.add_argument("--tokens", type=int, default=60, help="number of characters to generate; default: 60")
    parser.add_argument("--lanes", type=int, default=8, help="multiply-accumulates of the engine")
    parser.add_argument("--verilog", type=Path, help="file for the Verilog of the engine")
    arguments = parser.parse_args()
    text = characters()
    if arguments.tokens < 1:
        parser.error(f"--tokens is at least 1, not {arguments.tokens}")
    if not arguments.prompt or set(arguments.prompt) - set(text):
        parser.error(f"--prompt has characters of {''.join(text)!r}, and at least one; not {arguments.prompt!r}")
    if not arguments.model.exists():
        parser.error(f"there is no model {arguments.model}; `python -m examples.decoder.train` trains one in a minute")
    try:
        model = load(arguments.model)
        engine = Engine(model.shape, Arithmetic.read(arguments.policy, arguments.lanes))
    except (ValueError, TypeError, OSError) as error:
        parser.error(str(error))
    if arguments.verilog is not None:
        arguments.verilog.write_text(emit(engine))
    both = compare(model, engine, [text.index(character) for character in arguments.prompt], arguments.tokens)
    for name, tokens in (("torch", both.tokens), ("engine", both.engine_tokens)):
        print(f"{name}:\n{''.join(text[token] for token in tokens)}\n")
    print(f"{both.mismatches} of {both.logits.numel()} logits differ; {both.cycles[-1]} cycles for the last token")
    return 0 if both.equal else 1


if __name__ == "__main__":
    sys.exit(main())
