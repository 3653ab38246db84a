"""Expressions in the Verilog of Yosys: reading, widths, substitution and text."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .keywords import KEYWORDS

_TOKEN = re.compile(
    r"\s*(?:(?P<name>\\\S+ |[A-Za-z_][\w$]*)|(?P<const>(?P<bits>\d+)'[bdh][0-9a-fxz?]+)|(?P<signed>\$signed)"
    r"|(?P<mark><<<|>>>|[=!]=|<<|>>|[<>]=|~[|&^]|&&|\|\||[-+*/%&|^~!<>?:(){}\[\],])|(?P<number>\d+))"
)

_WORD = re.compile(r"[A-Za-z_]\w*")

REDUCTIONS = frozenset({"&", "|", "^", "~&", "~|", "~^", "!"})
"""Unary operators with a result of one bit."""

COMPARISONS = frozenset({"==", "!=", "<", "<=", ">", ">=", "&&", "||"})
"""Binary operators with a result of one bit."""

_CHAINS = frozenset({"&", "|", "^"})
"""Associative operators, whose nested uses need no parentheses."""

KNOWN = frozenset({*_CHAINS, "+", "-", "*", *COMPARISONS})
"""Binary operators that may be operands of each other."""


class Unreadable(ValueError):
    """Text that is not one of the expressions read here."""


@dataclass(frozen=True, slots=True)
class Const:
    """Constant, with its text."""

    width: int
    text: str


@dataclass(frozen=True, slots=True)
class Ref:
    """Bits ``high`` to ``low`` of a signal of ``size`` bits."""

    name: str
    high: int
    low: int
    size: int

    @property
    def width(self) -> int:
        """Number of bits."""
        return self.high - self.low + 1

    @property
    def is_whole(self) -> bool:
        """True for all bits of the signal."""
        return self.width == self.size


@dataclass(frozen=True, slots=True)
class Join:
    """Concatenation, the highest bits first."""

    parts: tuple[Any, ...]
    width: int


@dataclass(frozen=True, slots=True)
class Operation:
    """Operator with its operands; ``$signed`` is one. ``width`` is that of the operator by itself."""

    symbol: str
    operands: tuple[Any, ...]
    width: int


Expression = Const | Ref | Join | Operation


def joined(parts: Sequence[Expression]) -> Expression:
    """Return a concatenation with neighbouring bits of one signal as one part."""
    merged: list[Expression] = []
    for part in parts:
        last = merged[-1] if merged else None
        if isinstance(part, Join):
            merged += part.parts
        elif isinstance(part, Ref) and isinstance(last, Ref) and last.name == part.name and last.low == part.high + 1:
            merged[-1] = Ref(part.name, last.high, part.low, part.size)
        else:
            merged.append(part)
    return merged[0] if len(merged) == 1 else Join(tuple(merged), sum(part.width for part in merged))


def sliced(value: Expression, high: int, low: int) -> Expression:
    """Return bits of an expression of constants, signals and concatenations."""
    if low == 0 and high == value.width - 1:
        return value
    match value:
        case Ref():
            return Ref(value.name, value.low + high, value.low + low, value.size)
        case Const():
            number = int(value.text.partition("'")[2][1:], {"b": 2, "h": 16, "d": 10}[value.text.partition("'")[2][0]])
            width = high - low + 1
            return Const(width, f"{width}'h{number >> low & (1 << width) - 1:0{-(-width // 4)}x}")
        case Join():
            parts: list[Expression] = []
            top = value.width
            for part in value.parts:
                top -= part.width
                first, last = max(low - top, 0), min(high - top, part.width - 1)
                if first <= last:
                    parts.append(sliced(part, last, first))
            return joined(parts)
    raise Unreadable("bits of an operator")


def is_wiring(value: Expression) -> bool:
    """Return True for constants, signals and their concatenations."""
    return isinstance(value, Const | Ref) or (isinstance(value, Join) and all(map(is_wiring, value.parts)))


def refs(value: Expression) -> Iterator[Ref]:
    """Yield each use of a signal."""
    stack = [value]
    while stack:
        match stack.pop():
            case Ref() as ref:
                yield ref
            case Join(parts):
                stack += reversed(parts)
            case Operation(_, operands):
                stack += reversed(operands)


def replaced(value: Expression, change: Callable[[Ref], Expression]) -> Expression:
    """Return an expression with other expressions in place of its signals."""
    match value:
        case Ref():
            return change(value)
        case Join(parts):
            changed = tuple(replaced(part, change) for part in parts)
            return value if changed == parts else joined(changed)
        case Operation(symbol, operands, width):
            changed = tuple(replaced(operand, change) for operand in operands)
            return value if changed == operands else Operation(symbol, changed, width)
    return value


def commutes(value: Expression) -> bool:
    """Return True if a wider context only adds zeros to the value of an expression."""
    if not isinstance(value, Operation):
        return True
    symbol, operands = value.symbol, value.operands
    if symbol in COMPARISONS or (len(operands) == 1 and symbol in REDUCTIONS):
        return True
    if symbol == "?":
        return all(map(commutes, operands[1:]))
    return symbol in _CHAINS and all(map(commutes, operands))


def has_signed(value: Expression) -> bool:
    """Return True if the type of an expression is signed: all operands that its context extends are."""
    if not isinstance(value, Operation) or value.symbol in COMPARISONS:
        return False
    if value.symbol == "$signed":
        return True
    if len(value.operands) == 1 and value.symbol in REDUCTIONS:
        return False
    return any(map(has_signed, value.operands))


def operators(value: Expression) -> int:
    """Return the number of operators in an expression."""
    match value:
        case Join(parts):
            return sum(map(operators, parts))
        case Operation(_, operands):
            return 1 + sum(map(operators, operands))
    return 0


def _width(symbol: str, operands: Sequence[Expression]) -> int:
    if symbol in COMPARISONS or (len(operands) == 1 and symbol in REDUCTIONS):
        return 1
    if symbol == "?":
        return max(operand.width for operand in operands[1:])
    if symbol in ("<<", ">>", "<<<", ">>>"):
        return operands[0].width
    return max(operand.width for operand in operands)


def read(text: str, sizes: Mapping[str, int]) -> Expression:
    """Return the expression of a text.

    Parameters
    ----------
    text : str
    sizes : mapping of str to int
        Widths of the signals by name.

    Raises
    ------
    Unreadable
        If the text has another form, such as a word of a memory.
    """
    tokens: list[tuple[str, str, int]] = []
    place, end = 0, len(text.rstrip())
    while place < end:
        found = _TOKEN.match(text, place)
        if found is None:
            raise Unreadable(text)
        kind = found.lastgroup or ""
        kind = "const" if kind == "bits" else kind
        tokens.append((kind, found[kind], int(found["bits"] or 0)))
        place = found.end()
    tokens.append(("end", "", 0))
    reader = _Reader(tokens, sizes)
    value = reader.expression()
    if reader.kind != "end":
        raise Unreadable(text)
    return value


class _Reader:
    """Tokens of an expression, and the place of the next one; operands of operators have parentheses or are atoms."""

    def __init__(self, tokens: Sequence[tuple[str, str, int]], sizes: Mapping[str, int]) -> None:
        self._tokens, self._sizes, self._place = tokens, sizes, 0

    @property
    def kind(self) -> str:
        return self._tokens[self._place][0]

    def _take(self, mark: str = "") -> str:
        text = self._tokens[self._place][1]
        if mark and text != mark:
            raise Unreadable(text)
        self._place += 1
        return text

    def _next(self) -> str:
        return self._tokens[self._place][1]

    def expression(self) -> Expression:
        if self.kind == "mark" and self._next() in ("~", "-", "+", *REDUCTIONS):
            symbol = self._take()
            operand = self._atom()
            # A logical negation of several bits is a reduction, and linters expect one.
            symbol = {"!": "~|"}.get(symbol, symbol)
            return Operation(symbol, (operand,), _width(symbol, (operand,)))
        first = self._atom()
        if self.kind == "mark" and self._next() not in (")", "}", ",", "]", ":"):
            symbol = self._take()
            operands = [first, self._atom()]
            if symbol == "?":
                self._take(":")
                operands.append(self._atom())
            return Operation(symbol, tuple(operands), _width(symbol, operands))
        return first

    def _atom(self) -> Expression:
        kind, text, bits = self._tokens[self._place]
        self._place += 1
        if kind == "const":
            return Const(bits, text)
        if kind == "name":
            return self._ref(text.removeprefix("\\").rstrip())
        if kind == "signed":
            self._take("(")
            value = self.expression()
            self._take(")")
            return Operation("$signed", (value,), value.width)
        if text == "(":
            value = self.expression()
            self._take(")")
            return value
        if text == "{":
            parts = [self.expression()]
            while self._next() == ",":
                self._take()
                parts.append(self.expression())
            self._take("}")
            return Join(tuple(parts), sum(part.width for part in parts)) if len(parts) > 1 else parts[0]
        raise Unreadable(text)

    def _ref(self, name: str) -> Ref:
        if name not in self._sizes:
            raise Unreadable(name)
        size = self._sizes[name]
        if self._next() != "[":
            return Ref(name, size - 1, 0, size)
        self._take()
        if self.kind != "number":
            raise Unreadable(name)
        high = low = int(self._take())
        if self._next() == ":":
            self._take()
            low = int(self._take())
        self._take("]")
        return Ref(name, high, low, size)


def spelled(name: str) -> str:
    """Return a name as Verilog has it: escaped, with a blank, if it is not a plain word or a reserved one."""
    return name if _WORD.fullmatch(name) and name not in KEYWORDS else f"\\{name} "


def text_of(value: Expression, inner: bool = False, symbol: str = "") -> str:
    """Return the Verilog of an expression; of an operand, with parentheses if it needs them.

    Parameters
    ----------
    value : Expression
    inner : bool
        True for an operand of an operator.
    symbol : str
        Operator of which it is an operand.
    """
    match value:
        case Const():
            return value.text
        case Ref():
            if value.is_whole:
                return spelled(value.name)
            place = f"{value.high}:{value.low}" if value.width > 1 else str(value.high)
            return f"{spelled(value.name)}[{place}]"
        case Join():
            return _text_of_join(value)
    if value.symbol == "$signed":
        return f"$signed({text_of(value.operands[0])})"
    if len(value.operands) == 1:
        # Two operators side by side could read as one.
        text = f"{value.symbol}{text_of(value.operands[0], True)}"
        return f"({text})" if inner and value.symbol != "~" else text
    if value.symbol == "?":
        condition, yes, no = value.operands
        text = f"{text_of(condition, True)} ? {text_of(yes, True)} : {text_of(no, True)}"
        return f"({text})" if inner else text
    text = f" {value.symbol} ".join(text_of(operand, True, value.symbol) for operand in value.operands)
    return f"({text})" if inner and not (symbol == value.symbol and symbol in _CHAINS) else text


def _text_of_join(value: Join) -> str:
    parts: list[str] = []
    place = 0
    while place < len(value.parts):
        count = 1
        while place + count < len(value.parts) and value.parts[place + count] == value.parts[place]:
            count += 1
        text = text_of(value.parts[place])
        many = count > 1 and not isinstance(value.parts[place], Const)
        parts += [f"{{{count}{{{text}}}}}"] if many else [text] * count
        place += count
    if len(parts) == 1 and parts[0].startswith("{"):
        return parts[0]
    return f"{{{', '.join(parts)}}}"
