"""Published arrays: Ben Ali et al., MPTorch-FPGA, DATE 2025, on an Alveo U55C by Vitis HLS 2023.1."""

from dataclasses import dataclass

import numpy as np

from .performance import Arrays

PUBLISHED_LUT = 1_303_680
"""Lookup tables of the device, 100 % of the published shares."""


@dataclass(frozen=True)
class Built(Arrays):
    """Arrays after place and route, of e5m2*e5m2+e6m5.sr10.

    Attributes
    ----------
    lut, bram, dsp : float
        Percent of the device.
    """

    lut: float
    bram: float
    dsp: float


TABLE_III = (
    Built(1, 1, 10, 320.9, 14.12, 13.78, 8.56),
    Built(2, 1, 10, 320.1, 14.80, 13.80, 7.98),
    Built(2, 2, 10, 320.1, 15.10, 14.44, 8.05),
    Built(4, 2, 10, 311.0, 18.06, 15.99, 9.76),
    Built(4, 4, 10, 328.4, 21.30, 18.20, 9.80),
    Built(8, 4, 10, 197.7, 28.20, 17.09, 11.53),
    Built(8, 8, 10, 196.2, 37.51, 21.50, 11.53),
    Built(16, 8, 10, 180.0, 61.60, 30.3, 11.6),
    Built(16, 16, 7, 160.0, 62.73, 33.57, 7.45),
    Built(32, 16, 4, 198.4, 73.26, 33.26, 5.72),
    Built(32, 32, 2, 197.3, 62.19, 71.48, 2.77),
    Built(64, 32, 1, 150.0, 52.57, 71.64, 1.93),
)
"""Maximum number of cores that fit, for each array size."""


@dataclass(frozen=True)
class TrainingTime:
    """Time of a training step by the published model.

    Attributes
    ----------
    cores : int
        Number of arrays, each with 8 elements of 8 multiply-accumulates.
    mhz : float
        Clock.
    lenet5, vgg16, resnet20, resnet50, nanogpt : str
        Seconds as printed. The published heading has ms by mistake. Published batches: 64 of LeNet5 and 128 of
        ResNet20; those of the others are not published.
    """

    cores: int
    mhz: float
    lenet5: str
    vgg16: str
    resnet20: str
    resnet50: str
    nanogpt: str


TABLE_IV = (
    TrainingTime(1, 378.3, "0.0273", "5.28", "1.91", "8.15", "23.99"),
    TrainingTime(2, 330.9, "0.0211", "3.05", "1.20", "4.70", "13.72"),
    TrainingTime(3, 298.0, "0.0189", "2.28", "0.84", "3.62", "10.29"),
    TrainingTime(4, 298.0, "0.0173", "1.74", "0.71", "2.64", "7.62"),
    TrainingTime(5, 299.8, "0.0162", "1.43", "0.58", "2.24", "6.15"),
    TrainingTime(6, 270.6, "0.0173", "1.32", "0.58", "2.13", "5.67"),
    TrainingTime(7, 274.7, "0.0165", "1.19", "0.53", "1.84", "4.93"),
    TrainingTime(8, 203.1, "0.0218", "1.36", "0.67", "2.14", "5.59"),
    TrainingTime(9, 203.1, "0.0215", "1.16", "0.63", "1.90", "5.27"),
    TrainingTime(10, 196.2, "0.0218", "1.15", "0.63", "1.85", "4.84"),
)
"""Training steps on arrays of 8 x 8: LeNet5 on MNIST, VGG16 and ResNet20 on CIFAR10, ResNet50 on Imagewoof, Nano-GPT on
the plays of Shakespeare."""


def clocks() -> dict[tuple[int, int, int], float]:
    """Return the published clocks in MHz, by n, m and number of cores."""
    return {(row.n, row.m, row.cores): row.mhz for row in TABLE_III} | {(8, 8, row.cores): row.mhz for row in TABLE_IV}


def clock_of(lut: float) -> float | None:
    """Estimate the clock in MHz of a design with ``lut`` percent of the lookup tables.

    The estimate interpolates linearly between published designs and never increases with size. A design smaller than
    all has the clock of the smallest. None for a design larger than all.
    """
    rows = sorted(TABLE_III, key=lambda row: row.lut)
    shares, mhz = [row.lut for row in rows], np.minimum.accumulate([row.mhz for row in rows])
    return float(np.interp(lut, shares, mhz)) if lut <= shares[-1] else None
