"""The engine in Verilator, with the parameters of a model in its memories."""

from collections.abc import Iterable
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from halfulp import golden
from halfulp.golden.entries import entries
from halfulp.golden.nn.policy import Policy
from halfulp.hdl.specs import BlockMacSpec
from halfulp.sim.model import CompiledModel, pack, unpack

from .engine import Engine
from .model import Decoder, generate

SILENT = 1 << 22
"""Number of clock cycles after which a simulation without results ends."""


class Simulation:
    """Verilated engine with a model; tokens enter one by one.

    Parameters
    ----------
    engine : Engine
    model : Decoder
        Its parameters are rounded as the policy of the engine rounds operands.

    Attributes
    ----------
    cycles : list of int
        Clock cycles from each token to its last logit.
    """

    def __init__(self, engine: Engine, model: Decoder) -> None:
        self.engine = engine
        self.cycles: list[int] = []
        self.model = CompiledModel.of_streams(engine)
        self._send("load", np.concatenate(list(self._words(model))), 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.model.close()

    def step(self, token: int, *, restart: bool) -> Tensor:
        """Return the logits after a token, as float32."""
        codes = self._send("token", np.array([[token, restart]], dtype=np.uint64), self.engine.shape.vocabulary)
        return golden.decode(torch.from_numpy(codes[:, 0].astype(np.int64)), self.engine.storage).float()

    def generate(self, prompt: list[int], count: int) -> tuple[list[int], Tensor]:
        """Append the most probable token ``count`` times; return all tokens and the logits of each step."""
        context = self.engine.shape.context
        return generate(lambda token, position: self.step(token, restart=position == 0), context, prompt, count)

    def _send(self, name: str, fields: Any, results: int) -> Any:
        """Send words to an input stream, and return those of the output stream."""
        widths = {
            port: [field.width for _, field in getattr(self.engine, port).p.shape()]
            for port in ("load", "token", "logit")
        }
        payloads = {port: np.zeros((0, -(-sum(widths[port]) // 32)), np.uint32) for port in ("load", "token")}
        payloads[name] = pack(fields, widths[name])
        passed = self.model.stream(payloads, {"logit": results}, limit=SILENT)
        if passed.accepted[name] != len(fields) or passed.given["logit"] != results or passed.faults["logit"]:
            raise RuntimeError(f"the engine took {passed.accepted[name]} of {len(fields)} words: {passed}")
        if name == "token":
            self.cycles.append(passed.cycles["logit"] - passed.cycles["token"])
        return unpack(passed.words["logit"], widths["logit"])

    # Contents of the memories ----------------------------------------------------------------------------------------

    def _words(self, model: Decoder) -> Iterable[Any]:
        """Yield the words for the load port: data, address, lane, and 1 for the matrix memory."""
        arithmetic, program = self.engine.arithmetic, self.engine.program
        parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}
        constants = {"eps": model.norm.eps, "scale": model.shape.head**-0.5}
        vectors = {name: torch.tensor([number], dtype=torch.float64) for name, number in constants.items()}
        vectors |= {name.removesuffix(".weight"): parameters[name] for name in ("tokens.weight", "positions.weight")}
        vectors |= {name: vector for name, vector in parameters.items() if vector.dim() == 1}
        for name, vector in vectors.items():
            # All of them are operands of element-wise operations.
            numbers = arithmetic.element.real(vector.reshape(-1).double(), 0)
            yield _words(golden.encode(numbers, self.engine.storage), program.vectors.places[name])
        for name, matrix in parameters.items():
            if matrix.dim() == 2 and name.removesuffix(".weight") not in vectors:
                policy = arithmetic.of(name.removesuffix(".weight"))
                yield self._matrix(matrix.mT, program.matrices.places[name], policy)

    def _matrix(self, matrix: Tensor, address: int, policy: Policy) -> Any:
        """Return the words of a matrix: its columns are dealt to the lanes."""
        mac: Any = policy.forward
        cast, lanes = policy.weights, self.engine.lanes
        codes: Any
        if isinstance(mac, BlockMacSpec):
            codes = golden.quantize_blocks(matrix, mac.b, cast.rounding, dim=-2)
        else:
            codes = golden.encode(matrix, mac.b, cast.rounding, saturate=cast.saturate)
        given = entries(codes, mac, "b").numpy().astype(object)
        count, columns, _ = given.shape
        shifts = np.cumsum([0, *(fmt.width for fmt in mac.entries["b"].values())])[:-1]
        words = (given << shifts.astype(object)).sum(axis=-1)
        steps, places = np.meshgrid(np.arange(count), np.arange(columns), indexing="ij")
        return np.stack(
            [
                words.reshape(-1),
                (address + places // lanes * count + steps).reshape(-1),
                (places % lanes).reshape(-1),
                np.ones(words.size, dtype=np.uint64),
            ],
            axis=1,
        )


def _words(codes: Tensor, address: int) -> Any:
    """Return the words of a vector."""
    words = np.zeros((len(codes), 4), dtype=np.uint64)
    words[:, 0], words[:, 1] = codes.numpy(), address + np.arange(len(codes))
    return words
