"""The objects that a job owns: its Service, ConfigMaps and NetworkPolicy. Its Secret is made at submission."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from cloudtrain.contract import Host, encode_arguments
from cloudtrain.contract.request_body import channel_documents
from cloudtrain.platforms.common.channels import channel_entries
from cloudtrain.platforms.common.hyperparameters import encoded_hyperparameters
from cloudtrain.platforms.kubernetes.labels import JOB, job_labels
from cloudtrain.platforms.kubernetes.pod_files import POD_START, SOURCE_PATH, START_KEY, runtime_map
from cloudtrain.platforms.kubernetes.render.parts import Parts

INTERFACE = "eth0"


def dependents(parts: Parts) -> list[dict[str, Any]]:
    """The objects that every main object owns. Files are left out of ConfigMaps: see `delivery`. Raises InvalidJob."""
    found = [config_map(parts)]
    if not parts.by_url:
        found.append(_object(parts, "v1", "ConfigMap", {"immutable": True}, name=runtime_map(parts.name)))
    if parts.options.network_policy:
        found.append(network_policy(parts))
    return found


def service(parts: Parts, name: str = "", labels: Mapping[str, str] | None = None) -> dict[str, Any]:
    """A headless Service, which publishes the addresses of pods from their start to their end.

    Args:
        name: by default, that under which every pod has a name.
        labels: of the pods, if they are not all.
    """
    spec = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {JOB: parts.name, **(labels or {})},
    }
    return _object(parts, "v1", "Service", {"spec": spec}, name=name or parts.hosts.service)


def config_map(parts: Parts) -> dict[str, Any]:
    """The ConfigMap that `pod_start` reads: `documents`, and itself."""
    data = {**documents(parts), START_KEY: POD_START.read_text(encoding="utf-8")}
    return _object(parts, "v1", "ConfigMap", {"immutable": True, "data": data})


def documents(parts: Parts) -> dict[str, str]:
    """The documents of the contract, by their names, in the order of these. They are the same for all hosts."""
    job = parts.job
    assert job.source
    delivered = msgspec.structs.replace(job.source, uri=f"file://{SOURCE_PATH}")
    job = msgspec.structs.replace(job, source=delivered)
    resources = Host(
        parts.hosts.names[0],
        parts.hosts.names,
        parts.options.network_interface or INTERFACE,
        job.instance_types[0] if job.instance_types else "kubernetes",
    ).to_document()
    del resources["current_host"]
    found = {
        "hyperparameters.json": {**encoded_hyperparameters(job), **encode_arguments(job.arguments)},
        "inputdataconfig.json": channel_documents({"channels": channel_entries(job)}),
        "resourceconfig.json": resources,
    }
    return {name: json.dumps(document, indent=2) for name, document in found.items()}


def network_policy(parts: Parts) -> dict[str, Any]:
    """Only pods of the job reach pods of the job. They reach everything, unless the job's network is isolated."""
    pods = {"matchLabels": {JOB: parts.name}}
    spec: dict[str, Any] = {
        "podSelector": pods,
        "policyTypes": ["Ingress"],
        "ingress": [{"from": [{"podSelector": pods}]}],
    }
    if parts.job.enable_network_isolation:
        # rules are about the ports of pods: those of OpenShift's DNS listen on 5353
        names = [{"port": port, "protocol": protocol} for port in (53, 5353) for protocol in ("UDP", "TCP")]
        spec["policyTypes"] = ["Ingress", "Egress"]
        spec["egress"] = [{"to": [{"podSelector": pods}]}, {"ports": names}]
    return _object(parts, "networking.k8s.io/v1", "NetworkPolicy", {"spec": spec})


def _object(parts: Parts, version: str, kind: str, content: dict[str, Any], name: str = "") -> dict[str, Any]:
    metadata = {
        "name": name or parts.name,
        "namespace": parts.namespace,
        "labels": job_labels(parts.name),
    }
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **content}
