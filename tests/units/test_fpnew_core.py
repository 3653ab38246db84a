"""Floating-point unit in a processor: CV32E40P runs programs of RISC-V with this unit in the place of FPnew."""

import functools
import importlib.util
import itertools
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch

from halfulp import golden
from halfulp.hdl.formats import parse
from halfulp.hdl.specs.fpu import OPERATIONS
from halfulp.sim.corner_registers import of_format
from halfulp.sim.toolchain import compilation, compiler, precompiled, runtime, tools, verilate
from halfulp.tools.cache import cached
from halfulp.tools.errors import ToolError
from halfulp.tools.processes import Command, run_all
from halfulp.units import Build, FpnewTop, Fpu

CORE = Path(importlib.util.find_spec("pythondata_cpu_cv32e40p").submodule_search_locations[0]) / "system_verilog"
"""Sources of CV32E40P, with FPnew."""

TOP = CORE / "rtl/vendor/pulp_platform_fpnew/src/fpnew_top.sv"


# Instructions ---------------------------------------------------------------------------------------------------------


class Instruction(NamedTuple):
    """Instruction of the extension F.

    Attributes
    ----------
    op : str
        Operation of the golden model.
    code : int
        Bits 31 to 25 of an instruction of the opcode OP-FP, or the opcode of one with three operands.
    sources, target : str
        Kinds of the registers: ``f`` or ``x``.
    rm : int, optional
        Bits 14 to 12 in place of a rounding mode.
    rs2 : int
        Bits 24 to 20 if there is no second operand.
    """

    op: str
    code: int
    sources: str = "ff"
    target: str = "f"
    rm: int | None = None
    rs2: int = 0

    def word(self, rd, registers, rm):
        """Return the code of the instruction; ``rm`` is the rounding mode, or 7 for that of ``frm``."""
        rs1, rs2, rs3 = (*registers, self.rs2, 0)[:3]
        high, opcode = (rs3 << 2, self.code) if len(registers) == 3 else (self.code, 0x53)
        rm = rm if self.rm is None else self.rm
        return high << 25 | rs2 << 20 | rs1 << 15 | rm << 12 | rd << 7 | opcode


INSTRUCTIONS = {
    "fmadd.s": Instruction("fmadd", 0x43, "fff"),
    "fmsub.s": Instruction("fmsub", 0x47, "fff"),
    "fnmsub.s": Instruction("fnmsub", 0x4B, "fff"),
    "fnmadd.s": Instruction("fnmadd", 0x4F, "fff"),
    "fadd.s": Instruction("add", 0x00),
    "fsub.s": Instruction("sub", 0x04),
    "fmul.s": Instruction("mul", 0x08),
    "fdiv.s": Instruction("div", 0x0C),
    "fsqrt.s": Instruction("sqrt", 0x2C, "f"),
    "fsgnj.s": Instruction("sgnj", 0x10, rm=0),
    "fsgnjn.s": Instruction("sgnjn", 0x10, rm=1),
    "fsgnjx.s": Instruction("sgnjx", 0x10, rm=2),
    "fmin.s": Instruction("min", 0x14, rm=0),
    "fmax.s": Instruction("max", 0x14, rm=1),
    "fle.s": Instruction("fle", 0x50, target="x", rm=0),
    "flt.s": Instruction("flt", 0x50, target="x", rm=1),
    "feq.s": Instruction("feq", 0x50, target="x", rm=2),
    "fcvt.w.s": Instruction("f2i", 0x60, "f", "x"),
    "fcvt.wu.s": Instruction("f2u", 0x60, "f", "x", rs2=1),
    "fcvt.s.w": Instruction("i2f", 0x68, "x"),
    "fcvt.s.wu": Instruction("u2f", 0x68, "x", rs2=1),
    "fmv.x.w": Instruction("fmvx", 0x70, "f", "x", rm=0),
    "fclass.s": Instruction("classify", 0x70, "f", "x", rm=1),
    "fmv.w.x": Instruction("fmvf", 0x78, "x", rm=0),
}
"""Instructions of the extension F, but loads and stores."""

FFLAGS, FRM, FCSR, MSTATUS = 0x001, 0x002, 0x003, 0x300
DYNAMIC = 7
INT32 = 2


