"""How often a job may start again: after failures, and after preemptions.

The job's record keeps what has been spent, because another process may continue the job.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from cloudtrain.runtime.supervisor.record import JobRecord


@dataclass(frozen=True)
class Budget:
    """The attempts that a job may make for one reason."""

    name: str
    """Of one attempt, for display."""
    limit: str
    """The field of the request that limits them."""
    spent: str
    """The field of the record that counts them."""

    def is_spent(self, record: JobRecord, request: Mapping[str, Any]) -> bool:
        return bool(getattr(record, self.spent) >= request[self.limit])

    def spend(self, record: JobRecord) -> JobRecord:
        """The record of the next attempt."""
        return replace(record, attempt=record.attempt + 1, **{self.spent: getattr(record, self.spent) + 1})

    def describe(self, record: JobRecord, request: Mapping[str, Any]) -> str:
        """For example: ``preemption 1 of 10``."""
        return f"{self.name} {getattr(record, self.spent)} of {request[self.limit]}"


RETRIES = Budget("retry", "max_retry_attempts", "retries")
PREEMPTIONS = Budget("preemption", "max_preemptions", "preemptions")
