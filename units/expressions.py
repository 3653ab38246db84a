"""Expressions of Verilog as Yosys writes them: reading, widths, substitution and text."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from types import MappingProxyType
from typing import Any, NamedTuple

_TOKEN = re.compile(
    r"\\\S+ |[A-Za-z_][\w$]*|\d+'s?[bdh][0-9a-fxz?]+|\$signed|<<<|>>>|[=!]=|<<|>>|[<>]=|~[|&^]|&&|\|\|"
    r"|[-+*/%&|^~!<>?:(){}\[\],]|\d+"
)

REDUCTIONS = {"&": "all", "|": "any", "^": "parity", "~|": "none", "~&": "not_all"}
"""Unary operators whose result is one bit, with a word for it."""

COMPARISONS = {"==": "equal", "!=": "differ", "<": "less", "<=": "at_most", ">": "more", ">=": "at_least"}
"""Binary operators whose result is one bit, with a word for it."""

_SHIFTS = ("<<", ">>", "<<<", ">>>")
_CHAINS = ("&", "|", "^")
_BINARY = {*COMPARISONS, *_SHIFTS, *_CHAINS, "&&", "||", "+", "-", "*", "/", "%", "~^"}
_OPPOSITES = {("|", 1): "~|", ("&", 1): "~&", ("==", 2): "!=", ("!=", 2): "=="}
"""Operators of one bit with the opposite result, by operator and number of operands."""


class Unreadable(ValueError):
    """Text that is no expression of signals, such as a word of a memory."""


class Node(NamedTuple):
    """Expression.

    Attributes
    ----------
    kind : str
        ``const`` with its text as argument, ``bits`` with the name of a signal and the lowest bit, ``{}`` with the
        parts of a concatenation, ``$signed`` with its operand, or an operator with its operands.
    args : tuple
    width : int
        Number of bits of the expression by itself.
    """

    kind: str
    args: tuple[Any, ...]
    width: int

    @property
    def nodes(self) -> tuple["Node", ...]:
        """Operands, or parts of a concatenation."""
        return () if self.kind in ("const", "bits") else self.args

    @property
    def is_wiring(self) -> bool:
        """True for constants, bits of signals, and their concatenations."""
        return self.kind in ("const", "bits", "{}") and all(part.is_wiring for part in self.nodes)

    @property
    def is_bit(self) -> bool:
        """True for operators whose operands do not depend on the context, and whose result is an unsigned bit."""
        unary = len(self.args) == 1
        return (unary and self.kind in REDUCTIONS) or (not unary and self.kind in (*COMPARISONS, "&&", "||"))

    @property
    def may_be_signed(self) -> bool:
        """True if a wider context may copy the sign."""
        if self.kind in ("const", "bits", "{}") or self.is_bit:
            return self.kind == "const" and "'s" in self.args[0]
        return self.kind == "$signed" or any(node.may_be_signed for node in self.nodes)

    @property
    def keeps_value(self) -> bool:
        """True if a wider context only adds zeros above the value, unless it is signed."""
        if self.kind in (*_CHAINS, "?") and not self.is_bit:
            return all(node.keeps_value for node in self.nodes[-2:])
        return self.is_bit or self.kind in ("const", "bits", "{}")

    def names(self) -> Iterator[str]:
        """Yield the name of the signal of each use of bits."""
        if self.kind == "bits":
            yield self.args[0]
        for node in self.nodes:
            yield from node.names()


def _const(value: int, width: int) -> Node:
    return Node("const", (f"{width}'h{value:0{-(-width // 4)}x}",), width)


def _value(node: Node) -> int | None:
    match = re.fullmatch(r"\d+'([bdh])([0-9a-f]+)", node.args[0]) if node.kind == "const" else None
    return None if match is None else int(match[2], {"b": 2, "d": 10, "h": 16}[match[1]])


def joined(parts: Sequence[Node]) -> Node:
    """Return a concatenation, the highest bits first, with neighbouring bits of one signal as one part."""
    merged: list[Node] = []
    for part in (inner for node in parts for inner in (node.args if node.kind == "{}" else (node,))):
        last = merged[-1] if merged else part
        if merged and part.kind == last.kind == "bits" and last.args == (part.args[0], part.args[1] + part.width):
            merged[-1] = Node("bits", part.args, last.width + part.width)
        elif merged and (value := _value(part)) is not None and (high := _value(last)) is not None:
            merged[-1] = _const(high << part.width | value, last.width + part.width)
        else:
            merged.append(part)
    if len(merged) == 1 and merged[0].is_wiring:
        return merged[0]
    return Node("{}", tuple(merged), sum(part.width for part in merged))


def sliced(node: Node, low: int, width: int) -> Node:
    """Return bits of a constant, of a signal, or of a concatenation of them; raises Unreadable for others."""
    if (low, width) == (0, node.width):
        return node
    if node.kind == "bits":
        return Node("bits", (node.args[0], node.args[1] + low), width)
    if (value := _value(node)) is not None:
        return _const(value >> low & (1 << width) - 1, width)
    if node.kind != "{}":
        raise Unreadable("some bits of an operator")
    parts, above = [], node.width
    for part in node.args:
        above -= part.width
        first, last = max(low - above, 0), min(low + width - above, part.width)
        if first < last:
            parts.append(sliced(part, first, last - first))
    return joined(parts)


def read(text: str, sizes: Mapping[str, int]) -> Node:
    """Return the expression of a text; raises Unreadable if it has another form.

    Parameters
    ----------
    text : str
    sizes : mapping of str to int
        Widths of the signals by name, which starts with a backslash if it is not a plain word.
    """
    tokens = [token.strip() for token in _TOKEN.findall(text)]
    rest = [*tokens, "end"][::-1]
    try:
        if "".join(tokens) == re.sub(r"\s", "", text) and (node := _operation(rest, sizes)) and rest == ["end"]:
            return node
    except (KeyError, IndexError, ValueError):
        pass
    raise Unreadable(text)


def _operation(rest: list[str], sizes: Mapping[str, int]) -> Node:
    """Read an operator and its operands from the end of reversed tokens."""
    if rest[-1] in REDUCTIONS or rest[-1] in ("~", "-", "!"):
        # A logical negation of several bits is a reduction.
        symbol = {"!": "~|"}.get(token := rest.pop(), token)
        operand = _atom(rest, sizes)
        return Node(symbol, (operand,), 1 if symbol in REDUCTIONS else operand.width)
    operands = [_atom(rest, sizes)]
    if rest[-1] not in (*_BINARY, "?"):
        return operands[0]
    symbol = rest.pop()
    operands.append(_atom(rest, sizes))
    if symbol == "?":
        if rest.pop() != ":":
            raise Unreadable(symbol)
        operands.append(_atom(rest, sizes))
    width = operands[0].width if symbol in _SHIFTS else max(operand.width for operand in operands[-2:])
    node = Node(symbol, tuple(operands), width)
    return node._replace(width=1) if node.is_bit else node


def _atom(rest: list[str], sizes: Mapping[str, int]) -> Node:
    token = rest.pop()
    if token == "$signed":
        node = _atom(rest, sizes)
        return Node("$signed", (node,), node.width)
    if token in ("(", "{"):
        parts = [_operation(rest, sizes)]
        while (mark := rest.pop()) == ",":
            parts.append(_operation(rest, sizes))
        if mark != {"(": ")", "{": "}"}[token]:
            raise Unreadable(mark)
        return parts[0] if token == "(" else joined(parts)
    if "'" in token:
        return Node("const", (token,), int(token.partition("'")[0]))
    high, low = sizes[token] - 1, 0
    if rest[-1] == "[":
        rest.pop()
        high = low = int(rest.pop())
        if (mark := rest.pop()) == ":":
            low, mark = int(rest.pop()), rest.pop()
        if mark != "]":
            raise Unreadable(mark)
    return Node("bits", (token, low), high - low + 1)


def replaced(node: Node, change: Callable[[Node], Node], context: int) -> Node:
    """Return an expression with other expressions of the same width in place of bits of signals.

    An expression whose value depends on its context is in braces, unless the width of the context is its own.

    Parameters
    ----------
    node : Node
    change : callable
    context : int
        Width to which Verilog extends the operands of the expression.
    """
    context = max(context, node.width)
    if node.kind == "bits":
        new = change(node)
        if new.is_wiring or (not new.may_be_signed and (new.keeps_value or new.width == context)):
            return new
        return Node("{}", (new,), new.width)
    widths = [operand.width for operand in node.nodes]
    if node.kind in COMPARISONS:
        widths = [max(widths)] * 2
    elif node.kind == "?" or node.kind in _SHIFTS:
        widths = [widths[0], context, context] if node.kind == "?" else [context, widths[1]]
    elif node.kind not in ("{}", "$signed") and not node.is_bit:
        widths = [context] * len(widths)
    changed = [replaced(operand, change, width) for operand, width in zip(node.nodes, widths, strict=True)]
    if node.kind == "{}":
        return joined(changed)
    if node.kind == "~" and context == 1 and (opposite := _OPPOSITES.get((changed[0].kind, len(changed[0].nodes)))):
        return Node(opposite, changed[0].args, 1)
    return node._replace(args=tuple(changed)) if changed else node


def spelled(name: str) -> str:
    """Return a name in the syntax of Verilog; an escaped one begins with a backslash and ends with a blank."""
    name = name if re.fullmatch(r"\\.*|[A-Za-z_][\w$]*", name, re.ASCII) else f"\\{name}"
    return f"{name} " if name.startswith("\\") else name


def stem_of(text: str) -> str:
    """Return a text in the characters of a name; empty if it has none of them."""
    stem = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_")
    return f"value_{stem}" if stem[:1].isdigit() else stem


def _concatenated(texts: Sequence[str]) -> str:
    """Return the text of a concatenation, in which equal neighbours are repetitions."""
    counted = ((text, len(list(same))) for text, same in groupby(texts))
    parts = [text if count == 1 else f"{{{count}{{{text}}}}}" for text, count in counted]
    return parts[0] if len(texts) > 1 == len(parts) else f"{{{', '.join(parts)}}}"


def text_of(
    node: Node, sizes: Mapping[str, int], names: Mapping[str, str] = MappingProxyType({}), outer: str = ""
) -> str:
    """Return the text of an expression, with new names of signals, as an operand of the operator ``outer``."""
    if node.kind == "const":
        return str(node.args[0])
    if node.kind == "bits":
        name, low = node.args
        place = f"{low + node.width - 1}:{low}" if node.width > 1 else str(low)
        return spelled(names.get(name, name)) + (f"[{place}]" if node.width < sizes[name] else "")
    inner = "" if node.kind in ("{}", "$signed") else node.kind if len(node.args) == 2 else "unary"
    texts = [text_of(operand, sizes, names, inner) for operand in node.args]
    if node.kind == "{}":
        return _concatenated(texts)
    if node.kind == "$signed":
        return f"$signed({texts[0]})"
    if len(texts) == 3:
        text = f"{texts[0]} ? {texts[1]} : {texts[2]}"
    else:
        text = f"{texts[0]} {node.kind} {texts[1]}" if len(texts) == 2 else node.kind + texts[0]
    is_chain = node.kind == outer and node.kind in _CHAINS and len(texts) == 2
    # ^~ is an operator of its own.
    stands_alone = node.kind == "~" and outer != "unary"
    return text if not outer or is_chain or stands_alone else f"({text})"
