"""The fields that the main objects of all renderings share."""

from __future__ import annotations

import json
from typing import Any

from cloudtrain.platforms.kubernetes.labels import SETTINGS, job_labels
from cloudtrain.platforms.kubernetes.render.gang import gang_of
from cloudtrain.platforms.kubernetes.render.parts import Parts

RESTART_EXIT_CODE = 75
"""EX_TEMPFAIL: how a host ends that has to be started again through no fault of the script."""


def main_object(parts: Parts, version: str, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    """The object that owns all others of the job. Raises InvalidJob."""
    options = parts.options
    labels = {**options.labels, **gang_of(parts).labels, **job_labels(parts.name)}
    annotations = {**options.annotations, SETTINGS: json.dumps(parts.summary)}
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {
            "name": parts.name,
            "namespace": parts.namespace,
            "labels": labels,
            "annotations": annotations,
        },
        "spec": spec,
    }
