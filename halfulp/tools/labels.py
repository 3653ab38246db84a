"""Labels near points of a plot, clear of marks and of one another."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.path import Path as Line
from matplotlib.transforms import Bbox

LABEL_SIZE = 7  # points, size of a label
_REACHES = (4, 9, 15, 24, 36, 50, 70)  # points between a mark and its label
_TURNS = tuple(math.pi * eighth / 8 for eighth in (2, 0, 4, 14, 6, 12, 10, 8, *range(1, 16, 2)))  # upper right first
_LEADER: dict[str, Any] = {"arrowstyle": "-", "linewidth": 0.4, "color": "#797979", "shrinkA": 0}
_CROSSED, _RIVAL = 12, 8  # points of reach that a label on a line, and one nearly as close to another mark, are worth
_TRIES = 4


@dataclass(frozen=True)
class Label:
    """A text near a point: place relative to the point, in points; box and leader, in pixels; end of a drawn leader."""

    text: str
    at: tuple[float, float]
    offset: tuple[float, float]
    box: Bbox
    leader: Line
    end: npt.NDArray[np.float64] | None


def place_labels(axis: Axes, names: Sequence[tuple[str, float, float]]) -> bool:
    """Write texts near points, clear of marks and of one another; False if one had no room and is left out."""
    for _ in range(_TRIES):
        labels, left = _arranged(axis, names)
        if not left:
            break
        # Names that found no room come first next time.
        names = [*left, *(name for name in names if name not in left)]
    for label in labels:
        axis.annotate(
            label.text,
            label.at,
            label.offset,
            textcoords="offset points",
            fontsize=LABEL_SIZE,
            va="bottom",
            arrowprops=None if label.end is None else _LEADER | {"relpos": label.end},
        )
    return not left


def _is_clear(
    spot: npt.NDArray[np.float64], box: Bbox, leader: Line, taken: Sequence[Bbox], labels: Sequence[Label]
) -> bool:
    """Return True if a text of a point and its leader cross no mark, no other text and no other leader."""
    return not (
        box.count_overlaps(taken)
        or any(leader.intersects_bbox(other) for other in taken if not other.contains(*spot))
        or any(other.leader.intersects_bbox(box) for other in labels)
        or any(other.leader.intersects_path(leader) for other in labels)
    )


def _arranged(
    axis: Axes, names: Sequence[tuple[str, float, float]]
) -> tuple[list[Label], list[tuple[str, float, float]]]:
    """Labels with the least sum of reach and ambiguity, each given the ones before it, and names without room."""
    point = axis.get_figure(root=True).dpi / 72  # type: ignore[union-attr]  # the axis is in a figure
    marked = [line for line in axis.lines if line.get_marker() not in ("", "None")]
    spots = np.concatenate([axis.transData.transform(line.get_xydata()) for line in marked])
    radius = max(line.get_markersize() for line in marked) * point / 2
    taken = [Bbox([spot - radius - point, spot + radius + point]) for spot in spots]
    lines = [line.get_path().transformed(line.get_transform()) for line in axis.lines if line not in marked]
    labels: list[Label] = []
    left = []
    for text, x, y in names:
        probe = axis.text(0, 0, text, fontsize=LABEL_SIZE)
        spot, size = axis.transData.transform((x, y)), probe.get_window_extent().size
        probe.remove()
        candidates: list[tuple[float, int, Label]] = []
        for reach, turn in itertools.product(_REACHES, _TURNS):
            if candidates and min(candidates)[0] < reach:
                break
            way = np.round((math.cos(turn), math.sin(turn)), 9)
            offset = way * (reach * point + radius) + (np.sign(way) - 1) / 2 * size
            box = Bbox([spot + offset - point, spot + offset + size + point])
            end = np.clip(spot, box.min, box.max)
            distance = np.linalg.norm(end - spot)
            # Leaders from one place do not meet there.
            leader = Line([spot + (end - spot) * radius / distance, end])
            inside = np.all(box.min >= axis.bbox.min) and np.all(box.max <= axis.bbox.max)
            if inside and _is_clear(spot, box, leader, taken, labels):
                distances = np.linalg.norm(np.clip(spots, box.min, box.max) - spots, axis=1)
                rivals = np.sum(distances < 1.6 * distance) - 1
                crossed = sum(line.intersects_bbox(box, filled=False) for line in lines)
                drawn = (end - box.min) / box.size if reach > _REACHES[0] or rivals else None
                label = Label(text, (x, y), tuple(offset / point), box, leader, drawn)
                candidates.append((reach + _CROSSED * crossed + _RIVAL * rivals, len(candidates), label))
        if candidates:
            labels.append(min(candidates)[2])
            taken.append(labels[-1].box)
        else:
            left.append((text, x, y))
    return labels, left
