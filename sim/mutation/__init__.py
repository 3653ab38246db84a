"""Units with mistakes and faults made in them on purpose: all of them in one netlist, of which an input selects one."""
