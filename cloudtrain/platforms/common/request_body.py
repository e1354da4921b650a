"""The body of a supervised platform's request, as the processes read it that run the job.

They start faster without `cloudtrain.spec`, and may run where only the bundled runtime is: this module imports neither
it nor what needs more than the standard library.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cloudtrain.contract import Settings

HIDDEN = "***"
"""The value of a variable whose own is a secret: `spec.REDACTED`."""


def request_settings(body: Mapping[str, Any]) -> Settings:
    """The settings, with the channels."""
    # requests of jobs from before this version have none
    settings = Settings.from_dict(body.get("settings", {}))
    channels = tuple((name, entry["uri"]) for name, entry in body["channels"].items() if "uri" in entry)
    return replace(settings, channels=channels)


def request_environment(body: Mapping[str, Any]) -> dict[str, str]:
    """The job's variables, with the secrets, which this process has in its own environment."""
    return {
        name: os.environ.get(name, value) if value == HIDDEN else value
        for name, value in body["environment"].items()
    }


def channel_documents(body: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The content of ``inputdataconfig.json``, as SageMaker writes it."""
    return {
        name: {field: value for field, value in entry.items() if field != "uri"}
        for name, entry in body["channels"].items()
    }
