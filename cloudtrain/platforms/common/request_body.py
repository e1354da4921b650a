"""Reads the body of a supervised platform's request in the processes that run the job.

This module imports only the standard library and bundled packages, because these processes may have only the bundled
runtime, and start faster without `cloudtrain.spec`.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from cloudtrain.contract import Settings

HIDDEN = "***"
"""The value that replaces a secret in the body: `spec.REDACTED`."""

LONGEST_SHOWN = 500
"""In characters: how much of a command line `cloudtrain describe` shows."""


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


def argument_details(arguments: Sequence[str]) -> dict[str, str]:
    """The script's arguments in shell syntax, for the details of a job; nothing if there are none.

    Characters that a terminal cannot show are escaped, and the end of a long line is left out.
    """
    if not arguments:
        return {}
    text = "".join(
        character if character.isprintable() else repr(character)[1:-1] for character in shlex.join(arguments)
    )
    return {"arguments": text if len(text) <= LONGEST_SHOWN else f"{text[: LONGEST_SHOWN - 1]}…"}
