"""A sample's place on the map: hidden states in a few dimensions, then the two in which the samples differ most."""

from __future__ import annotations

from functools import cache
from typing import Any

from runtimes.evaluate.request import PROJECTED

PROJECTION_SEED = 20_260_000
DECIMALS = 4


def project(values: list[float]) -> list[float]:
    """PROJECTED random combinations of them, the same ones each time: distances stay nearly as they are.

    https://en.wikipedia.org/wiki/Johnson%E2%80%93Lindenstrauss_lemma; a kept answer would have thousands of numbers
    otherwise.
    """
    import numpy as np

    mixed = np.asarray(values, np.float64) @ _directions(len(values))
    return [round(float(value), DECIMALS) + 0.0 for value in mixed]


def to_plane(rows: list[list[float]]) -> list[tuple[float, float]]:
    """Each row's place along the two directions of largest variance (PCA), from -1 to 1; its sign is fixed."""
    import numpy as np

    if not rows:
        return []
    data = np.asarray(rows, np.float64)  # (n, PROJECTED)
    data = data - data.mean(0)
    _, axes = np.linalg.eigh(data.T @ data)
    plane = axes[:, ::-1][:, :2]
    for axis in range(2):  # an eigenvector and its negative are both right
        largest = int(np.abs(plane[:, axis]).argmax())
        plane[:, axis] *= 1.0 if plane[largest, axis] >= 0 else -1.0
    places = data @ plane
    reach = np.abs(places).max(0)
    scaled = places / np.where(reach > 0, reach, 1.0)
    return [(round(float(x), 3) + 0.0, round(float(y), 3) + 0.0) for x, y in scaled]


@cache
def _directions(size: int) -> Any:
    import numpy as np

    drawn = np.random.Generator(np.random.PCG64(PROJECTION_SEED)).standard_normal((size, PROJECTED))
    return drawn / PROJECTED**0.5
