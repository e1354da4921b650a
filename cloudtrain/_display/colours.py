"""The colours of jobs in a terminal."""

from __future__ import annotations

from collections.abc import Mapping

from cloudtrain.contract.status import JobStatus

STATUS_COLOURS: Mapping[str, str] = {
    JobStatus.COMPLETED: "green",
    JobStatus.FAILED: "red",
    JobStatus.STOPPED: "yellow",
    JobStatus.INTERRUPTED: "yellow",
}
