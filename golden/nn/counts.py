"""Counts of underflow, overflow and lost NaN by layer and phase, and a warning if a whole tensor becomes zero."""

import functools
import json
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Self

import torch
from tabulate import tabulate
from torch import Tensor

from halfulp.golden.values import decode
from halfulp.hdl.formats import Format
from halfulp.tools.texts import json_of

KINDS = ("numbers", "underflow", "overflow", "saturated", "nan_lost", "pruned")
"""Columns: all numbers; those that rounding made zero; infinite, NaN or wrapped; the largest finite number; lost NaN;
and those that a mask made zero."""


_active: list["Counts"] = []
warned: set[tuple[str, str, str]] = set()
"""Phase, tensor and format of the warnings since the last conversion of a model."""


class Counts:
    """Context manager that counts rounded numbers; ``str()`` returns a table.

    Parameters
    ----------
    record : str
        Counts from which to continue, as returned by `record`; default: none.

    Attributes
    ----------
    rows : dict
        Counts of `KINDS` by layer, phase (``forward``, ``input_gradient``, ``weight_gradient``, ``bias_gradient``, or
        ``backward`` for `Quantize`), and tensor (``x``, ``w``, ``bias``, ``gradient`` or ``result``).

    Notes
    -----
    Results of matrix products are compared with products in float64. Counting makes a step up to ten times slower.
    """

    def __init__(self, record: str = "[]") -> None:
        self.rows: dict[tuple[str, str, str], dict[str, int]] = {
            (layer, phase, tensor): dict(zip(KINDS, counts, strict=True))
            for layer, phase, tensor, *counts in json_of(record)
        }

    @property
    def record(self) -> str:
        """Counts as JSON."""
        return json.dumps([[*key, *row.values()] for key, row in self.rows.items()])

    def __enter__(self) -> Self:
        _active.append(self)
        return self

    def __exit__(self, *_: Any) -> None:
        _active.remove(self)

    def __str__(self) -> str:
        table: list[tuple[str, ...]] = [("layer", "phase", "tensor", *KINDS)]
        table += [(*key, *(f"{count:,}" for count in row.values())) for key, row in self.rows.items()]
        sides = ("left",) * 3 + ("right",) * len(KINDS)
        return tabulate(table, tablefmt="plain", disable_numparse=True, colalign=sides)

    def add(self, where: tuple[str, str, str], counts: dict[str, int]) -> None:
        """Add counts of a layer, phase and tensor."""
        row = self.rows.setdefault(where, dict.fromkeys(KINDS, 0))
        for kind, count in counts.items():
            row[kind] += count


def note(
    where: tuple[str, str, str], codes: Tensor, exact: Callable[[], Tensor], *formats: Format, pruned: int = 0
) -> None:
    """Compare codes with their values before rounding, count losses, and warn if all numbers became zero.

    ``where`` is layer, phase and tensor. The values were rounded to each of ``formats`` in turn; the codes are in the
    last one. ``pruned`` values became zero before.
    """
    name = ", then ".join(map(str, formats))
    if _active:
        counted = _counted(exact().to(torch.float64), codes, formats) | {"pruned": pruned}
        for counts in _active:
            counts.add(where, counted)
    if _zero(codes, formats[-1]) and (kind := (*where[1:], name)) not in warned and bool(exact().any()):
        warned.add(kind)
        layer, phase, tensor = where
        warnings.warn(
            f"halfulp: all numbers of {tensor} became zero in {name} (layer {layer or 'without a name'}, {phase}); try "
            "a LossScaler or another format, and use nn.Counts to count underflow in all layers",
            RuntimeWarning,
            stacklevel=2,
        )


def counting() -> bool:
    """Return True inside of `Counts`."""
    return bool(_active)


def is_quiet(values: Tensor, fmt: Format) -> bool:
    """Return True if `note` would neither count nor warn: some number is not zero after rounding to nearest."""
    if _active or not values.numel():
        return not _active
    least = _smallest(fmt)
    return abs(float(values[(0,) * values.dim()])) >= least or not float(values.abs().amax()) < least


@functools.lru_cache(maxsize=256)
def _smallest(fmt: Format) -> float:
    """Return the smallest positive number."""
    return float(fmt.smallest)


def _zero(codes: Tensor, fmt: Format) -> bool:
    """Return True if all codes encode zero; a sample of the codes comes first, because it usually decides."""
    if not codes.numel():
        return False
    bits, flat = _magnitude(fmt), codes.reshape(-1)
    if int(flat[0]) & bits:
        return False
    sample = flat[:: max(1, len(flat) // 64)]
    return not bool((sample & bits).any()) and not bool((flat & bits).any())


@functools.lru_cache(maxsize=256)
def _magnitude(fmt: Format) -> int:
    """Return a mask of the bits that are 0 in zeros of both signs."""
    sign = 1 << (fmt.width - 1)
    return sign - 1 if fmt.width > 1 and fmt.decode(sign) == 0 else -1


def _counted(exact: Tensor, codes: Tensor, formats: Sequence[Format]) -> dict[str, int]:
    decoded = decode(codes, formats[-1])
    beyond = wrapped = torch.zeros_like(exact, dtype=torch.bool)
    for fmt in formats:
        outside = (exact < float(fmt.lowest_result)) | (exact > float(fmt.largest))
        beyond = beyond | outside
        if fmt.wraps:
            wrapped = wrapped | outside
    kinds = (
        torch.ones_like(exact, dtype=torch.bool),
        ~exact.isnan() & (exact != 0) & (decoded == 0),
        wrapped | exact.isfinite() & ~decoded.isfinite(),
        beyond & decoded.isfinite() & ~wrapped,
        exact.isnan() & ~decoded.isnan(),
    )
    return {kind: int(condition.sum()) for kind, condition in zip(KINDS, kinds, strict=False)}
