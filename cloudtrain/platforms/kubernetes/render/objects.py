"""The objects that a job owns, with their names and settings. Its Secret is created at submission."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from cloudtrain.contract import Host, Settings, encode_arguments
from cloudtrain.contract.request_body import channel_documents
from cloudtrain.errors import InvalidJob
from cloudtrain.platforms.common.hyperparameters import encoded_hyperparameters
from cloudtrain.platforms.common.request import channel_entries
from cloudtrain.platforms.kubernetes.labels import (
    JOB,
    POD_START,
    QUEUE,
    SOURCE_PATH,
    START_KEY,
    job_labels,
    runtime_map,
)
from cloudtrain.platforms.kubernetes.options import KubernetesOptions
from cloudtrain.spec import TrainingJob

LEADER_PORT = 7778
"""The port on which the leader listens for the other hosts."""
NODE_PORTS = range(20_000, 30_000)
"""The ports in the network of a node, which jobs share: the job's name selects one. Services use the ports above."""
RESTART_EXIT_CODE = 75
"""EX_TEMPFAIL: the exit code of a host that must be restarted, but not because of the script."""

LONGEST = 63
"""The maximum length of a name, which is a DNS label."""
LONGEST_BASE = 24
"""The maximum length of the chosen part of a generated name: a time, random characters and pod suffixes follow."""
_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


@dataclass(frozen=True)
class HostNames:
    """The host names of the pods, in the order of the hosts. The first host is the leader."""

    names: tuple[str, ...]
    service: str
    """The headless Service that publishes them: ``HOST.SERVICE`` in DNS."""
    leader: str = ""
    """The address of the first host for the others; empty: ``HOST.SERVICE``."""

    def rendezvous(self, *, host_network: bool) -> str:
        """The address and the port of the leader."""
        digest = zlib.crc32(self.names[0].encode())
        port = NODE_PORTS[digest % len(NODE_PORTS)] if host_network else LEADER_PORT
        return f"{self.leader or f'{self.names[0]}.{self.service}'}:{port}"


@dataclass(frozen=True)
class Parts:
    """A job, with all values that do not depend on the kind of its main object."""

    name: str
    job: TrainingJob
    options: KubernetesOptions
    namespace: str
    hosts: HostNames
    settings: Settings
    runtime_sha256: str
    by_url: bool
    """Whether pods download the source and the runtime from URLs in the Secret. Otherwise these are in ConfigMaps."""

    @property
    def summary(self) -> Mapping[str, object]:
        """The facts that `describe` reports about the job without asking its pods."""
        settings = self.settings
        return {
            "output_uri": settings.output_uri,
            "checkpoint_uri": settings.checkpoint_uri,
            "compress_output": settings.compress_output,
            "git_commit": settings.git_commit,
            "arguments": self.job.arguments,
            "hosts": [name.partition(".")[0] for name in self.hosts.names],
            "image": self.job.image_uri,
            **({"spare_hosts": self.job.spare_hosts} if self.job.spare_hosts else {}),
            **({"cost_terms": msgspec.to_builtins(self.job.cost_terms)} if self.job.cost_terms else {}),
        }


def refuse_if(is_wrong: object, message: str, hint: str) -> None:
    """Raises InvalidJob if ``is_wrong``."""
    if is_wrong:
        raise InvalidJob(message, hint=hint)


def name_of(job: TrainingJob, longest_suffix: str = "") -> str:
    """The job's name. Raises InvalidJob if its Service and its pods cannot have the name.

    Args:
        longest_suffix: the suffix that the longest name of a pod adds to the job's name, such as ``-15``.
    """
    name, most = job.job_name, LONGEST - len(longest_suffix)
    assert name, "a job is named before it is rendered"
    refuse_if(
        not _LABEL.fullmatch(name),
        f"job_name: {name!r} is not a name for Kubernetes: lower-case letters, digits and hyphens, the first "
        "one a letter",
        f"For example: {nearest_name(name, most)}",
    )
    refuse_if(
        len(name) > most,
        f"job_name: {name!r} has {len(name)} characters, and Kubernetes allows {most} here",
        f"Its pods are called {name[:8]}...{longest_suffix}, in at most {LONGEST} characters. For example: "
        f"{nearest_name(name, most)}",
    )
    return name


def nearest_name(text: str, most: int = LONGEST) -> str:
    """``text`` as a name that `name_of` accepts."""
    cleaned = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    if not cleaned[:1].isalpha():
        cleaned = f"job-{cleaned}"
    return cleaned[:most].strip("-")


INTERFACE = "eth0"
PREFERRED_TOPOLOGY = "kueue.x-k8s.io/podset-preferred-topology"


def dependents(parts: Parts) -> list[dict[str, Any]]:
    """The objects that every main object owns. ConfigMaps have no files: see `submit.with_files`. Raises InvalidJob."""
    data = {**documents(parts), START_KEY: POD_START.read_text(encoding="utf-8")}
    found = [_object(parts, "v1", "ConfigMap", {"immutable": True, "data": data})]
    if not parts.by_url:
        found.append(_object(parts, "v1", "ConfigMap", {"immutable": True}, name=runtime_map(parts.name)))
    if parts.options.network_policy:
        found.append(_network_policy(parts))
    return found


