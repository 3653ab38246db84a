"""Files of vectors: each layout has the codes and results of the golden model, and is read again."""

import os
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from halfulp import golden
from halfulp.implementation import Implementation
from halfulp.sim import vector_files
from halfulp.sim.toolchain import verilator
from halfulp.sim.vector_files import Table

MUL = "mul e3m2fn*e3m2fn=e5m2"


def test_lines_are_all_inputs_with_the_results_of_the_golden_model(halfulp) -> None:
    code, out, _ = halfulp("vectors", MUL)
    rows = [[int(word, 16) for word in line.split(" ")] for line in codes_of(out).splitlines()]
    assert code == 0
    assert sorted((a, b) for a, b, _ in rows) == [(a, b) for a in range(64) for b in range(64)]
    a, b, o = np.array(rows).T
    want = golden.mul(torch.tensor(a), torch.tensor(b), a="e3m2fn", b="e3m2fn", o="e5m2")
    assert want.tolist() == o.tolist()


def codes_of(text: str) -> str:
    """Return the lines of codes of a text file of vectors."""
    return "".join(line for line in text.splitlines(True) if not line.startswith("#"))


def test_text_has_unit_and_ports_before_its_codes(halfulp, tmp_path: Path) -> None:
    path = tmp_path / "mul.txt"
    halfulp("vectors", "add e2m1fn+e2m1fn=e4m3fn.sr3 flags", "--vectors", 20, "-o", path)
    first, second, *lines = path.read_text().splitlines()
    assert first.startswith("# Test vectors of add e2m1fn+e2m1fn=e4m3fn.sr3 flags, ")
    ports = "a: e2m1fn, 4 bits; b: e2m1fn, 4 bits; subtract: 1 bit; random: 3 bits; o: e4m3fn, 8 bits; flags: 5 bits"
    assert second == f"# {ports}"
    assert {tuple(map(len, line.split())) for line in lines} == {(1, 1, 1, 1, 2, 2)}
    path.write_text("\n".join(lines))
    assert halfulp("check", "add e2m1fn+e2m1fn=e4m3fn.sr3 flags", "--results", path)[0] == 0


def test_c_program_reads_header(halfulp, tmp_path: Path) -> None:
    code, _, err = halfulp("vectors", "fma bf16*bf16+fp32", "--vectors", 500, "-o", tmp_path / "fma.h")
    assert (code, "500 vectors" in err) == (0, True)
    table = Table.of(Implementation.parse("fma bf16*bf16+fp32").component(), limit=500)
    name = table.unit.name
    source = tmp_path / "main.c"
    source.write_text(f"""
        #include <stdio.h>
        #include "fma.h"
        int main(void) {{
            for (int i = 0; i < {name}_count; i++)
                printf("%04X %04X %08X %08X\\n", {name}_a[i], {name}_b[i], {name}_c[i], {name}_o[i]);
        }}
    """)
    subprocess.run(["cc", "-Wall", "-Werror", "-std=c99", "-o", tmp_path / "main", source], check=True)
    printed = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True).stdout
    assert printed == codes_of(vector_files.text(table))


def include_file(halfulp, tmp_path: Path) -> tuple[str, str]:
    """Write vectors for SystemVerilog; return the name of their unit, and the same vectors as lines."""
    halfulp("vectors", MUL, "--vectors", 64, "-o", tmp_path / "mul.svh")
    table = Table.of(Implementation.parse(MUL).component(), limit=64)
    return table.unit.name, codes_of(vector_files.text(table))


def test_include_file_has_codes_of_each_port(halfulp, tmp_path: Path) -> None:
    name, lines = include_file(halfulp, tmp_path)
    text = (tmp_path / "mul.svh").read_text()
    assert f"localparam int {name}_count = 64;" in text
    columns = [
        re.findall(r"\d+'h(\w+)", match[1])
        for match in re.finditer(rf"{name}_\w+ \[0:63\] = '{{(.*?)}};", text, re.DOTALL)
    ]
    assert "".join(f"{' '.join(row).upper()}\n" for row in zip(*columns, strict=True)) == lines


@pytest.mark.slow
def test_simulator_reads_include_file(halfulp, tmp_path: Path) -> None:
    name, lines = include_file(halfulp, tmp_path)
    (tmp_path / "top.sv").write_text(f"""
        module top;
          `include "mul.svh"
          initial begin
            for (int i = 0; i < {name}_count; i++)
              $display("%02X %02X %02X", {name}_a[i], {name}_b[i], {name}_o[i]);
            $finish;
          end
        endmodule
    """)
    tool = verilator()
    command = [tool.program, "--binary", "-j", "1", "--top-module", "top", "-o", "top", "top.sv"]
    environment = os.environ | tool.environment
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, env=environment)
    printed = subprocess.run([tmp_path / "obj_dir" / "top"], capture_output=True, text=True, check=True).stdout
    assert "".join(f"{line.upper()}\n" for line in printed.splitlines() if not line.startswith("-")) == lines


