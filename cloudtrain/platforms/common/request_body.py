"""Reads the body of a supervised platform's request in the processes that run the job.

This module imports only the standard library and bundled packages, because these processes may have only the bundled
runtime, and start faster without `cloudtrain.spec`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cloudtrain.contract import Settings

HIDDEN = "***"
"""The value that replaces a secret in the body: `spec.REDACTED`."""


def request_settings(body: Mapping[str, Any]) -> Settings:
    """The settings, with the channels."""
    if "settings" not in body:  # a job submitted before requests had settings
        return Settings.from_environ(body.get("environment", {}))
    settings = Settings.from_dict(body["settings"])
    channels = tuple((name, entry["uri"]) for name, entry in body["channels"].items() if "uri" in entry)
    return replace(settings, channels=channels)


def request_environment(body: Mapping[str, Any]) -> dict[str, str]:
    """The job's variables. Secrets are taken from the environment of this process."""
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
