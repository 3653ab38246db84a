"""Policy and numbers for tests of emulated programs."""

import torch

from halfulp import golden

BF16 = "bf16*bf16+fp32.rn, elementwise=bf16.rn, functions=e5m2.rn, optimizer=bf16.rn"


def finite_numbers(fmt, count, seed=0):
    """Return finite numbers of a format, as float64."""
    generator = torch.Generator().manual_seed(seed)
    codes = torch.randint(1 << fmt.width, (4 * count,), generator=generator)
    values = golden.decode(codes, fmt)
    return values[values.isfinite()][:count]
