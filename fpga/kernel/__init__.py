"""Accelerator kernels: systolic arrays with AXI ports, and the host's side of them."""
