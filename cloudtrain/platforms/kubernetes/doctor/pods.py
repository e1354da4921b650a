"""Checks that the cluster accepts the objects of a job, and has everything that the job's pods refer to.

The cluster itself answers with a dry run, and each object that the pods refer to exists or not. Neither shows which
nodes are free, or whether a registry accepts a Secret: `life` explains why a pod waits for those.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from cloudtrain.errors import CloudtrainError, nearest
from cloudtrain.platforms.checks import Check, Finding, failed, ok, unknown, warning
from cloudtrain.platforms.common.machine_checks import check_bucket, check_input, immediately
from cloudtrain.platforms.common.request import channel_entries
from cloudtrain.platforms.kubernetes.api import kinds
from cloudtrain.platforms.kubernetes.api.client import Api
from cloudtrain.platforms.kubernetes.api.errors import (
    KubeAlreadyExists,
    KubeError,
    KubeForbidden,
    KubeInvalid,
)
from cloudtrain.platforms.kubernetes.api.kinds import Kind, kind_of
from cloudtrain.platforms.kubernetes.api.refusals import parse_quantity, show_quantity
from cloudtrain.platforms.kubernetes.doctor.access import find
from cloudtrain.platforms.kubernetes.life.objects import PodSet, condition, part, text
from cloudtrain.spec import TrainingJob
from cloudtrain.storage import uri_scheme

NONE = Fraction(0)
MOST_NAMES = 6
_PLAIN = ("cpu", "memory", "ephemeral-storage", "pods", "hugepages-", "attachable-volumes")
_ROLES = ("eks.amazonaws.com/role-arn", "iam.gke.io/gcp-service-account", "azure.workload.identity/client-id")
_CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_ROLE_ARN", "AWS_CONTAINER_CREDENTIALS_FULL_URI")


# the objects


def check_main_kind(main: Mapping[str, Any], why: str, api: Api) -> Finding:
    """The kind of object that the job becomes."""
    kind = kind_of(main)
    if not api.has(kind):
        return failed(
            f"the cluster does not have {kind.kind} of {kind.api_version}",
            "Set platform_options.rendering: job, which every cluster has, or install the operator.",
        )
    return ok(f"{kind.kind} of {kind.api_version}: {why}")


def check_gang(main: Mapping[str, Any], group: Mapping[str, Any], api: Api) -> Finding:
    """The scheduler that starts all hosts together."""
    kind = kind_of(group)
    if not api.has(kind):
        return failed(
            f"the cluster does not have {kind.kind} of {kind.api_version}, which platform_options.gang needs",
            "Remove platform_options.gang, or ask the administrators to install the scheduler.",
        )
    return ok(f"all {main['kind']} pods start together, through {kind.group}")


def check_queue(name: str, api: Api) -> Finding:
    """The Kueue queue of the job."""
    kind = api.served(kinds.LOCAL_QUEUE)
    if kind is None:
        return failed(
            f"the job has the queue {name}, and the cluster does not have Kueue",
            "The job would stay suspended: remove platform_options.queue.",
        )
    queue = find(api, kind, name)
    if queue is None:
        try:
            near = nearest(name, [item["metadata"]["name"] for item in api.list(kind)[0]])
        except KubeError:
            near = ""
        return failed(
            f"there is no LocalQueue {name} in the namespace {api.namespace}",
            near or "kubectl get localqueues lists them.",
        )
    active = condition(queue, "Active")
    if text(active, "status") == "False":
        return failed(
            f"the queue {name} admits no jobs: {text(active, 'message')}",
            "Ask the administrators, or choose another queue.",
        )
    return ok(f"the queue {name} is active; {part(queue, 'status', 'pendingWorkloads') or 0} jobs wait in it")


def check_admission(main: Mapping[str, Any], pods: Sequence[PodSet], api: Api) -> Finding:
    """Dry-run the creation of the main object and, if allowed, of one pod, through schema, webhooks and policies."""
    what = main["kind"]
    warnings: list[str] = []
    try:
        api.create(main, dry_run=True, warnings=warnings)
        if what != "TrainJob" and api.allowed("create", kinds.POD):
            metadata = {
                "generateName": f"{main['metadata']['name']}-",
                "namespace": main["metadata"]["namespace"],
                "labels": part(pods[0].template, "metadata", "labels"),
            }
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": dict(pods[0].spec)}
            api.create(pod, dry_run=True)
            what += " and its pods"
    except KubeAlreadyExists as error:
        return failed(error.message, "Choose another job_name, or delete it.")
    except KubeInvalid as error:
        return failed(error.message, error.hint)
    except KubeForbidden as error:
        return unknown(error.message)
    if warnings:
        return warning(
            f"the cluster accepts the {what}, and warns: {'; '.join(dict.fromkeys(warnings))}",
            "The pods may be refused when they are created.",
        )
    return ok(f"the cluster accepts the {what} (a dry run)")


# the resources


def _amount(value: object) -> Fraction:
    return parse_quantity(value) or NONE


def requests_of(spec: Mapping[str, Any], *fields: str) -> dict[str, Fraction]:
    """The total requests of all containers of a pod. A limit without a request is a request, too.

    Args:
        fields: the fields of the containers' resources to use: ``limits`` for the limits only.
    """
    total: dict[str, Fraction] = {}
    for container in spec.get("containers") or []:
        merged: dict[str, Any] = {}
        for field in fields or ("limits", "requests"):
            merged.update(part(container, "resources", field))
        for name, value in merged.items():
            total[name] = total.get(name, NONE) + _amount(value)
    return total


def check_quota(pods: Sequence[PodSet], api: Api) -> Finding:
    """Compare the total requests of all pods with each ResourceQuota, because a dry run counts one pod only.

    Quotas with a scope apply to some pods only, and are skipped.
    """
    never, waits = [], []
    for quota in api.list(kinds.RESOURCE_QUOTA)[0]:
        if part(quota, "spec", "scopes") or part(quota, "spec", "scopeSelector"):
            continue
        for resource, limit in part(quota, "status", "hard").items():
            wanted = _wanted(pods, resource)
            most, used = _amount(limit), _amount(part(quota, "status", "used").get(resource))
            shown = [show_quantity(value, resource) for value in (wanted, used, most)]
            sentence = f"{quota['metadata']['name']}: {shown[0]} {resource}, {shown[1]} of {shown[2]} in use"
            if wanted > most:
                never.append(sentence)
            elif wanted and wanted + used > most:
                waits.append(sentence)
    if never:
        what = f"the job requests more than its quota: {'; '.join(never)}"
        return failed(what, "Request less, or a larger quota.")
    if waits:
        return warning(
            f"the job waits for quota: {'; '.join(waits)}", "Other jobs of the namespace hold it now."
        )
    return ok("no quota of the namespace is too small for it")


def _wanted(pods: Sequence[PodSet], resource: str) -> Fraction:
    """The amount of a quota's resource that the job uses."""
    if resource in ("pods", "count/pods"):
        return Fraction(sum(group.count for group in pods))
    fields = ["limits"] if resource.startswith("limits.") else []
    name = resource.removeprefix("limits.").removeprefix("requests.")
    return sum((group.count * requests_of(group.spec, *fields).get(name, NONE) for group in pods), NONE)


