"""What of a curve is exported, and when nothing is."""

from __future__ import annotations

import csv
from pathlib import Path
from uuid import UUID

import pytest

from jobs.client.errors import TransferFailed, UsageMistake
from jobs.client.exports import formats
from jobs.client.exports.formats import Format, Writer, export
from jobs.client.exports.run import Run, tag
from jobs.wire import CurvePointView, CurveSeries, JobCurve

JOB = UUID("0192f3c1-0000-7000-8000-000000000000")


def point(first: int, last: int, mean: float, *, attempt: int = 1) -> CurvePointView:
    figures = {"mean": mean, "lowest": mean - 1, "highest": mean + 1, "newest": mean + 0.5}
    return CurvePointView(attempt=attempt, first_step=first, last_step=last, count=last - first + 1, **figures)


def run_of(**series: list[CurvePointView]) -> Run:
    made = [CurveSeries(name=name, points=points) for name, points in series.items()]
    return Run(JOB, "tiny", JobCurve(stride=4, series=made, has_more_names=False))


RUN = run_of(loss=[point(1, 4, 5.0), point(5, 8, 3.0, attempt=2)], evaluation_loss=[point(4, 4, 4.5)])


def test_point_counts_at_its_last_step_with_its_mean() -> None:
    assert list(RUN.scalars()) == [("loss", 4, 5.0), ("loss", 8, 3.0), ("evaluation_loss", 4, 4.5)]
    assert RUN.by_step() == [(4, {"loss": 5.0, "evaluation_loss": 4.5}), (8, {"loss": 3.0})]


@pytest.mark.parametrize(
    ("name", "expected"),
    [("loss", "loss"), ("reward/mean", "reward/mean"), ("a/../../b", "a/b"), ("a//b/", "a/b"), ("a/.", "a")],
)
def test_name_of_a_series_leads_out_of_no_folder(name: str, expected: str) -> None:
    assert tag(name) == expected


def test_table_has_all_that_is_kept_of_a_point(tmp_path: Path) -> None:
    said = export(RUN, Format.CSV, tmp_path / "a" / "b")
    with (tmp_path / "a" / "b" / "curve.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert str(tmp_path / "a" / "b" / "curve.csv") in said
    assert rows[1] == {
        "series": "loss",
        "attempt": "2",
        "first_step": "5",
        "last_step": "8",
        "count": "4",
        "mean": "3.0",
        "lowest": "2.0",
        "highest": "4.0",
        "newest": "3.5",
    }


def test_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    """A second run in one folder would be drawn as one with the first."""
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(UsageMistake, match="not an empty folder"):
        export(RUN, Format.CSV, tmp_path)
    with pytest.raises(UsageMistake, match="not an empty folder"):
        export(RUN, Format.CSV, tmp_path / "mine")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_format_without_its_package_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = Writer(formats.WRITERS[Format.WANDB].write, "no_such_module", "some-package")
    monkeypatch.setitem(formats.WRITERS, Format.WANDB, writer)
    with pytest.raises(UsageMistake, match="pip install some-package"):
        export(RUN, Format.WANDB, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_job_that_reported_nothing_exports_nothing(tmp_path: Path) -> None:
    with pytest.raises(TransferFailed, match="tiny has reported no figures yet"):
        export(run_of(), Format.CSV, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_every_format_has_a_writer() -> None:
    assert set(formats.WRITERS) == set(Format)