def load(kind, rd, base, offset):
    return offset << 20 | base << 15 | 2 << 12 | rd << 7 | (0x07 if kind == "f" else 0x03)


def store(kind, rs2, base, offset):
    return offset >> 5 << 25 | rs2 << 20 | base << 15 | 2 << 12 | (offset & 31) << 7 | (0x27 if kind == "f" else 0x23)


def addi(rd, rs1, value):
    return value << 20 | rs1 << 15 | rd << 7 | 0x13


def lui(rd, value):
    return value >> 12 << 12 | rd << 7 | 0x37


def csr_of_immediate(csr, value):
    return csr << 20 | value << 15 | 5 << 12 | 0x73


def csr_set(rd, csr, rs1):
    return csr << 20 | rs1 << 15 | 2 << 12 | rd << 7 | 0x73


# Programs -------------------------------------------------------------------------------------------------------------

WORDS = 1 << 19
"""Words of the memory."""

BOOT, DATA, RESULTS, EXIT = 0x100, 0x100000, 0x180000, 0x80000000
"""Addresses; a store at ``EXIT`` ends the program."""

OPERANDS_AT, RESULTS_AT, FLAGS, EXIT_AT = 10, 11, 6, 31
"""Registers."""

LONGEST = 4
"""Instructions of a group."""


class Group(NamedTuple):
    """Instructions between two reads of the flags.

    Attributes
    ----------
    names : list of str
    rm : list of int
        Rounding modes, or `DYNAMIC`.
    frm, fflags : int
        Mode and flags before the first instruction.
    codes : array
        Operands of each instruction.
    earlier : list of list
        Instruction of the group whose result is an operand in place of its code; None for most operands.
    """

    names: list[str]
    rm: list[int]
    frm: int
    fflags: int
    codes: np.ndarray
    earlier: list[list[int | None]]


def groups_of(count, rng):
    """Return groups of instructions; each instruction is alone in half of the groups that begin with it."""
    names = list(INSTRUCTIONS)
    codes = np.stack(list(of_format(parse("fp32"), 32, count * LONGEST, rng).values()), -1)[: count * LONGEST]
    codes = rng.permutation(codes).reshape(count, LONGEST, 3)
    groups = []
    for place in range(count):
        length = 1 if place // len(names) % 2 else int(rng.integers(2, LONGEST + 1))
        chosen = [names[place % len(names)], *map(str, rng.choice(names, length - 1))]
        earlier = []
        for instruction, name in enumerate(chosen):
            known = [at for at in range(instruction) if rng.random() < 0.5]
            sources = INSTRUCTIONS[name].sources
            fits = [[at for at in known if INSTRUCTIONS[chosen[at]].target == kind] for kind in sources]
            earlier.append([at[-1] if at else None for at in fits])
        rm = [int(rng.choice([0, 1, 2, 3, 4, DYNAMIC])) for _ in chosen]
        fflags = 0 if rng.random() < 0.8 else int(rng.integers(32))
        groups.append(Group(chosen, rm, int(rng.integers(5)), fflags, codes[place], earlier))
    return groups


