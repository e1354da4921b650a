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
from cloudtrain.contract.channels import request_channels
from cloudtrain.contract.documents import MOST_HOSTS, Fields, parse_json
from cloudtrain.contract.text import escape_line

HIDDEN = "***"
"""The value that replaces a secret in the body: `spec.REDACTED`."""

LONGEST_SHOWN = 500
"""The most characters of a command line that `cloudtrain describe` shows."""


_REQUIRED = ("host_count", "instance_type", "channels", "settings", "environment", "hyperparameters")
_REQUIRED_NUMBERS = ("max_retry_attempts", "max_preemptions")


def parse_body(data: bytes, *, complete: bool = False) -> dict[str, Any]:
    """The body of a request that was stored as JSON.

    Args:
        complete: also check that it has every field that running the job needs.

    Raises ValueError, which names the field, if one does not have the right type.
    """
    body: dict[str, Any] = parse_json(data)
    given = Fields(body)
    given.integer("host_count", 1, least=1, most=MOST_HOSTS)
    given.integer("spare_hosts", 0, least=0, most=MOST_HOSTS)
    given.integer("min_instance_count", 1, least=1, most=MOST_HOSTS)
    given.text("instance_type", "")
    given.text_mapping("environment", {})
    given.text_mapping("hyperparameters", {})
    given.texts("arguments", ())
    for name, entry in given.mapping("channels", {}).items():
        Fields(entry, f"channels.{name}").text("uri", None)
    for group in given.objects("instance_groups", ()):
        group.text("instance_group_name")
        group.text("instance_type")
        group.integer("instance_count", least=1, most=MOST_HOSTS)
    for name in ("max_run", *_REQUIRED_NUMBERS):
        given.number(name, 0, least=0)
    read_terms(given.mapping("cost_terms", {}))
    Settings.from_dict(given.mapping("settings", {}))
    missing = [name for name in (*_REQUIRED, *_REQUIRED_NUMBERS) if complete and name not in given]
    if missing:
        raise ValueError(f"{missing[0]} is missing")
    return body


def read_terms(terms: Mapping[str, Any]) -> Mapping[str, Any]:
    """``terms`` of a job or an attempt, checked. Raises ValueError, which names the field that has the wrong type."""
    given = Fields(terms, "cost_terms")
    for name in (
        "per_hour",
        "cap_seconds",
        "gpus",
        "max_cost",
        "max_gpu_hours",
        "paid",
        "paid_for",
        "reserve",
    ):
        given.number(name, 0, least=0)
    for name in ("currency", "source", "date", "cap"):
        given.text(name, "")
    if terms.get("cap"):
        given.number("cap_seconds", least=0)
    for later in given.objects("later", ()):
        later.number("per_hour", least=0)
        later.text("since")
    return terms


def request_settings(body: Mapping[str, Any]) -> Settings:
    """The settings of a request, including its channels."""
    if body.get("settings") is None:  # a job submitted before requests had settings
        return Settings.from_environ(body.get("environment", {}))
    settings = Settings.from_dict(body["settings"])
    return replace(settings, channels=tuple((one.name, one.uri) for one in request_channels(body)))


def request_environment(body: Mapping[str, Any]) -> dict[str, str]:
    """The job's variables. Secrets are taken from the environment of this process."""
    return {
        name: os.environ.get(name, value) if value == HIDDEN else value
        for name, value in body["environment"].items()
    }


def script_variables(body: Mapping[str, Any]) -> list[str]:
    """The names of the variables that the script gets from the job: those of ``environment`` and of ``secrets``."""
    hidden = request_settings(body).hidden_variables.split(",")
    return [*body.get("environment", {}), *filter(None, hidden)]


def channel_documents(body: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The content of ``inputdataconfig.json``, in SageMaker's form."""
    return {
        name: {field: value for field, value in entry.items() if field != "uri"}
        for name, entry in body["channels"].items()
    }


def argument_details(arguments: Sequence[str]) -> dict[str, str]:
    """The script's arguments in shell syntax, for the details of a job, without secrets; nothing if there are none.

    Characters that a terminal cannot show are escaped, and the end of a long line is left out.
    """
    if not arguments:
        return {}
    from cloudtrain.contract.environment import hidden_arguments

    text = escape_line(shlex.join(hidden_arguments(arguments)))
    return {"arguments": text if len(text) <= LONGEST_SHOWN else f"{text[: LONGEST_SHOWN - 1]}…"}