@pytest.mark.parametrize(
    "text", [MUL, "mac e5m2*e5m2+e6m5.sr10", "compare e4m3fn,e4m3fn", "blockdot2 mxfp4*mxfp4=bf16"]
)
@pytest.mark.parametrize("ending", ["txt", "npz"])
def test_files_are_read_again(text: str, ending: str, halfulp, tmp_path: Path) -> None:
    path = tmp_path / f"vectors.{ending}"
    assert halfulp("vectors", text, "--vectors", 300, "-o", path)[0] == 0
    code, out, _ = halfulp("check", text, "--results", path)
    assert (code, "results of" in out, "are right" in out) == (0, True, True)


def test_words_of_random_source_follow_its_reset(halfulp, tmp_path: Path) -> None:
    text = "mac e5m2*e5m2+e6m5.sr10@lfsr16"
    path = tmp_path / "mac.txt"
    halfulp("vectors", text, "--vectors", 300, "-o", path)
    lines = codes_of(path.read_text()).splitlines()
    assert len(lines[0].split()) == 4
    assert halfulp("check", text, "--results", path)[0] == 0
    path.write_text("\n".join(reversed(lines)))
    assert halfulp("check", text, "--results", path)[0] == 1


def test_units_without_combinational_form_have_vectors(halfulp, tmp_path: Path) -> None:
    path = tmp_path / "remainder.txt"
    assert halfulp("vectors", "remainder fp32,fp32", "--vectors", 20, "-o", path)[0] == 0
    assert halfulp("check", "remainder fp32,fp32", "--results", path)[0] == 0


def test_difference_is_counted_with_its_cause(halfulp, tmp_path: Path) -> None:
    path = tmp_path / "results.txt"
    halfulp("vectors", "mul fp16*fp16.ra", "--vectors", 2000, "-o", path)
    path.write_text(codes_of(path.read_text()))
    code, out, _ = halfulp("check", "mul fp16*fp16", "--results", path, "-o", tmp_path / "report")
    assert code == 1
    assert "it rounds to nearest, ties away from zero, not to nearest, ties to even" in out
    assert re.search(r"expected o +0x[0-9a-f]{4}", out)
    csv = (tmp_path / "report" / "causes.csv").read_text()
    assert csv.startswith("cause,wrong results,of\n")
    # The unit under test is not this library's, so no command runs the vector in it.
    assert "again:" not in out


@pytest.mark.parametrize("ending", ["txt", "npz"])
def test_vectors_of_another_unit_are_refused(ending: str, halfulp, tmp_path: Path) -> None:
    path = tmp_path / f"results.{ending}"
    halfulp("vectors", "mul e3m2fn*e3m2fn=e5m2.ra", "--vectors", 20, "-o", path)
    code, _, err = halfulp("check", MUL, "--results", path)
    assert (code, f"another unit than {MUL}.rn: mul e3m2fn*e3m2fn=e5m2.ra" in err) == (2, True), err


def test_results_from_windows_are_read(halfulp, tmp_path: Path) -> None:
    path = tmp_path / "results.txt"
    path.write_bytes("\ufeff00 00 00\r\n00 01 00\r\n".encode())
    assert halfulp("check", MUL, "--results", path)[0] == 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "has no vectors"),
        ("00 00\n", "line 1: expected 3 codes separated by blanks, a b o; found 2"),
        ("00,00,00\n", "separated by blanks, a b o; found 1"),
        ("00 00 zz\n", "line 1: '00 00 zz' is not hexadecimal: a b o"),
        ("# comment\n00 40 00\n", "line 2: 40 does not fit the 6 bits of b"),
    ],
)
def test_wrong_file_is_refused_in_one_sentence(content: str, message: str, halfulp, tmp_path: Path) -> None:
    path = tmp_path / "results.txt"
    path.write_text(content)
    code, _, err = halfulp("check", MUL, "--results", path)
    assert (code, message in err, "Traceback" in err) == (2, True, False)


def test_wrong_arrays_are_refused_in_one_sentence(halfulp, tmp_path: Path) -> None:
    path = tmp_path / "results.npz"
    for arrays, message in [
        ({"a": [1], "b": [1]}, "has no array o"),
        ({"a": [1], "b": [1], "o": [1, 2]}, "o must be an array of integers"),
        ({"a": [64], "b": [1], "o": [1]}, "a has codes that do not fit its 6 bits"),
    ]:
        np.savez(path, **{name: np.array(column) for name, column in arrays.items()})
        code, _, err = halfulp("check", MUL, "--results", path)
        assert (code, message in err) == (2, True), err
    whole = path.read_bytes()
    np.save(tmp_path / "array.npy", np.zeros(3))
    pickled = tmp_path / "pickled.npz"
    np.savez(pickled, a=np.array([object()]))
    for content in (b"", b"text", whole[:-30], (tmp_path / "array.npy").read_bytes(), pickled.read_bytes()):
        path.write_bytes(content)
        code, _, err = halfulp("check", MUL, "--results", path)
        assert (code, err.splitlines()) == (
            2,
            ["halfulp: results.npz is not a numpy archive with arrays of integers: a, b, o"],
        )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-o", "mul.csv"], "mul.csv has none of the endings .txt, .h, .svh, .npz"),
        (["--as", "npz"], "a numpy archive needs a file"),
    ],
)
def test_layout_without_file_is_refused(words: list[str], message: str, halfulp) -> None:
    code, _, err = halfulp("vectors", MUL, *words)
    assert (code, message in err) == (2, True)
