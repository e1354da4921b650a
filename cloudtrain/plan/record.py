"""The file of a plan, with which a job can be submitted."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloudtrain.errors import InvalidJob, StorageError

if TYPE_CHECKING:
    from cloudtrain.plan.choose import Plan

LARGEST = 1 << 20
"""The most bytes of a plan that are read."""


def write_plan(path: str, plan: Plan) -> None:
    """Write a plan for ``submit --plan``. Raises StorageError."""
    document = {"cloudtrain_plan": 1, "planned_at": time.time(), **plan.to_dict()}
    try:
        Path(path).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror}") from error


def read_plan(path: str) -> dict[str, Any]:
    """The plan in a file. Raises InvalidJob."""
    from cloudtrain.plan.choose import HOW_TO_PLAN

    try:
        with open(path, encoding="utf-8") as file:
            found = json.loads(file.read(LARGEST))
    except OSError as error:
        raise InvalidJob(f"--plan {path} cannot be read: {error.strerror}") from None
    except ValueError:
        found = None
    if not isinstance(found, dict) or found.get("cloudtrain_plan") != 1:
        raise InvalidJob(f"--plan {path} is not a plan", hint=HOW_TO_PLAN)
    return found
