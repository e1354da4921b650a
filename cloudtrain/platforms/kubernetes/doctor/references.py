"""Checks of what the pods name: accounts, Secrets, volumes, the image, and their way to S3.

A pod that names something that is missing waits forever.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from cloudtrain.contract.documents import LARGEST_REPORT, parse_json
from cloudtrain.errors import CloudtrainError
from cloudtrain.platforms.checks import Check, CheckStatus, Finding
from cloudtrain.platforms.common.channels import channel_entries
from cloudtrain.platforms.common.machine_checks import check_bucket, check_input, immediately
from cloudtrain.platforms.kubernetes.api import kinds
from cloudtrain.platforms.kubernetes.api.errors import KubeForbidden
from cloudtrain.platforms.kubernetes.api.kinds import Kind
from cloudtrain.platforms.kubernetes.doctor.cluster import Cluster, failed, ok, unknown, warning
from cloudtrain.platforms.kubernetes.life.objects import PodSet
from cloudtrain.spec import TrainingJob
from cloudtrain.storage import uri_scheme

TIMEOUT = 8.0
"""In seconds. The registry may be one that only the nodes reach."""

_ROLES = ("eks.amazonaws.com/role-arn", "iam.gke.io/gcp-service-account", "azure.workload.identity/client-id")
_CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_ROLE_ARN", "AWS_CONTAINER_CREDENTIALS_FULL_URI")
_MANIFESTS = ", ".join(
    f"application/vnd.{name}+json"
    for name in (
        "oci.image.index.v1",
        "oci.image.manifest.v1",
        "docker.distribution.manifest.list.v2",
        "docker.distribution.manifest.v2",
    )
)
_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')


def check_service_account(name: str, cluster: Cluster) -> Finding:
    """The service account of the pods, and the role of the cloud that it brings."""
    account = cluster.find(kinds.SERVICE_ACCOUNT, name)
    if account is None:
        return failed(
            f"there is no service account {name} in the namespace {cluster.api.namespace}",
            "No pod would be created. Set platform_options.service_account: kubectl get serviceaccounts lists them.",
        )
    role = _cloud_role(account)
    return ok(f"{name}, with the role {role}" if role else name)


def _cloud_role(account: Mapping[str, Any]) -> str:
    """The role of AWS, Google Cloud or Azure of a service account; empty if it has none."""
    annotations = account["metadata"].get("annotations") or {}
    return str(next((annotations[name] for name in _ROLES if annotations.get(name)), ""))


def check_priority(name: str, cluster: Cluster) -> Finding:
    """The priority class of the pods."""
    found = cluster.find(kinds.PRIORITY_CLASS, name)
    if found is None:
        return failed(
            f"there is no priority class {name}",
            "No pod would be created. kubectl get priorityclasses lists them.",
        )
    return ok(f"{name} ({found.get('value')})")


def check_pull_secrets(image: str, names: Sequence[str], cluster: Cluster) -> Finding:
    """The secrets by which nodes pull the image: whether they exist, and have credentials for its registry."""
    registry, shown = _registry_of(image), ", ".join(names)
    known: list[str] = []
    for name in names:
        secret = cluster.find(kinds.SECRET, name)
        if secret is None:
            return failed(
                f"there is no Secret {name} in the namespace {cluster.api.namespace}",
                f"kubectl create secret docker-registry {name} --docker-server={registry} --docker-username=NAME "
                "--docker-password=...",
            )
        if secret.get("type") not in ("kubernetes.io/dockerconfigjson", "kubernetes.io/dockercfg"):
            return failed(
                f"the Secret {name} has the type {secret.get('type')}, and not kubernetes.io/dockerconfigjson",
                "Create it with: kubectl create secret docker-registry",
            )
        known += _registries(secret)
    if not any(registry in one for one in known):
        return warning(
            f"{shown} have credentials for {', '.join(known) or 'no registry'}; the image is in {registry}",
            f"Unless the nodes may pull it by themselves: add --docker-server={registry}.",
        )
    return ok(f"{shown} have credentials for {registry}")


def _registry_of(image: str) -> str:
    """The host of an image's registry: ``docker.io`` if it names none."""
    first, slash, _ = image.partition("/")
    return first if slash and ("." in first or ":" in first or first == "localhost") else "docker.io"


def _registries(secret: Mapping[str, Any]) -> list[str]:
    """The registries for which a Secret has credentials."""
    data = secret.get("data") or {}
    try:
        config = parse_json(base64.b64decode(data.get(".dockerconfigjson") or data.get(".dockercfg") or ""))
        return [str(name) for name in config.get("auths", config)]
    except (ValueError, AttributeError, TypeError):
        return []


