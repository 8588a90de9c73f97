"""The curve as a table: one line a point, with all that the marketplace keeps of it."""

from __future__ import annotations

import csv
from pathlib import Path

from jobs.client.exports.run import Run

FILE = "curve.csv"
POINT_COLUMNS = ("attempt", "first_step", "last_step", "count", "mean", "lowest", "highest", "newest")


def write(run: Run, folder: Path) -> str:
    """Write `curve.csv`; says where it is. A series' name begins with a letter, so no sheet takes it for a formula."""
    path = folder / FILE
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(("series", *POINT_COLUMNS))
        for series in run.curve.series:
            for point in series.points:
                table.writerow((series.name, *(getattr(point, column) for column in POINT_COLUMNS)))
    return f"The curve is in {path}."
