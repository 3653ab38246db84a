"""The microprogram of the engine: one instruction for each operation of the model on one token.

An instruction reads and writes vectors by their addresses. Addresses and lengths that depend on the token or on its
position have an `Index`; the engine has an adder for it, so one program serves all positions.
"""

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from .model import Shape


class Op(enum.Enum):
    """Operations of the engine."""

    TAKE = enum.auto()
    """Wait for a token; meanwhile the load port may write both memories."""
    ADD = enum.auto()
    SUB = enum.auto()
    MUL = enum.auto()
    DIV = enum.auto()
    MEAN = enum.auto()
    """Divide a sum by the width of the model, a power of two."""
    RSQRT = enum.auto()
    EXP = enum.auto()
    GELU = enum.auto()
    SUM = enum.auto()
    MAX = enum.auto()
    OPERAND = enum.auto()
    """Round a vector to the first operand of products."""
    STORE = enum.auto()
    """Round vectors to rows of the second operand, in the matrix memory: keys and values."""
    PRODUCT = enum.auto()
    """Multiply the operand by a matrix."""
    SEND = enum.auto()
    """Send a vector as the result of the token."""


BINARY = (Op.ADD, Op.SUB, Op.MUL, Op.DIV)
UNARY = (Op.MEAN, Op.RSQRT, Op.EXP, Op.GELU)
REDUCTIONS = (Op.SUM, Op.MAX)


@dataclass(frozen=True)
class Index:
    """Part of a number that depends on the token: ``(source // divisor % modulus) * factor``."""

    source: str
    """``token`` or ``position``."""
    factor: int = 1
    divisor: int = 1
    modulus: int = 1 << 16


@dataclass(frozen=True)
class Number:
    """Address or length: a constant, plus an index."""

    base: int
    index: Index | None = None

    def __add__(self, more: int) -> "Number":
        return Number(self.base + more, self.index)

    def at(self, token: int, position: int) -> int:
        """Return the number for a token at a position."""
        if self.index is None:
            return self.base
        source = token if self.index.source == "token" else position
        return self.base + source // self.index.divisor % self.index.modulus * self.index.factor


ZERO = Number(0)


class Operands(NamedTuple):
    """Format of the operands of a product: its number in the engine, and the elements of an entry.

    An entry is one element, or a block with a common scale.
    """

    number: int = 0
    block: int = 1


@dataclass(frozen=True)
class Instruction:
    """One instruction.

    Attributes
    ----------
    count : Number
        Elements of a vector; of a product, the entries of a sum.
    rows : Number
        Vectors that `Op.STORE` writes; groups of columns of a product, one for each lane of the array.
    x, y : Number
        Addresses of the operands; of a product, ``x`` is that of the matrix.
    x_step, y_step : int
        Distances of the elements of an operand: 0 for a number that all elements use.
    x_row : int
        Distance of the operands of `Op.STORE`, or of the groups of columns of a product.
    to : Number
        Address of the result.
    to_row : int
        Distance in the matrix memory of vectors in the same lane.
    lane : Number
        First lane of the vectors of `Op.STORE`.
    operands : int
        Number of the format of operands, of `Op.OPERAND`, `Op.STORE` and `Op.PRODUCT`.
    """

    op: Op
    count: Number = ZERO
    rows: Number = Number(1)
    x: Number = ZERO
    x_step: int = 1
    x_row: int = 0
    y: Number = ZERO
    y_step: int = 1
    to: Number = ZERO
    to_row: int = 0
    lane: Number = ZERO
    operands: int = 0


@dataclass
class Memory:
    """Names and addresses of vectors or matrices in a memory."""

    size: int = 0
    places: dict[str, int] = field(default_factory=dict)

    def place(self, name: str, size: int) -> int:
        """Reserve words for a name and return its address."""
        self.places[name] = self.size
        self.size += size
        return self.places[name]


