"""How one host's part of a job ended."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from cloudtrain.contract import FailureReport, JobStatus, Paths


@dataclass(frozen=True)
class HostOutcome:
    """How this host's part ended; the same on every host of the job."""

    status: JobStatus
    failure: FailureReport | None = None
    is_announced: bool = True
    """Whether this host prints the failure: of the hosts that know it, only one does."""

    @property
    def exit_code(self) -> int:
        """0; the code of the rank that failed first; or 143 (128 + SIGTERM) if the job was stopped."""
        if self.status == JobStatus.COMPLETED:
            return 0
        return self.failure.exit_code or 1 if self.failure else 128 + signal.SIGTERM

    def write(self, paths: Paths) -> None:
        """Write the files of the contract: ``failure`` or ``success``."""
        if self.failure:
            paths.failure.write_text(self.failure.reason(), encoding="utf-8", errors="backslashreplace")
            paths.failure_report.write_text(
                self.failure.to_json(), encoding="utf-8", errors="backslashreplace"
            )
        elif self.status == JobStatus.COMPLETED:
            paths.success.touch()
