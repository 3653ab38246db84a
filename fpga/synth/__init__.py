"""Area and clock of components, by Yosys and nextpnr."""