def check_sources(own: Sequence[str], pods: Sequence[PodSet], cluster: Cluster) -> Finding:
    """The user's Secrets and ConfigMaps that the pods take variables and files from.

    Args:
        own: the names of the objects that the job itself brings.
    """
    found = []
    for kind, name, key in sorted(set(sources(own, pods)), key=str):
        source = cluster.find(kind, name)
        if source is None:
            return failed(
                f"there is no {kind.kind} {name} in the namespace {cluster.api.namespace}",
                "The pods would wait for it. Create it, or correct platform_options.secret_env and env_from.",
            )
        keys = sorted(
            key for field in ("data", "stringData", "binaryData") for key in source.get(field) or {}
        )
        if key and key not in keys:
            return failed(
                f"the {kind.kind} {name} has no key {key}", f"Its keys: {', '.join(keys) or 'none'}."
            )
        found.append(f"{kind.kind} {name}")
    return ok(", ".join(dict.fromkeys(found)))


def sources(own: Sequence[str], pods: Sequence[PodSet]) -> Iterator[tuple[Kind, str, str]]:
    """Kind, name and key of the Secrets and ConfigMaps that are not the job's own, and not optional."""
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


def check_volumes(pods: Sequence[PodSet], cluster: Cluster) -> Finding:
    """The claims that the pods mount: whether they exist, and fit for as many pods."""
    count = sum(group.count for group in pods)
    fine, problems = [], []
    for name, is_read_only in claims_of(pods).items():
        claim = cluster.find(kinds.VOLUME_CLAIM, name)
        if problem := _claim_problem(name, claim, count, is_read_only, cluster):
            problems.append(problem)
        elif claim:
            size = ((claim.get("status") or {}).get("capacity") or {}).get("storage", "size unknown")
            fine.append(f"{name} ({', '.join(_modes(claim))}, {size})")
    problems.sort(key=lambda finding: finding.status != CheckStatus.FAILED)
    return problems[0] if problems else ok(", ".join(fine))


def claims_of(pods: Sequence[PodSet]) -> dict[str, bool]:
    """The names of the claims that the pods mount, and whether they only read them."""
    found: dict[str, bool] = {}
    for group in pods:
        mounts = [mount for one in group.containers for mount in one.get("volumeMounts") or []]
        for volume in group.spec.get("volumes") or []:
            if claim := volume.get("persistentVolumeClaim"):
                own = [bool(one.get("readOnly")) for one in mounts if one.get("name") == volume.get("name")]
                reads = bool(claim.get("readOnly")) or (bool(own) and all(own))
                found[claim["claimName"]] = found.get(claim["claimName"], True) and reads
    return found


def _claim_problem(
    name: str, claim: Mapping[str, Any] | None, count: int, is_read_only: bool, cluster: Cluster
) -> Finding | None:
    if claim is None:
        return failed(
            f"there is no PersistentVolumeClaim {name} in the namespace {cluster.api.namespace}",
            "The pods would wait forever. kubectl get pvc lists them.",
        )
    phase, modes = (claim.get("status") or {}).get("phase"), _modes(claim)
    if phase == "Lost":
        return failed(f"the volume of {name} is lost", "Restore it, or use another claim.")
    if modes == ["ReadWriteOncePod"] and count > 1:
        return failed(
            f"{name} can be mounted by one pod (ReadWriteOncePod), and the job has {count}",
            "Use a claim with ReadWriteMany, such as NFS, EFS, FSx for Lustre or CephFS.",
        )
    if modes == ["ReadOnlyMany"] and not is_read_only:
        return failed(f"{name} can only be read (ReadOnlyMany)", f"Write {name}:/PATH:ro in volumes.")
    if count > 1 and "ReadWriteMany" not in modes and not (is_read_only and "ReadOnlyMany" in modes):
        return warning(
            f"{name} can be mounted on one node at a time ({', '.join(modes)}), and the job has {count} pods",
            "All pods must fit on that node. For more nodes, use a claim with ReadWriteMany.",
        )
    if phase != "Pending":
        return None
    class_name = (claim.get("spec") or {}).get("storageClassName")
    if not class_name:
        return warning(
            f"{name} has no volume yet, and no storage class that makes one",
            "See what it waits for: kubectl describe pvc.",
        )
    try:
        found = cluster.find(kinds.STORAGE_CLASS, class_name)
    except KubeForbidden:
        return None
    if found is None:
        return failed(
            f"{name} has no volume, and there is no storage class {class_name} that would make one",
            "kubectl get storageclasses lists them.",
        )
    if found.get("volumeBindingMode") == "WaitForFirstConsumer":
        return None
    return warning(f"{name} has no volume yet", f"See what it waits for: kubectl describe pvc {name}.")


def _modes(claim: Mapping[str, Any]) -> list[str]:
    modes = ((claim.get(part) or {}).get("accessModes") for part in ("status", "spec"))
    return [str(mode) for mode in next(filter(None, modes), [])]


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
    """Whether the pods themselves read or write S3: the source reaches them by presigned URLs."""
    places = (job.output_path, job.checkpoint_s3_uri, *_inputs(job).values())
    return any(uri and uri_scheme(uri) == "s3" for uri in places)