class Program:
    """Memories and instructions for a model on an engine.

    Parameters
    ----------
    shape : Shape
    lanes : int
        Multiply-accumulates, a power of two; each computes a column of a matrix.
    operands : mapping of str to Operands
        Formats of the products of each module in `model.products`.

    Attributes
    ----------
    vectors, matrices : Memory
        Contents of the vector memory, in elements, and of the matrix memory, in entries of every lane.
    instructions : list of Instruction
        The last one is followed by the first one.

    Raises
    ------
    ValueError
        If the sizes do not suit the engine.
    """

    def __init__(self, shape: Shape, lanes: int, operands: Mapping[str, Operands]) -> None:
        lengths = {("length of a block", each.block) for each in operands.values()}
        for name, size in (("width", shape.width), ("number of lanes", lanes), *lengths):
            if size & (size - 1):
                raise ValueError(f"the {name} of the engine is a power of two, not {size}")
        if shape.head % lanes:
            raise ValueError(f"a head of {shape.head} elements does not fill {lanes} lanes; use fewer lanes")
        self.shape, self.lanes, self.operands = shape, lanes, operands
        self.vectors, self.matrices = Memory(), Memory()
        self._place()
        self.instructions = list(self._token())

    def entries(self, module: str, count: int) -> int:
        """Return the number of entries of a sum in a module."""
        return -(-count // self.operands[module].block)

    def groups(self, columns: int) -> int:
        """Return the number of groups of columns, one for each lane."""
        return -(-columns // self.lanes)

    def _place(self) -> None:
        """Reserve the memories."""
        shape = self.shape
        self.vectors.place("tokens", shape.vocabulary * shape.width)
        self.vectors.place("positions", shape.context * shape.width)
        for name in ("eps", "scale", "scalar"):
            self.vectors.place(name, 1)
        for name in ("x", "h", "query", "key", "mixed", "part"):
            self.vectors.place(name, shape.width)
        self.vectors.place("hidden", shape.hidden)
        self.vectors.place("scores", max(self.groups(shape.context), 1) * self.lanes)
        self.vectors.place("logits", self.groups(shape.vocabulary) * self.lanes)
        for layer in range(shape.layers):
            prefix = f"blocks.{layer}."
            for name in ("attention_norm", "feed_norm"):
                self.vectors.place(f"{prefix}{name}.weight", shape.width)
            # A block of values is rounded again with each new position, so the engine keeps all values.
            attention = f"{prefix}attention"
            several = self.operands[attention].block > 1
            self.vectors.place(f"{attention}.values", shape.width * (shape.context if several else 1))
            for name in ("query", "key", "value", "output"):
                self._matrix(f"{attention}.{name}", shape.width, shape.width)
            self._matrix(f"{prefix}up", shape.width, shape.hidden)
            self._matrix(f"{prefix}down", shape.hidden, shape.width)
            for head in range(shape.heads):
                self._matrix(attention, shape.head, shape.context, f".keys.{head}")
                self._matrix(attention, shape.context, shape.head, f".values.{head}")
        self.vectors.place("norm.weight", shape.width)
        self._matrix("head", shape.width, shape.vocabulary)

    def _matrix(self, module: str, rows: int, columns: int, name: str = ".weight") -> None:
        self.matrices.place(f"{module}{name}", self.groups(columns) * self.entries(module, rows))

    def vector(self, name: str) -> Number:
        """Return the address of a vector."""
        return Number(self.vectors.places[name])

    def matrix(self, name: str) -> Number:
        """Return the address of a matrix."""
        return Number(self.matrices.places[name])

    # Instructions ----------------------------------------------------------------------------------------------------

    def _token(self) -> Iterator[Instruction]:
        """Yield the instructions of one token."""
        shape = self.shape
        yield Instruction(Op.TAKE)
        yield self._binary(
            Op.ADD,
            "x",
            Number(self.vectors.places["tokens"], Index("token", factor=shape.width)),
            Number(self.vectors.places["positions"], Index("position", factor=shape.width)),
        )
        for layer in range(shape.layers):
            yield from self._block(f"blocks.{layer}.")
        yield from self._norm("norm.weight")
        yield from self._linear("h", {"head": self.vector("logits")}, shape.vocabulary)
        yield Instruction(Op.SEND, Number(shape.vocabulary), x=self.vector("logits"))

    def _block(self, prefix: str) -> Iterator[Instruction]:
        yield from self._norm(f"{prefix}attention_norm.weight")
        attention, width = f"{prefix}attention", self.shape.width
        values = self.vector(f"{attention}.values")
        if self.operands[attention].block > 1:
            values = Number(values.base, Index("position", factor=width))
        to = {"query": self.vector("query"), "key": self.vector("key"), "value": values}
        yield from self._linear("h", {f"{attention}.{name}": place for name, place in to.items()}, width)
        for head in range(self.shape.heads):
            yield from self._head(attention, head)
        yield from self._linear("mixed", {f"{attention}.output": self.vector("part")}, width)
        yield self._binary(Op.ADD, "x", self.vector("x"), self.vector("part"))
        yield from self._norm(f"{prefix}feed_norm.weight")
        yield from self._linear("h", {f"{prefix}up": self.vector("hidden")}, self.shape.hidden)
        yield self._unary(Op.GELU, "hidden", Number(self.shape.hidden))
        yield from self._linear("hidden", {f"{prefix}down": self.vector("part")}, width)
        yield self._binary(Op.ADD, "x", self.vector("x"), self.vector("part"))

    def _norm(self, weight: str) -> Iterator[Instruction]:
        """Yield ``h = x * rsqrt(mean(x * x) + eps) * weight``, in the order of `torch.nn.RMSNorm`."""
        yield self._binary(Op.MUL, "h", self.vector("x"), self.vector("x"))
        yield self._unary(Op.SUM, "h", Number(self.shape.width), to="scalar")
        yield self._unary(Op.MEAN, "scalar", Number(1))
        yield self._binary(Op.ADD, "scalar", self.vector("scalar"), self.vector("eps"), Number(1))
        yield self._unary(Op.RSQRT, "scalar", Number(1))
        yield self._binary(Op.MUL, "h", self.vector("x"), self.vector("scalar"), y_step=0)
        yield self._binary(Op.MUL, "h", self.vector("h"), self.vector(weight))

    def _head(self, attention: str, head: int) -> Iterator[Instruction]:
        """Yield the attention of a head: store its key and value, compare its query with all keys, mix all values."""
        shape, lanes, (form, block) = self.shape, self.lanes, self.operands[attention]
        first, so_far = head * shape.head, Number(1, Index("position"))
        keys, mixed = self.entries(attention, shape.head), self.entries(attention, shape.context)
        # A key is a column of its matrix: one entry after the other, in the lane of its position.
        yield Instruction(
            Op.STORE,
            Number(shape.head),
            x=self.vector("key") + first,
            to=Number(
                self.matrix(f"{attention}.keys.{head}").base,
                Index("position", factor=keys, divisor=lanes),
            ),
            lane=Number(0, Index("position", modulus=lanes)),
            operands=form,
        )
        # A value is a row: element d belongs to lane d, in the entry of its position. Earlier values of its block are
        # `shape.width` elements apart.
        values = self.vector(f"{attention}.values") + first
        yield Instruction(
            Op.STORE,
            Number(1, Index("position", modulus=block)),
            rows=Number(shape.head),
            x=values
            if block == 1
            else Number(values.base, Index("position", factor=block * shape.width, divisor=block)),
            x_step=shape.width,
            x_row=1,
            to=Number(self.matrix(f"{attention}.values.{head}").base, Index("position", divisor=block)),
            to_row=mixed,
            operands=form,
        )
        yield Instruction(Op.OPERAND, Number(shape.head), x=self.vector("query") + first, operands=form)
        yield Instruction(
            Op.PRODUCT,
            Number(keys),
            rows=Number(1, Index("position", divisor=lanes)),
            x=self.matrix(f"{attention}.keys.{head}"),
            x_row=keys,
            to=self.vector("scores"),
            operands=form,
        )
        yield self._binary(Op.MUL, "scores", self.vector("scores"), self.vector("scale"), so_far, y_step=0)
        yield self._unary(Op.MAX, "scores", so_far, to="scalar")
        yield self._binary(Op.SUB, "scores", self.vector("scores"), self.vector("scalar"), so_far, y_step=0)
        yield self._unary(Op.EXP, "scores", so_far)
        yield self._unary(Op.SUM, "scores", so_far, to="scalar")
        yield self._binary(Op.DIV, "scores", self.vector("scores"), self.vector("scalar"), so_far, y_step=0)
        yield Instruction(Op.OPERAND, so_far, x=self.vector("scores"), operands=form)
        yield Instruction(
            Op.PRODUCT,
            Number(1, Index("position", divisor=block)),
            rows=Number(self.groups(shape.head)),
            x=self.matrix(f"{attention}.values.{head}"),
            x_row=mixed,
            to=self.vector("mixed") + first,
            operands=form,
        )

    def _linear(self, x: str, layers: Mapping[str, Number], columns: int) -> Iterator[Instruction]:
        """Yield the products of a vector with the weights of layers; each format of the vector is rounded once."""
        length, rounded = self.shape.hidden if x == "hidden" else self.shape.width, -1
        for layer, to in layers.items():
            form, count = self.operands[layer].number, self.entries(layer, length)
            if form != rounded:
                rounded = form
                yield Instruction(Op.OPERAND, Number(length), x=self.vector(x), operands=form)
            matrix, rows = self.matrix(f"{layer}.weight"), Number(self.groups(columns))
            yield Instruction(Op.PRODUCT, Number(count), rows=rows, x=matrix, x_row=count, to=to, operands=form)

    def _binary(
        self, op: Op, to: str, x: Number, y: Number, count: Number | None = None, y_step: int = 1
    ) -> Instruction:
        return Instruction(op, count or Number(self.shape.width), x=x, y=y, y_step=y_step, to=self.vector(to))

    def _unary(self, op: Op, x: str, count: Number, to: str | None = None) -> Instruction:
        return Instruction(op, count, x=self.vector(x), to=self.vector(to or x))
