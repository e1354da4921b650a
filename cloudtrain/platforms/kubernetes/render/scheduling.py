"""Where the pods of a job may run."""

from __future__ import annotations

from typing import Any

from cloudtrain.platforms.kubernetes.labels import job_labels
from cloudtrain.platforms.kubernetes.render.gang import kind_of
from cloudtrain.platforms.kubernetes.render.parts import Parts


def scheduling(parts: Parts) -> dict[str, Any]:
    """The fields of a pod's ``spec`` that choose its node."""
    options = parts.options
    fields = {
        "nodeSelector": options.node_selector,
        "tolerations": options.tolerations,
        "affinity": _affinity(parts),
        "topologySpreadConstraints": [_spread(parts, given) for given in options.topology_spread],
        "priorityClassName": options.priority_class,
        "schedulerName": options.scheduler,
    }
    return {name: value for name, value in fields.items() if value}


def _affinity(parts: Parts) -> dict[str, Any]:
    """The user's affinity; with ``topology``, the hosts prefer one domain, such as a zone or a block."""
    given = parts.options.affinity
    key = parts.options.topology
    if not key or len(parts.hosts.names) == 1 or kind_of(parts) == "kueue" or "podAffinity" in given:
        return given
    term = {"labelSelector": {"matchLabels": job_labels(parts.name)}, "topologyKey": key}
    preferred = [{"weight": 100, "podAffinityTerm": term}]
    return {**given, "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}


def _spread(parts: Parts, given: dict[str, Any]) -> dict[str, Any]:
    """A constraint, by default over the pods of this job, one apart."""
    return {
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": job_labels(parts.name)},
        **given,
    }
