"""The plan of a submitted job, which is kept on this machine, and its accuracy."""

from __future__ import annotations

import contextlib
import json
import math
import os
import warnings
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloudtrain._dataclass import dataclass
from cloudtrain.contract import JobStatus
from cloudtrain.errors import StorageError

if TYPE_CHECKING:
    from cloudtrain.platforms import JobDescription


@dataclass(frozen=True)
class Prediction:
    """The plan of a job, and its actual time and cost. Times are in seconds; None if not known."""

    seconds: tuple[float, float, float]
    """The optimistic, expected and pessimistic time."""
    cost: tuple[float, float, float] | None
    currency: str | None
    took: float | None
    """The time from the start of the job to its end; None unless the job has completed."""
    cost_was: float | None

    @property
    def error(self) -> float | None:
        """The relative error of the expected time: 0.1 if it was 10 % longer than the actual time."""
        return None if not self.took else self.seconds[1] / self.took - 1

    @property
    def cost_error(self) -> float | None:
        """The relative error of the expected cost."""
        return self.cost[1] / self.cost_was - 1 if self.cost and self.cost_was else None

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "error": self.error, "cost_error": self.cost_error}


def keep(job_name: str, platform: str, option: Mapping[str, Any]) -> None:
    """Keep the plan of a submitted job. Only warns if it cannot be written, because the job runs anyway."""
    from cloudtrain.storage.atomic import write_file

    try:
        write_file(_path(job_name, platform), json.dumps(option).encode())
    except OSError as error:
        warnings.warn(f"the plan of {job_name} is not kept: {error}", stacklevel=2)


def forget(job_name: str, platform: str) -> None:
    """Remove the plan of a deleted job, so that a later job of its name does not get it. Its error stays in the
    history."""
    with contextlib.suppress(OSError, StorageError):
        _path(job_name, platform).unlink(missing_ok=True)


def prediction(
    description: JobDescription, cost: float | None = None, currency: str | None = None
) -> Prediction | None:
    """The plan of a job, with its actual time and cost; None if it has no plan.

    Args:
        cost: the actual cost in ``currency``, if known. It is ignored if the plan is in another currency.
    """
    try:
        path = _path(description.name, description.platform)
        if not path.exists():
            return None
        option = json.loads(path.read_text(encoding="utf-8"))
        seconds = _three(option["seconds"])
        cost_planned = _three(option["cost"]) if option["cost"] else None
        planned_in = str(option["currency"]) if cost_planned else None
    except (
        StorageError,
        OSError,
        ValueError,
        TypeError,
        KeyError,
        OverflowError,
    ):  # the file is damaged
        return None
    took = None
    if (
        description.status == JobStatus.COMPLETED
        and description.ended_at is not None
        and description.started_at is not None
    ):
        took = max(description.ended_at - description.started_at, 0.0)
    is_comparable = took is not None and planned_in == currency
    return Prediction(seconds, cost_planned, planned_in, took, cost if is_comparable else None)


def _three(values: Mapping[str, Any]) -> tuple[float, float, float]:
    low, expected, high = (float(values[name]) for name in ("low", "expected", "high"))
    if not all(map(math.isfinite, (low, expected, high))):
        raise ValueError("not finite")
    return low, expected, high


def _path(job_name: str, platform: str) -> Path:
    from urllib.parse import quote

    from cloudtrain.storage import state_home

    name = f"{quote(platform, safe='')}-{quote(job_name, safe='')}"
    return state_home() / "plans" / f"{name[:200]}{os.extsep}json"
