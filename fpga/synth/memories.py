"""Initial contents of memories in files, which Yosys reads fast.

The time of Yosys for one assignment to each word grows with the square of the number of words.
"""

import re
from pathlib import Path

YOSYS = ("halfulp.fpga.synth.yosys", "halfulp.fpga.synth.memories")
"""Modules that synthesise for FPGAs, on which results depend."""

_BLOCK = re.compile(r"^  initial begin\n((?:    .*\[.*\] = .*;\n)+)  end\n", re.MULTILINE)
_LOOP = re.compile(r" *for \((\w+) = 0; \1 < (\d+); \1 = \1 \+ 1\) (\S+) ?\[\1\] = (\S+);\n")
_WORD = re.compile(r" *(\S+?) ?\[(\d+)\] = (\S+);\n")
_NUMBER = re.compile(r"\d+'([bdh])([0-9a-f]+)")
_BASES = {"b": 2, "d": 10, "h": 16}


def with_files(text: str) -> tuple[str, dict[str, str]]:
    """Return Verilog of the library whose memories take their contents from files, and these files by name.

    Blocks that do not set all words from the first on, or have digits that are no numbers, do not change.
    """
    files: dict[str, str] = {}

    def moved(block: re.Match[str]) -> str:
        contents = _contents(block[1])
        if contents is None:
            return block[0]
        memory, words = contents
        name = f"memory{len(files)}.hex"
        files[name] = "".join(f"{word:x}\n" for word in words)
        # An escaped name ends with a blank.
        return f'  initial $readmemh("{name}", {memory} );\n'

    return _BLOCK.sub(moved, text), files


def read_design() -> str:
    """Return the command that reads ``design.v``, from a copy if it has memories with contents, which move to files."""
    text, files = with_files(Path("design.v").read_text())
    if not files:
        return "read_verilog design.v"
    for name, content in {**files, "synthesised.v": text}.items():
        Path(name).write_text(content)
    return "read_verilog synthesised.v"


def _contents(lines: str) -> tuple[str, list[int]] | None:
    """Return a memory and its words; None for other statements."""
    if loop := _LOOP.fullmatch(lines):
        memory, word = loop[3], _value(loop[4])
        return None if word is None else (memory, [word] * int(loop[2]))
    assignments = [_WORD.fullmatch(line) for line in lines.splitlines(keepends=True)]
    first, words = assignments[0], list[int]()
    for place, each in enumerate(assignments):
        word = _value(each[3]) if first and each and (each[1], int(each[2])) == (first[1], place) else None
        if word is None:
            return None
        words.append(word)
    return None if first is None else (first[1], words)


def _value(text: str) -> int | None:
    number = _NUMBER.fullmatch(text)
    return int(number[2], _BASES[number[1]]) if number else None
