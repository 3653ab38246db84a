"""Patterns of modules and instances in Verilog as Yosys writes it."""

import re

MODULE = re.compile(r"^module (\\?\S+) .*?^endmodule\n", re.M | re.S)
"""Module, and its name."""

PARAMETRISED = re.compile(r"^module (\S+) #\((.*?)\) \((.*?)\);\n", re.M | re.S)
"""Head of a module with parameters: name, parameters and ports."""

INSTANCE = re.compile(r"^  (\\\S+)  (?:#\((.*)\) )?(\S+) +\(\n", re.M)
"""First line of an instance: name of the module, values of the parameters, if any, and name of the instance."""
