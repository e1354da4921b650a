"""The record of a job, which its supervisor keeps in ``state.json``."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace

from cloudtrain.contract import FailureClass, FailureReport, JobStatus
from cloudtrain.storage.reserve import SPARE_SIZE

STOPPED_BY_USER = "stopped by the user"


@dataclass(frozen=True)
class JobRecord:
    """The state of a job at one moment. Times are in seconds since the epoch."""

    status: JobStatus
    submitted_at: float
    attempt: int = 0
    pid: int | None = None
    """The process ID of the supervisor."""
    started_at: float | None = None
    ended_at: float | None = None
    exit_code: int | None = None
    failure: FailureReport | None = None
    reason: str = ""
    warnings: tuple[str, ...] = ()
    """Warnings of the supervisor, which cannot be events on a full disk."""

    def shortened(self) -> JobRecord:
        """The same record, without parts of the failure report if it would not fit into a spare file."""
        return replace(self, failure=self.failure and self.failure.shortened(SPARE_SIZE // 2))

    def to_json(self) -> bytes:
        record = asdict(self)
        record["status"] = str(self.status)
        record["failure"] = self.failure.to_dict() if self.failure else None
        return json.dumps(record, ensure_ascii=False).encode("utf-8", "backslashreplace")

    @classmethod
    def from_json(cls, data: bytes) -> JobRecord:
        """The inverse of `to_json`. Raises ValueError if ``data`` is not a record."""
        try:
            record = json.loads(data)
            record["status"] = JobStatus(record["status"])
            record["failure"] = FailureReport.from_dict(record["failure"]) if record["failure"] else None
            record["warnings"] = tuple(record.get("warnings", ()))
            return cls(**record)
        except (KeyError, TypeError) as error:
            raise ValueError(f"not the record of a job: {error!r}") from None


def damaged_record(place: str, modified_at: float) -> JobRecord:
    """The record to use for a job whose own is unreadable: it counts as failed."""
    failure = FailureReport(FailureClass.PLATFORM, f"{place} is damaged", "Remove the job's folder.")
    return JobRecord(JobStatus.FAILED, modified_at, exit_code=1, failure=failure)
