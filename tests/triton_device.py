"""A GPU, or Triton's interpreter on the CPU in its place; TRITON_INTERPRET must be set before Triton is imported."""

from contextlib import contextmanager
from unittest import mock

import torch

from halfulp.golden.kernels import gpu
from halfulp.golden.kernels.engines import CPU_ONLY, Compiled


@contextmanager
def triton_device():
    """Yield the device whose tensors Triton kernels take."""
    if torch.cuda.is_available():
        yield torch.device("cuda")
        return
    with mock.patch.object(gpu, "TYPE", "cpu"), mock.patch.object(Compiled, "refuses", return_value=CPU_ONLY):
        yield torch.device("cpu")
