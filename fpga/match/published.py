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
    Built(2, 2, 10, 320.1, 15.10, 14.44, 8.05),
    Built(4, 4, 10, 328.4, 21.30, 18.20, 9.80),
    Built(8, 8, 10, 196.2, 37.51, 21.50, 11.53),
    Built(16, 16, 7, 160.0, 62.73, 33.57, 7.45),
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
    lenet5, resnet20 : str
        Seconds as printed, with batches of 64 and 128. The published heading has ms by mistake.
    """

    cores: int
    mhz: float
    lenet5: str
    resnet20: str


TABLE_IV = (
    TrainingTime(1, 378.3, "0.0273", "1.91"),
    TrainingTime(2, 330.9, "0.0211", "1.20"),
    TrainingTime(3, 298.0, "0.0189", "0.84"),
    TrainingTime(4, 298.0, "0.0173", "0.71"),
    TrainingTime(5, 299.8, "0.0162", "0.58"),
    TrainingTime(6, 270.6, "0.0173", "0.58"),
    TrainingTime(7, 274.7, "0.0165", "0.53"),
    TrainingTime(8, 203.1, "0.0218", "0.67"),
    TrainingTime(9, 203.1, "0.0215", "0.63"),
    TrainingTime(10, 196.2, "0.0218", "0.63"),
)
"""Training steps on arrays of 8 x 8."""


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