def allocatable(node: Mapping[str, Any]) -> dict[str, Fraction]:
    """The resources that a node offers to pods."""
    amounts = part(node, "status", "allocatable").items()
    return {name: _amount(value) for name, value in amounts}


def check_devices(api: Api) -> Finding:
    """The GPUs and other devices of the cluster, by node."""
    texts = [
        f"{node['metadata']['name']}: {count} {resource}"
        for node in api.list(kinds.NODE)[0]
        for resource, count in allocatable(node).items()
        if not resource.startswith(_PLAIN) and count > 0
    ]
    if not texts:
        return ok(
            "no node has GPUs now", "A cluster that adds nodes may have none until a job requests some."
        )
    rest = f"; and {len(texts) - MOST_NAMES} more" if len(texts) > MOST_NAMES else ""
    return ok("; ".join(texts[:MOST_NAMES]) + rest)


def check_nodes(pods: Sequence[PodSet], api: Api) -> Finding:
    """Check that one of the pods would fit on an otherwise empty node. The scheduler decides everything else."""
    nodes = [node for node in api.list(kinds.NODE)[0] if not part(node, "spec", "unschedulable")]
    for group in pods:
        labels, wants = part(group.spec, "nodeSelector"), requests_of(group.spec)
        has = [
            allocatable(node) for node in nodes if labels.items() <= part(node, "metadata", "labels").items()
        ]
        if not any(all(one.get(name, NONE) >= each for name, each in wants.items()) for one in has):
            shown = [f"{show_quantity(each, name)} {name}" for name, each in sorted(wants.items())]
            shown += [f"the label {key}={value}" for key, value in labels.items()]
            return warning(
                f"no node has {' and '.join(shown)}" if shown else "the cluster has no nodes now",
                "Such a job waits forever, unless the cluster adds nodes (Karpenter, cluster autoscaler). Check gpus, "
                "cpu, memory and node_selector: kubectl describe nodes",
            )
    return ok("a pod of the job fits on a node")