def service(parts: Parts, name: str = "", labels: Mapping[str, str] | None = None) -> dict[str, Any]:
    """A headless Service, which publishes the addresses of pods from their start to their end.

    Args:
        name: by default, the name of the Service that publishes all pods.
        labels: additional labels that select some of the pods.
    """
    selector = {JOB: parts.name, **(labels or {})}
    spec = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": selector}
    return _object(parts, "v1", "Service", {"spec": spec}, name=name or parts.hosts.service)


def documents(parts: Parts) -> dict[str, str]:
    """The documents of the contract, by name and sorted by name. They are the same for all hosts."""
    job, hosts = parts.job, parts.hosts.names
    assert job.source
    job = msgspec.structs.replace(
        job, source=msgspec.structs.replace(job.source, uri=f"file://{SOURCE_PATH}")
    )
    kind = job.instance_types[0] if job.instance_types else "kubernetes"
    resources = Host(hosts[0], hosts, parts.options.network_interface or INTERFACE, kind).to_document()
    del resources["current_host"]
    found = {
        "hyperparameters.json": {**encoded_hyperparameters(job), **encode_arguments(job.arguments)},
        "inputdataconfig.json": channel_documents({"channels": channel_entries(job)}),
        "resourceconfig.json": resources,
    }
    return {name: json.dumps(document, indent=2) for name, document in found.items()}


def _network_policy(parts: Parts) -> dict[str, Any]:
    """Allow access to the job's pods only from these pods. They may access everything, unless the job is isolated."""
    pods = {"matchLabels": {JOB: parts.name}}
    spec = {"podSelector": pods, "policyTypes": ["Ingress"], "ingress": [{"from": [{"podSelector": pods}]}]}
    if parts.job.enable_network_isolation:
        # rules apply to the ports of pods: OpenShift's DNS pods listen on 5353
        names = [{"port": port, "protocol": protocol} for port in (53, 5353) for protocol in ("UDP", "TCP")]
        spec["policyTypes"] = ["Ingress", "Egress"]
        spec["egress"] = [{"to": [{"podSelector": pods}]}, {"ports": names}]
    return _object(parts, "networking.k8s.io/v1", "NetworkPolicy", {"spec": spec})


@dataclass(frozen=True)
class Gang:
    """The fields and objects that start all hosts together: with Kueue, Volcano, or the coscheduling plug-in."""

    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of the main object."""
    pod_labels: Mapping[str, str] = field(default_factory=dict)
    pod_annotations: Mapping[str, str] = field(default_factory=dict)
    pod_spec: Mapping[str, Any] = field(default_factory=dict)
    is_suspended: bool = False
    """Whether the main object is created suspended. Kueue resumes it when its queue admits it."""
    objects: tuple[dict[str, Any], ...] = ()
    """Additional objects that the job owns."""


def gang_kind(parts: Parts) -> str:
    """The kind of gang. With only a ``queue``, it is Kueue. Raises InvalidJob."""
    queue = parts.options.queue
    kind = parts.options.gang or ("kueue" if queue else "none")
    refuse_if(
        kind == "kueue" and not queue,
        "platform_options.gang: kueue needs a queue",
        "Set platform_options.queue to the name of a LocalQueue: kubectl get localqueues",
    )
    refuse_if(
        queue and kind in ("none", "coscheduling"),
        f"platform_options.queue: has no effect with gang: {kind}",
        "Queues are those of kueue and volcano: choose one, or leave the queue out.",
    )
    return kind


def gang_of(parts: Parts) -> Gang:
    """Raises InvalidJob."""
    kind, options, name = gang_kind(parts), parts.options, parts.name
    spec: dict[str, Any] = {"minMember": len(parts.hosts.names) - parts.job.spare_hosts}
    if kind == "kueue":
        annotations = {PREFERRED_TOPOLOGY: options.topology} if options.topology else {}
        return Gang(labels={QUEUE: options.queue or ""}, pod_annotations=annotations, is_suspended=True)
    if kind == "volcano":
        spec["queue"] = options.queue or "default"
        if options.priority_class:
            spec["priorityClassName"] = options.priority_class
        return Gang(
            pod_annotations={"scheduling.k8s.io/group-name": name},
            pod_spec={"schedulerName": options.scheduler or "volcano"},
            objects=(_object(parts, "scheduling.volcano.sh/v1beta1", "PodGroup", {"spec": spec}),),
        )
    if kind == "coscheduling":
        spec["scheduleTimeoutSeconds"] = 60
        return Gang(
            pod_labels={"scheduling.x-k8s.io/pod-group": name},
            pod_spec={"schedulerName": options.scheduler or "scheduler-plugins-scheduler"},
            objects=(_object(parts, "scheduling.x-k8s.io/v1alpha1", "PodGroup", {"spec": spec}),),
        )
    return Gang()


def _object(parts: Parts, version: str, kind: str, content: dict[str, Any], name: str = "") -> dict[str, Any]:
    name = name or parts.name
    metadata = {"name": name, "namespace": parts.namespace, "labels": job_labels(parts.name)}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **content}