def _inputs(job: TrainingJob) -> dict[str, str]:
    return {name: str(entry["uri"]) for name, entry in channel_entries(job).items()}


def check_credentials(pods: Sequence[PodSet], cluster: Cluster) -> Finding:
    """Where the pods get credentials for S3."""
    containers = [container for group in pods for container in group.containers]
    variables = {variable.get("name") for one in containers for variable in one.get("env") or []}
    if given := [name for name in _CREDENTIALS if name in variables]:
        return ok(f"the pods have {', '.join(given)}")
    whole = [source for one in containers for source in one.get("envFrom") or []]
    if whole:
        names = filter(None, ((source.get("secretRef") or {}).get("name") for source in whole))
        return ok(f"the pods take variables from the Secret {', '.join(names)}")
    name = str(pods[0].spec.get("serviceAccountName") or "default")
    try:
        account = cluster.find(kinds.SERVICE_ACCOUNT, name)
    except CloudtrainError:
        return unknown(f"the service account {name} may have a role for S3; you may not look")
    if account and (role := _cloud_role(account)):
        return ok(f"the service account {name} has the role {role}")
    return warning(
        f"nothing in the pods has credentials for S3, and the service account {name} has no role",
        "Unless the nodes or EKS Pod Identity have them: set platform_options.service_account, or "
        "secrets: [AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY].",
    )


def check_image(image: str, has_pull_secrets: bool, cluster: Cluster) -> Finding:
    """Whether nodes have the image already, and else what its registry answers without credentials."""
    if holders := _nodes_with(image, cluster):
        more = f" and {len(holders) - 4} more" if len(holders) > 4 else ""
        return ok(f"{image} is already on {', '.join(holders[:4])}{more}")
    status, registry = _ask_registry(image), _registry_of(image)
    if status == 200:
        return ok(f"{image} is public")
    if status == 404:
        return failed(f"{registry} has no image {image}", "Check image_uri: the repository and the tag.")
    if status not in (401, 403):
        return unknown(f"{image} cannot be looked up in {registry} from this machine")
    if has_pull_secrets:
        return unknown(f"{image} is private: the pull secrets decide")
    return warning(
        f"{registry} shows {image} only to those with credentials, or does not have it",
        "Unless the nodes have them (as on EKS for ECR): set platform_options.image_pull_secrets.",
    )


def _nodes_with(image: str, cluster: Cluster) -> list[str]:
    """The nodes that report the image; each reports its 50 largest."""
    names = {image, f"docker.io/{image}", f"docker.io/library/{image}"}
    try:
        return [
            node["metadata"]["name"]
            for node in cluster.list(kinds.NODE)
            if any(
                names & set(one.get("names") or []) for one in (node.get("status") or {}).get("images") or []
            )
        ]
    except CloudtrainError:  # the check of the nodes reports why
        return []


def _ask_registry(image: str) -> int:
    """The HTTP status of the image's manifest, without credentials; 0 if there is no answer."""
    import httpx2 as httpx

    host = _registry_of(image)
    repository, _, digest = image.removeprefix(f"{host}/").partition("@")
    name, colon, tag = repository.rpartition(":")
    if colon and "/" not in tag:
        repository = name
    else:
        tag = ""
    if host == "docker.io":
        host, repository = (
            "registry-1.docker.io",
            repository if "/" in repository else f"library/{repository}",
        )
    is_local = _is_local(host)
    url = f"{'http' if is_local else 'https'}://{host}/v2/{repository}/manifests/{digest or tag or 'latest'}"
    try:
        with httpx.Client(timeout=TIMEOUT, headers={"Accept": _MANIFESTS}) as client:
            answer = client.head(url)
            challenge = answer.headers.get("WWW-Authenticate", "")
            is_bearer = answer.status_code == 401 and challenge.lower().startswith("bearer ")
            if is_bearer and (token := anonymous_token(client, challenge, is_local=is_local)):
                answer = client.head(url, headers={"Authorization": f"Bearer {token}"})
            return int(answer.status_code)
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError):
        return 0


def anonymous_token(client: Any, challenge: str, *, is_local: bool) -> str:
    """The token that a registry gives to everyone; empty if it gives none. Raises ValueError.

    Args:
        is_local: whether the registry is on this machine.
    """
    fields = dict(_CHALLENGE.findall(challenge))
    realm = fields.pop("realm", "")
    # a registry on the network leads to no other service of this machine
    if not realm.startswith("https://") and not (is_local and _is_local(urlsplit(realm).netloc)):
        return ""
    text = b""
    with client.stream("GET", realm, params=fields) as answer:
        if answer.status_code != 200:
            return ""
        for part in answer.iter_bytes():
            text += part
            if len(text) > LARGEST_REPORT:
                return ""
    document = parse_json(text)
    given = document if isinstance(document, dict) else {}
    return str(given.get("token") or given.get("access_token") or "")


def _is_local(host: str) -> bool:
    return urlsplit(f"//{host}").hostname in ("localhost", "127.0.0.1")
