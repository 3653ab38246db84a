"""Proof by Yosys that two Verilog files have equal modules: ``python -m tests.verilog_equivalence FILE FILE TOP``.

Registers and other signals of one name are compared. The proof runs in a separate process, as the lint does.
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
            "async2sync",
            "memory_map",
        )
        run("opt_expr", "opt_clean", f"rename {top} {name}", f"design -stash {name}")
    run("design -copy-from gold -as gold gold", "design -copy-from gate -as gate gate", "equiv_make gold gate equiv")
    run("hierarchy -top equiv", "opt_clean", "equiv_struct", "equiv_simple", "equiv_induct", "equiv_status -assert")


if __name__ == "__main__":
    main(*sys.argv[1:])
