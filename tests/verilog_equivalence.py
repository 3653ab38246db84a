"""Proof by Yosys that two Verilog files have equal modules: ``python -m tests.verilog_equivalence FILE FILE TOP``.

Registers of one name are compared: their values are inputs of the proof, and their next values are outputs. The proof
runs in a separate process, as the lint does.
"""

import sys

from pyosys import libyosys


def main(first: str, second: str, top: str) -> None:
    """Prove that the outputs of ``top`` are equal; exit with an error if they are not."""
    design = libyosys.Design()

    def run(*commands: str) -> None:
        for command in commands:
            libyosys.run_pass(command, design)

    for name, path in (("gold", first), ("gate", second)):
        run(
            f"read_verilog -noautowire {path}",
            f"hierarchy -check -top {top}",
            "check -assert",
            "proc",
            "flatten",
            "memory_map",
        )
        run(f"rename {top} {name}", f"design -stash {name}")
    run("design -copy-from gold -as gold gold", "design -copy-from gate -as gate gate")
    run("expose -shared -dff -evert-dff gold gate", "opt_expr", "opt_clean")
    run("miter -equiv -flatten gold gate miter", "hierarchy -top miter", "opt", "techmap", "opt")
    # Equal signals are merged first: SAT alone does not end for sums of many terms.
    run("abc -g AND,XOR -script +strash;ifraig,-C,10000;fraig,-C,100000", "opt_clean")
    run("select -assert-none t:*ff* t:*FF*", "sat -verify -prove trigger 0 miter")


if __name__ == "__main__":
    main(*sys.argv[1:])