def program(groups, rng):
    """Return the contents of the memory: a program that stores the results and ``fcsr`` of each group."""
    memory = np.zeros(WORDS, dtype=np.uint32)
    # An exception ends the program with 1.
    memory[:3] = [lui(EXIT_AT, EXIT), addi(5, 0, 1), store("x", 5, EXIT_AT, 0)]
    text = [lui(5, 0x6000), csr_set(0, MSTATUS, 5), lui(OPERANDS_AT, DATA), lui(RESULTS_AT, RESULTS)]
    data = []
    for group in groups:
        text += [csr_of_immediate(FRM, group.frm), csr_of_immediate(FFLAGS, group.fflags)]
        loads, operations, stores, loaded = [], [], [], 0
        for place, name in enumerate(group.names):
            instruction, registers, own = INSTRUCTIONS[name], [], []
            for source, kind in enumerate(instruction.sources):
                earlier = group.earlier[place][source]
                registers.append((20 if kind == "x" else 0) + 3 * place if earlier is None else 16 + earlier)
                if earlier is None:
                    registers[-1] += source
                    own.append(load(kind, registers[-1], OPERANDS_AT, 4 * loaded))
                    data.append(group.codes[place][source])
                    loaded += 1
            loads.append(own)
            operations.append(instruction.word(16 + place, registers, group.rm[place]))
            stores.append(store(instruction.target, 16 + place, RESULTS_AT, 4 * place))
        # Loads before all operations, or each before its own, and stores after all operations or each after its own.
        late, soon = rng.random(2) < 0.5
        text += [] if late else itertools.chain(*loads)
        for own, operation, stored in zip(loads, operations, stores, strict=True):
            text += [*(own if late else []), operation, *([stored] if soon else [])]
        text += [] if soon else stores
        count = len(group.names)
        text += [csr_set(FLAGS, FCSR, 0), store("x", FLAGS, RESULTS_AT, 4 * count)]
        text += [addi(OPERANDS_AT, OPERANDS_AT, 4 * loaded), addi(RESULTS_AT, RESULTS_AT, 4 * (count + 1))]
    text += [lui(EXIT_AT, EXIT), store("x", 0, EXIT_AT, 0)]
    for address, words in ((BOOT, text), (DATA, data)):
        memory[address // 4 : address // 4 + len(words)] = words
    assert BOOT + 4 * len(text) <= DATA
    assert DATA + 4 * len(data) <= RESULTS
    return memory


def expected_of(groups):
    """Return the results and ``fcsr`` of each group by the golden model."""
    found = np.zeros((len(groups), LONGEST), dtype=np.int64)
    fcsr = np.array([group.fflags | group.frm << 5 for group in groups])
    for place in range(LONGEST):
        rows = [row for row, group in enumerate(groups) if place < len(group.names)]
        columns = []
        for row in rows:
            group = groups[row]
            instruction, rm = INSTRUCTIONS[group.names[place]], group.rm[place]
            codes = [
                int(group.codes[place][source] if earlier is None else found[row, earlier])
                for source, earlier in enumerate(group.earlier[place])
            ]
            op = OPERATIONS.index(instruction.op)
            columns.append([*(*codes, 0, 0)[:3], op, group.frm if rm == DYNAMIC else rm])
        rs1, rs2, rs3, op, mode = torch.tensor(columns).T
        zero = torch.zeros_like(op)
        result = golden.fpu(
            rs1, rs2, rs3, op, zero, zero, zero + INT32, zero, a="fp32", width=32, divide=True, mode=mode
        )
        found[rows, place] = result.o.numpy()
        fcsr[rows] |= result.flags.numpy()
    return found, fcsr


# Simulation -----------------------------------------------------------------------------------------------------------

MAIN = """
#include <cstdio>
#include <cstdlib>
#include <vector>
#include "Vtop.h"

// Memory of the core: it accepts three of four requests, and answers in the next cycle.
int main(int argc, char **argv) {
    std::vector<uint32_t> memory(WORDS);
    FILE *file = fopen(argv[1], "r+b");
    if (fread(memory.data(), 4, WORDS, file) != WORDS) return 2;
    Vtop core;
    core.boot_addr_i = BOOT;
    core.fetch_enable_i = 1;
    uint32_t random = 1, last = 0;
    auto accepts = [&] { random = random * 1664525u + 1013904223u; return random >> 30 != 0; };
    long limit = atol(argv[2]);
    for (long cycle = 0; cycle < limit; cycle++) {
        // Registers behind a clock gate are reset by the edge.
        core.rst_ni = cycle < 1 || cycle > 4;
        core.clk_i = 0;
        core.instr_gnt_i = accepts();
        core.data_gnt_i = accepts();
        core.eval();
        bool fetches = core.instr_req_o && core.instr_gnt_i, accesses = core.data_req_o && core.data_gnt_i;
        uint32_t fetched = core.instr_addr_o, accessed = core.data_addr_o, stored = core.data_wdata_o;
        bool stores = core.data_we_o;
        if (fetches) last = fetched;
        core.clk_i = 1;
        core.eval();
        core.instr_rvalid_i = fetches;
        core.data_rvalid_i = accesses;
        core.instr_rdata_i = memory[fetched / 4 % WORDS];
        core.data_rdata_i = memory[accessed / 4 % WORDS];
        if (!accesses || !stores) continue;
        if (accessed == EXIT) {
            rewind(file);
            printf("%ld\\n", cycle);
            return fwrite(memory.data(), 4, WORDS, file) == WORDS ? int(stored) : 2;
        }
        memory[accessed / 4 % WORDS] = stored;
    }
    printf("%x\\n", last);
    return 3;
}
"""
"""Program around the model of the core, with a memory file and a number of cycles.

It ends with 1 after an exception, and with 3 after these cycles, and then prints the last address of an instruction.
"""


REFUSED = "-Werror-USERERROR"
"""Flag of Verilator: stop after `$error`."""


def sources():
    """Return the files of the core for simulation, in order."""
    lines = (CORE / "cv32e40p_fpu_manifest.flist").read_text().splitlines()
    files = [CORE / "rtl" / line.partition("/")[2] for line in lines if line.startswith("${DESIGN_RTL_DIR}")]
    return [file.resolve() for file in files if "tracer" not in file.name and "tb_wrapper" not in file.name]


@functools.cache
def core(fpnew_top, latency):
    """Return the program that simulates the core; ``fpnew_top`` is its file of this name."""
    files = sources()
    flags = ("-O3", "--x-assign", "fast", "--x-initial", "fast", "-GFPU=1", REFUSED)
    flags = (*flags, f"-GFPU_ADDMUL_LAT={latency}", f"-GFPU_OTHERS_LAT={latency}")
    flags = (*flags, *(f"+incdir+{CORE / folder}" for folder in ("rtl/include", "bhv", "bhv/include")))
    flags = (*flags, f"+incdir+{CORE / 'rtl/vendor/pulp_platform_common_cells/include'}")
    constants = {"WORDS": WORDS, "BOOT": BOOT, "EXIT": EXIT}

    def make(folder):
        work = folder / "work"
        work.mkdir()
        (work / "fpnew_top.sv").write_text(fpnew_top)
        used = [work / "fpnew_top.sv" if file == TOP.resolve() else file for file in files]
        run_all([verilate(used, "cv32e40p_top", work / "cpp", *flags)])
        text = "".join(f'#include "{file}"\n' for file in ("prefix.h", *sorted((work / "cpp").glob("*.cpp"))))
        text += "".join(f"#define {name} {value}u\n" for name, value in constants.items()) + MAIN
        (work / "core.cpp").write_text(text)
        options = ("-O1", "-DVM_TRACE=0")
        headers = (f"-I{place}" for place in (precompiled(options), work / "cpp"))
        files_of_core = ("-c", str(work / "core.cpp"), "-o", str(work / "core.o"))
        run_all([compilation([*options, *headers, *files_of_core], work / "core.log")])
        objects = [work / "core.o", *(runtime() / f"{part}.o" for part in ("verilated", "verilated_threads"))]
        words = [*compiler(), *map(str, objects), "-lpthread", "-latomic", "-o", str(folder / "core")]
        run_all([Command("the linker", words, work / "link.log")])
        shutil.rmtree(work)

    key = (tools(), fpnew_top, flags, MAIN, str(constants), *(file.read_text() for file in files))
    return cached("cores", key, make) / "core"


def results_of(executable, groups, memory, folder):
    """Return the results and ``fcsr`` of each group by the simulated core."""
    file = folder / "memory"
    memory.tofile(file)
    limit = 400 * sum(len(group.names) for group in groups)
    ended = subprocess.run([executable, file, str(limit)], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended
    words = np.fromfile(file, dtype=np.uint32)[RESULTS // 4 :]
    found, fcsr, at = np.zeros((len(groups), LONGEST), dtype=np.int64), [], 0
    for row, group in enumerate(groups):
        count = len(group.names)
        found[row, :count] = words[at : at + count]
        fcsr.append(int(words[at + count]))
        at += count + 1
    return found, np.array(fcsr)


def differences(groups, one, other):
    """Return a line for each group with other results."""
    (first, first_flags), (second, second_flags) = one, other
    rows = np.flatnonzero((first != second).any(1) | (first_flags != second_flags))
    return [f"{groups[row]}: {first[row]} {first_flags[row]}, {second[row]} {second_flags[row]}" for row in rows]


def own_top(text, build):
    return FpnewTop(Fpu(text, build=build)).replacement(TOP.read_text())


@functools.cache
def vectors(count, seed):
    rng = np.random.default_rng(seed)
    groups = groups_of(count, rng)
    return groups, program(groups, rng), expected_of(groups)


# Checks of the replaced module --------------------------------------------------------------------------------------

PACKAGES = ("cv32e40p_apu_core_pkg.sv", "cv32e40p_fpu_pkg.sv", "cv32e40p_pkg.sv", "cf_math_pkg.sv", "fpnew_pkg.sv")


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("text", "tag", "sentences"),
    [
        ("fpu e5m2 divide", 1, ("has registers of 8 bits", "has no format 0")),
        ("fpu e5m2 width=32 divide", 2, ("has no format 0", "has tags of 2 bits")),
        ("fpu e5m2 width=32", 1, ("has no format 0", "has no divider")),
    ],
)
def test_replaced_module_refuses_what_the_unit_lacks(text, tag, sentences, tmp_path):
    (tmp_path / "fpnew_top.sv").write_text(FpnewTop(Fpu(text), tag=tag).replacement(TOP.read_text()))
    wanted = [file for file in sources() if file.name in (*PACKAGES, "cv32e40p_fp_wrapper.sv")]
    files = [*wanted, tmp_path / "fpnew_top.sv"]
    command = verilate(files, "cv32e40p_fp_wrapper", tmp_path / "cpp", "--lint-only", REFUSED)
    with pytest.raises(ToolError):
        run_all([command])
    errors = [line for line in command.log.read_text().splitlines() if "%Error" in line and " has " in line]
    assert [any(sentence in line for line in errors) for sentence in sentences] == [True] * len(sentences)
    assert len(errors) == len(sentences)


def test_replacement_rejects_other_sources():
    top = FpnewTop(Fpu("fpu e5m2"))
    with pytest.raises(ValueError, match="has no module fpnew_top"):
        top.replacement("module fpnew_fma #(parameter A = 1) (\n  input logic clk_i\n);\nendmodule\n")
    more = re.sub(r"(output logic +)busy_o", r"\1busy_o,\n  \1early_valid_o", TOP.read_text())
    with pytest.raises(ValueError, match="has an output early_valid_o"):
        top.replacement(more)


def test_replacement_has_the_header_of_its_source():
    """FPnew in CVA6 has no mask of lanes."""
    older = re.sub(r".*(?:TrueSIMDClass|EnableSIMDMask|simd_mask_i|MaskType|NumLanes) .*\n", "", TOP.read_text())
    header = older[older.index("module fpnew_top") : older.index("\n);\n")]
    text = FpnewTop(Fpu("fpu e5m2")).replacement(older)
    assert text.count(header) == text.count("module fpnew_top") == 1
    assert "SIMD" not in header
    assert "SIMD" not in text


# Comparison -----------------------------------------------------------------------------------------------------------

COUNT = 9600
"""Groups of a program."""

BUILDS = (Build(iterations=2), Build(pipeline=1, iterations=1), Build(pipeline=3, iterations=3))


@pytest.mark.slow
@pytest.mark.parametrize("build", BUILDS, ids=str)
def test_programs_in_a_core_have_results_of_golden_model(build, tmp_path):
    groups, memory, expected = vectors(COUNT, seed=1)
    counts = Counter(name for group in groups for name in group.names)
    assert counts.total() == 19_254
    assert min(counts[name] for name in INSTRUCTIONS) > 700
    executable = core(own_top("fpu fp32 divide", build), build.pipeline)
    assert differences(groups, results_of(executable, groups, memory, tmp_path), expected) == []


@pytest.mark.slow
def test_programs_in_a_core_with_fpnew_have_the_same_results(tmp_path):
    groups, memory, expected = vectors(COUNT, seed=1)
    executable = core(TOP.read_text(), 1)
    assert differences(groups, results_of(executable, groups, memory, tmp_path), expected) == []
