"""Whether a job left anything to download, and what to say where it did not."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jobs.client.sdk import Souk
    from jobs.wire import JobView

NO_FILES = (
    "The job completed and left no files: nothing below output/, and nothing new in its work folder. `souk logs` shows"
    " what it printed; a program writes its results below output/ ($SOUK_OUTPUT_DIR), or anywhere in the folder that it"
    " starts in."
)


def missing_result(souk: Souk, job: JobView) -> str:
    """What to say of a job that completed without a file; empty of any other."""
    if job.state != "completed":
        return ""
    outputs = [row for row in souk.artifacts(job.job_id) if row.kind == "output" and row.state == "complete"]
    return "" if any(row.file_count for row in outputs) else NO_FILES
