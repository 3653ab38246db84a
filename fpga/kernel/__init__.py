"""Accelerator kernels: systolic arrays with AXI ports, and their host program."""
