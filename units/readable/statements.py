"""Modules in the Verilog of Yosys: declarations, assignments, instances, and blocks."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from .expressions import Expression, Ref, Unreadable, read, refs, replaced, spelled


@dataclass
class Declaration:
    """Port, wire, register or memory.

    Attributes
    ----------
    direction : str
        ``input``, ``output``, or empty.
    size : int
        Number of bits.
    is_reg : bool
    initial : str
        Initial value, or empty.
    attributes : list of str
    memory : str
        Range of the words of a memory, or empty.
    """

    direction: str = ""
    size: int = 1
    is_reg: bool = False
    initial: str = ""
    attributes: list[str] = field(default_factory=list)
    memory: str = ""


@dataclass
class Set:
    """Assignment of bits of a signal, in a block or continuous."""

    target: Ref
    value: Expression


@dataclass
class If:
    """Conditions with their statements, and those without a condition."""

    branches: list[tuple[Expression, "Body"]]
    otherwise: "Body"


@dataclass
class Case:
    """Choice by the value of a selector; ``full`` if no other value occurs."""

    word: str
    selector: Expression
    items: list[tuple[str, "Body"]]
    full: bool


Body = list[Set | If | Case]


@dataclass
class Block:
    """``always`` block: combinational, or with the edges of ``event``."""

    event: str
    body: Body

    @property
    def clocked(self) -> bool:
        """True for a block of registers."""
        return self.event != "*"


@dataclass
class Instance:
    """Instance of a module; ``kind`` has the values of parameters too."""

    module: str
    kind: str
    name: str
    ports: dict[str, Expression]


@dataclass
class Raw:
    """Statement that is kept as it is, with the names in it."""

    text: str
    names: list[str]


Statement = Set | Block | Instance | Raw


@dataclass
class Module:
    """Module of Verilog.

    Attributes
    ----------
    name : str
    ports : list of str
        Ports in the order of the header.
    declarations : dict of str to Declaration
    statements : list of Statement
    """

    name: str
    ports: list[str]
    declarations: dict[str, Declaration]
    statements: list[Statement]

    def expressions(self) -> Iterator[Expression]:
        """Yield all expressions that are read."""
        for statement in self.statements:
            match statement:
                case Set():
                    yield statement.value
                case Block():
                    yield from _read_in(statement.body)
                case Instance():
                    yield from statement.ports.values()

    def change(self, change: Callable[[Ref], Expression]) -> None:
        """Replace signals in all expressions."""
        for statement in self.statements:
            match statement:
                case Set():
                    statement.value = replaced(statement.value, change)
                case Block():
                    change_body(statement.body, lambda value, _: replaced(value, change))
                case Instance():
                    statement.ports = {port: replaced(value, change) for port, value in statement.ports.items()}

    def rename(self, names: Mapping[str, str]) -> None:
        """Give signals other names."""
        if not names:
            return

        def renamed(ref: Ref) -> Ref:
            return Ref(names[ref.name], ref.high, ref.low, ref.size) if ref.name in names else ref

        def spelling(found: re.Match[str]) -> str:
            name = found[1] or found[2]
            return spelled(names[name]) if name in names else found[0]

        self.change(renamed)
        for statement in self.statements:
            match statement:
                case Set():
                    statement.target = renamed(statement.target)
                case Block():
                    for one in sets_in(statement.body):
                        one.target = renamed(one.target)
                case Raw():
                    statement.text = _NAME.sub(spelling, statement.text)
                    statement.names = [names.get(name, name) for name in statement.names]
        self.declarations = {names.get(name, name): one for name, one in self.declarations.items()}
        self.ports = [names.get(port, port) for port in self.ports]

    def uses(self) -> dict[str, int]:
        """Return the number of uses of each signal that is used."""
        found: dict[str, int] = {}
        for value in self.expressions():
            for ref in refs(value):
                found[ref.name] = found.get(ref.name, 0) + 1
        for name in self.pinned():
            found[name] = found.get(name, 0) + 2
        return found

    def pinned(self) -> set[str]:
        """Return the names in statements that are kept as they are."""
        return {name for one in self.statements if isinstance(one, Raw) for name in one.names}


def _read_in(body: Body) -> Iterator[Expression]:
    for item in body:
        match item:
            case Set():
                yield item.value
            case If():
                for condition, inner in item.branches:
                    yield condition
                    yield from _read_in(inner)
                yield from _read_in(item.otherwise)
            case Case():
                yield item.selector
                for _, inner in item.items:
                    yield from _read_in(inner)


def change_body(body: Body, change: Callable[[Expression, int], Expression]) -> None:
    """Replace all expressions of a block; ``change`` receives also the width of what is assigned, 0 for a condition."""
    for item in body:
        match item:
            case Set():
                item.value = change(item.value, item.target.width)
            case If():
                item.branches = [(change(condition, 0), inner) for condition, inner in item.branches]
                for _, inner in item.branches:
                    change_body(inner, change)
                change_body(item.otherwise, change)
            case Case():
                item.selector = change(item.selector, 0)
                for _, inner in item.items:
                    change_body(inner, change)


def sets_in(body: Body) -> Iterator[Set]:
    """Yield the assignments of a block."""
    for item in body:
        match item:
            case Set():
                yield item
            case If():
                for inner in [*(inner for _, inner in item.branches), item.otherwise]:
                    yield from sets_in(inner)
            case Case():
                for _, inner in item.items:
                    yield from sets_in(inner)


_HEAD = re.compile(r"module \\?(\S+?)\s*\((.*?)\);\n", re.S)
_DECLARED = re.compile(
    r"  (input|output|wire|reg) (?:\[(\d+):0\] )?(\\\S+ |\w+)(?: (\[\d+:\d+\]))?(?: *= (.*))?;$"
)
_ASSIGN = re.compile(r"  assign (\\\S+ |\w+)(?: ?\[(\d+)(?::(\d+))?\])? *= (.*);$")
_SET = re.compile(r" *(\\\S+ |\w+)(?: ?\[(\d+)(?::(\d+))?\])? *<?= (.*);$")
_INSTANCE = re.compile(r"  (\\(\S+)  (?:#\(.*\) )?)(\\\S+ |\w+) ?\($")
_CONNECTION = re.compile(r" *\.(\\\S+ |\w+) ?\((.*)\),?$")
_LABEL = re.compile(r" *((?:\d+'[bh][0-9a-f?]+(?:, *)?)+:?|default:(?: ;)?)$")
_NAME = re.compile(r"\\(\S+) |(?<![\w'$])([A-Za-z_]\w*)")


def parse(text: str) -> Module:
    """Return a module of Yosys."""
    head = _HEAD.match(text)
    assert head is not None
    ports = [port.strip().removeprefix("\\") for port in head[2].split(",")]
    module = Module(head[1], [port for port in ports if port], {}, [])
    lines = text[head.end() :].splitlines()
    assert lines.pop() == "endmodule"
    pending: list[str] = []
    place = 0
    while place < len(lines):
        line = lines[place]
        if line.startswith("`") or "dump_module$" in line:
            place += 3 if line.startswith("`ifdef") else 1
        elif declared := _DECLARED.match(line):
            _declare(module, declared, pending)
            pending = []
            place += 1
        elif line.startswith("  (*"):
            pending.append(line.strip())
            place += 1
        else:
            end = place + 1
            while end < len(lines) and (lines[end].startswith("   ") or lines[end] in ("  end", "  );")):
                end += 1
            module.statements.append(_statement(module, [*(f"  {one}" for one in pending), *lines[place:end]]))
            pending = []
            place = end
    return module


def _declare(module: Module, declared: re.Match[str], attributes: Iterable[str]) -> None:
    kind, high, name, words, initial = declared.groups()
    name = name.removeprefix("\\").rstrip()
    one = module.declarations.setdefault(name, Declaration())
    one.size = int(high or 0) + 1
    if kind in ("input", "output"):
        one.direction = kind
    one.is_reg |= kind == "reg"
    one.initial, one.memory = initial or one.initial, words or one.memory
    # Initial values are in declarations of registers; aliases of them have attributes.
    one.attributes += [text for text in attributes if "init =" not in text]


def _statement(module: Module, lines: list[str]) -> Statement:
    sizes = _Sizes(module)
    try:
        if assigned := _ASSIGN.match(lines[0]):
            return _set(assigned, sizes)
        if lines[0].startswith("  always @"):
            event = re.fullmatch(r"  always @\(?(.*?)\)?(?: begin)?", lines[0])
            assert event is not None
            inner = lines[1:-1] if lines[0].endswith(" begin") else lines[1:]
            return Block(event[1], _Blocks(inner, sizes).whole())
        if instance := _INSTANCE.match(lines[0]):
            found = [_CONNECTION.match(line) for line in lines[1:-1]]
            ports = {one[1].removeprefix("\\").rstrip(): read(one[2], sizes) for one in found if one}
            if len(ports) == len(found):
                return Instance(instance[2], instance[1], instance[3].removeprefix("\\").rstrip(), ports)
    except Unreadable:
        pass
    text = "\n".join(lines)
    names = [one for found in _NAME.findall(text) for one in found if one in module.declarations]
    return Raw(text, names)


class _Sizes(dict[str, int]):
    """Widths of the signals of a module that are not memories."""

    def __init__(self, module: Module) -> None:
        super().__init__()
        self._declarations = module.declarations

    def __contains__(self, name: object) -> bool:
        return name in self._declarations and not self._declarations[str(name)].memory

    def __getitem__(self, name: str) -> int:
        return self._declarations[name].size


def _set(assigned: re.Match[str], sizes: _Sizes) -> Set:
    name, high, low, value = assigned.groups()
    name = name.removeprefix("\\").rstrip()
    if name not in sizes:
        raise Unreadable(name)
    size = sizes[name]
    top = size - 1 if high is None else int(high)
    bottom = 0 if high is None else top if low is None else int(low)
    return Set(Ref(name, top, bottom, size), read(value, sizes))


class _Blocks:
    """Lines of an ``always`` block, and the place of the next one."""

    def __init__(self, lines: Sequence[str], sizes: _Sizes) -> None:
        self._lines, self._sizes, self._place = lines, sizes, 0

    def whole(self) -> Body:
        body = self._body()
        if self._place < len(self._lines):
            raise Unreadable(self._lines[self._place])
        return body

    def _body(self) -> Body:
        body: Body = []
        full = False
        while self._place < len(self._lines):
            line = self._lines[self._place].strip()
            if line.startswith("end") or _LABEL.match(line):
                break
            self._place += 1
            if line.startswith("(*"):
                full = "full_case" in line
            elif "dump_module$" in line or line == "/* empty */;":
                continue
            elif line.startswith("case"):
                body.append(self._case(line, full))
                full = False
            elif line.startswith("if ("):
                body.append(self._if(line))
                full = False
            elif found := _SET.match(line):
                body.append(_set(found, self._sizes))
            else:
                raise Unreadable(line)
        return body

    def _if(self, line: str) -> If:
        if not line.endswith(" begin"):
            return self._short_if(line)
        chosen = If([], [])
        while True:
            condition = read(line[line.index("(") : -len(" begin")], self._sizes)
            chosen.branches.append((condition, self._body()))
            line = self._take()
            if line == "end":
                return chosen
            if line == "end else begin":
                chosen.otherwise = self._body()
                if self._take() != "end":
                    raise Unreadable(line)
                return chosen
            if not line.startswith("end else if ("):
                raise Unreadable(line)

    def _short_if(self, line: str) -> If:
        """Return a condition of single statements, on lines of their own."""
        found = re.fullmatch(r"if \((\\\S+ |\w+)\) (.*;)", line)
        one = _SET.match(found[2]) if found else None
        if found is None or one is None:
            raise Unreadable(line)
        chosen = If([(read(found[1], self._sizes), [_set(one, self._sizes)])], [])
        if self._place < len(self._lines) and self._lines[self._place].lstrip().startswith("else "):
            other = _SET.match(self._take().removeprefix("else "))
            if other is None:
                raise Unreadable(line)
            chosen.otherwise = [_set(other, self._sizes)]
        return chosen

    def _case(self, line: str, full: bool) -> Case:
        word, _, selector = line.partition(" ")
        choice = Case(word, read(selector, self._sizes), [], full)
        while (label := self._take()) != "endcase":
            while not label.endswith((":", ";")):
                label += f" {self._take()}"
            choice.items.append((label.removesuffix(" ;").removesuffix(":"), self._body()))
        return choice

    def _take(self) -> str:
        if self._place == len(self._lines):
            raise Unreadable("the end of a block")
        self._place += 1
        return self._lines[self._place - 1].strip()