# the objects that the pods refer to: they would wait forever for a missing one


def check_service_account(name: str, api: Api) -> Finding:
    """The service account of the pods, and the cloud role that comes with it."""
    account = find(api, kinds.SERVICE_ACCOUNT, name)
    if account is None:
        return failed(
            f"there is no service account {name} in the namespace {api.namespace}",
            "No pod would be created. Set platform_options.service_account: kubectl get serviceaccounts lists them.",
        )
    role = _cloud_role(account)
    return ok(f"{name}, with the role {role}" if role else name)


def _cloud_role(account: Mapping[str, Any]) -> str:
    """The role of AWS, Google Cloud or Azure of a service account; empty if it has none."""
    return next((role for name in _ROLES if (role := text(account, "metadata", "annotations", name))), "")


def check_priority(name: str, api: Api) -> Finding:
    """The priority class of the pods."""
    found = find(api, kinds.PRIORITY_CLASS, name)
    if found is None:
        hint = "No pod would be created. kubectl get priorityclasses lists them."
        return failed(f"there is no priority class {name}", hint)
    return ok(f"{name} ({found.get('value')})")


def check_pull_secrets(names: Sequence[str], api: Api) -> Finding:
    """The Secrets with which nodes pull the image. Whether the registries accept them is not checked."""
    for name in names:
        if find(api, kinds.SECRET, name) is None:
            return failed(
                f"there is no Secret {name} in the namespace {api.namespace}",
                f"kubectl create secret docker-registry {name} --docker-server=... --docker-username=NAME "
                "--docker-password=...",
            )
    return ok(", ".join(names))


def sources(own: Sequence[str], pods: Sequence[PodSet]) -> Iterator[tuple[Kind, str, str]]:
    """Kind, name and key of the Secrets and ConfigMaps from which the pods get variables and files.

    Args:
        own: the names of the objects that the job itself creates. They are left out, as are optional ones.
    """
    secret, config = kinds.SECRET, kinds.CONFIG_MAP
    fields = {"secretKeyRef": secret, "secretRef": secret, "secret": secret}
    fields |= {"configMapKeyRef": config, "configMapRef": config, "configMap": config}
    for group in pods:
        variables = [one.get("valueFrom") or {} for it in group.containers for one in it.get("env") or []]
        whole = [one for it in group.containers for one in it.get("envFrom") or []]
        for reference in [*variables, *whole, *(group.spec.get("volumes") or [])]:
            for field, kind in fields.items():
                target = reference.get(field)
                if target and not target.get("optional"):
                    name = target["secretName"] if field == "secret" else target["name"]
                    if name not in own:
                        yield kind, name, target.get("key", "")


def check_sources(found: Sequence[tuple[Kind, str, str]], api: Api) -> Finding:
    """The user's Secrets and ConfigMaps: see `sources`."""
    for kind, name, key in found:
        source = find(api, kind, name)
        if source is None:
            return failed(
                f"there is no {kind.kind} {name} in the namespace {api.namespace}",
                "The pods would wait for it. Create it, or correct platform_options.secret_env and env_from.",
            )
        keys = sorted({*part(source, "data"), *part(source, "binaryData")})
        if key and key not in keys:
            hint = f"Its keys: {', '.join(keys) or 'none'}."
            return failed(f"the {kind.kind} {name} has no key {key}", hint)
    return ok(", ".join(dict.fromkeys(f"{kind.kind} {name}" for kind, name, _ in found)))


def claims_of(pods: Sequence[PodSet]) -> list[str]:
    """The names of the claims that the pods mount."""
    volumes = [volume for group in pods for volume in group.spec.get("volumes") or []]
    names = (text(volume, "persistentVolumeClaim", "claimName") for volume in volumes)
    return list(dict.fromkeys(filter(None, names)))


def check_volumes(names: Sequence[str], count: int, api: Api) -> Finding:
    """The claims that ``count`` pods mount."""
    fine, warnings = [], []
    for name in names:
        claim = find(api, kinds.VOLUME_CLAIM, name)
        if claim is None:
            return failed(
                f"there is no PersistentVolumeClaim {name} in the namespace {api.namespace}",
                "The pods would wait forever. kubectl get pvc lists them.",
            )
        if text(claim, "status", "phase") == "Lost":
            return failed(f"the volume of {name} is lost", "Restore it, or use another claim.")
        modes = part(claim, "status", "accessModes") or part(claim, "spec", "accessModes") or []
        if count > 1 and list(modes) == ["ReadWriteOncePod"]:
            return failed(
                f"{name} can be mounted by one pod (ReadWriteOncePod), and the job has {count}",
                "Use a claim with ReadWriteMany, such as NFS or EFS.",
            )
        if count > 1 and not {"ReadWriteMany", "ReadOnlyMany"} & set(modes):
            warnings.append(
                f"{name} can be mounted on one node at a time ({', '.join(modes)}), and the job has {count} pods"
            )
        fine.append(f"{name} ({', '.join(modes)})")
    if warnings:
        hint = "All pods must fit on that node. For more nodes, use a claim with ReadWriteMany, such as NFS or EFS."
        return warning("; ".join(warnings), hint)
    return ok(", ".join(fine))


# access of the pods to S3


def storage_checks(job: TrainingJob) -> Iterator[tuple[str, Check]]:
    """The buckets and the inputs of the job, by the names of their checks."""
    for name, uri in _inputs(job).items():
        if uri_scheme(uri) != "file":
            yield f"input {name}", partial(immediately, partial(check_input, name, uri))
    places = (job.output_path, job.checkpoint_s3_uri, job.code_location)
    uris = [uri for uri in places if uri and uri_scheme(uri) != "file"]
    for bucket, uri in {urlsplit(uri).netloc: uri for uri in uris}.items():
        yield f"bucket {bucket}", partial(immediately, partial(check_bucket, uri))


def uses_s3(job: TrainingJob) -> bool:
    """Whether the pods themselves read or write S3. The source does not count: it has presigned URLs."""
    places = (job.output_path, job.checkpoint_s3_uri, *_inputs(job).values())
    return any(uri and uri_scheme(uri) == "s3" for uri in places)


def _inputs(job: TrainingJob) -> dict[str, str]:
    return {name: str(entry["uri"]) for name, entry in channel_entries(job).items()}


def check_credentials(pods: Sequence[PodSet], api: Api) -> Finding:
    """The origin of the pods' credentials for S3."""
    containers = [container for group in pods for container in group.containers]
    variables = {variable.get("name") for one in containers for variable in one.get("env") or []}
    if given := [name for name in _CREDENTIALS if name in variables]:
        return ok(f"the pods have {', '.join(given)}")
    whole = [source for one in containers for source in one.get("envFrom") or []]
    if whole:
        names = filter(None, ((source.get("secretRef") or {}).get("name") for source in whole))
        return ok(f"the pods take variables from the Secret {', '.join(names)}")
    name = text(pods[0].spec, "serviceAccountName") or "default"
    try:
        account = find(api, kinds.SERVICE_ACCOUNT, name)
    except CloudtrainError:
        return unknown(f"the service account {name} may have a role for S3; you may not look")
    if account and (role := _cloud_role(account)):
        return ok(f"the service account {name} has the role {role}")
    return warning(
        f"nothing in the pods has credentials for S3, and the service account {name} has no role",
        "Unless the nodes or EKS Pod Identity have them: set platform_options.service_account, or "
        "secrets: [AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY].",
    )
