"""Copies outputs from a volume of the cluster: a short-lived Job mounts it read-only, and prints them into its log.

This requires no tool in the image, and only the rights to create and delete Jobs in addition to those for logs. A
cluster may lose lines of a long log, so each piece includes its place, and each file its SHA-256; after a gap, another
Job continues there. If the client dies, Kubernetes removes the Job: it ends by itself, and has a time limit and a TTL.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from cloudtrain._system.files import READ_REGULAR, open_regular
from cloudtrain.contract.documents import Fields, parse_json
from cloudtrain.errors import NotFound, PlatformError, StorageError
from cloudtrain.platforms.kubernetes.api.client import Api
from cloudtrain.platforms.kubernetes.api.errors import KubeUnreachable
from cloudtrain.platforms.kubernetes.api.kinds import JOB, POD, Kind
from cloudtrain.platforms.kubernetes.labels import CLOUDTRAIN, CONTAINER, MANAGED_BY, NO_SIDECAR, job_selector
from cloudtrain.platforms.kubernetes.life.objects import EventIndex, Object, items, pod_sets, text
from cloudtrain.platforms.kubernetes.life.pods import Pod
from cloudtrain.platforms.kubernetes.life.waiting import why_pod
from cloudtrain.platforms.kubernetes.render.pod import literal
from cloudtrain.storage import Progress
from cloudtrain.storage.transfer import check_targets
from cloudtrain.storage.uri import check_key, own_file

PROGRAM = Path(__file__).with_name("volume_files.py")
DOWNLOAD = "cloudtrain/download"
"""The label of the pod of one Job."""
START_SECONDS = 600.0
TIME_LIMIT = 3600
"""Seconds after which Kubernetes ends a Job. Another Job then continues."""
ATTEMPTS = 3
"""The number of consecutive Jobs without new data after which the download fails."""
_OF_CONTAINER = ("image", "imagePullPolicy", "securityContext")


def download(api: Api, kind: Kind, job_name: str, path: str, folder: Path, progress: Progress | None) -> Path:
    """Copy the file or the folder at ``path`` in the job's pods into ``folder``, and return its path.

    Raises NotFound, StorageError, PlatformError.
    """
    owner = api.get(kind, job_name)
    pod = _pod_spec(api, owner, job_name)
    target = own_file(folder, PurePosixPath(path).name)
    files = _Files(target, progress)
    failures = 0
    while not files.complete:
        before = files.place
        reader = _reader(api, owner, job_name, _reading_pod(pod, path, files.place))
        with reader as lines, contextlib.suppress(KubeUnreachable):  # the next Job continues
            files.take(lines)
        failures = 0 if files.place != before or files.complete else failures + 1
        if failures >= ATTEMPTS:
            raise StorageError(
                f"{path} cannot be read from the volume: the log of the pod that prints it breaks off",
                hint="Try again, or copy it with kubectl cp from a pod that mounts the volume.",
            )
    if not files.count:
        raise NotFound(f"{path} is not on the volume", hint="It was removed after the job had written it.")
    return target


class _Files:
    """The files so far. A file gets its name once it is complete, and its SHA-256 is the one that the pod computed."""

    def __init__(self, target: Path, progress: Progress | None) -> None:
        self._target = target
        self._part = target.with_name(f".{target.name}.part")
        self._progress = progress or (lambda count: None)
        self._digest = hashlib.sha256()
        self.place = (0, 0)
        """The number of the current file, and the offset of its next byte."""
        self.count = 0
        self.complete = False

    def take(self, lines: Iterator[bytes]) -> None:
        """Read lines up to the last one, or up to a gap. Raises StorageError."""
        for line in lines:
            try:
                given = Fields(parse_json(line))
                if "files" in given:
                    self.count = given.integer("files")
                    self.complete = self.place == (self.count, 0)
                    return
                number, (expected, at) = given.integer("file"), self.place
                if number != expected:
                    return
                if "data" in given:
                    if given.integer("at") != at:
                        return
                    self._add(base64.b64decode(given.text("data"), validate=True))
                elif given.integer("size") == at:
                    self._finish(given.text("name"), given.text("sha256"))
                else:
                    return
            except ValueError:  # a warning of the interpreter, or half a line
                continue

    def _add(self, data: bytes) -> None:
        number, at = self.place
        try:
            self._part.parent.mkdir(parents=True, exist_ok=True)
            flags = READ_REGULAR | os.O_WRONLY | os.O_CREAT | (0 if at else os.O_TRUNC)
            with open(open_regular(self._part, flags), "wb") as file:
                file.seek(at)
                file.write(data)
        except OSError as error:
            raise StorageError(f"{self._part} cannot be written: {error.strerror}") from error
        self._digest.update(data)
        self.place = number, at + len(data)
        self._progress(len(data))

    def _finish(self, name: str, sha256: str) -> None:
        number, at = self.place
        if not at:
            self._add(b"")
        if self._digest.hexdigest() != sha256:
            raise StorageError(f"{name or self._target.name} arrived altered", hint="Download it again.")
        if name:
            check_key(name, self._target.name)
            check_targets(self._target.parent, [f"{self._target.name}/{name}"])
        path = own_file(self._target, name) if name else self._target
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._part.replace(path)
        except OSError as error:
            raise StorageError(f"{path} cannot be written: {error.strerror}") from error
        self._digest = hashlib.sha256()
        self.place = number + 1, 0


def _pod_spec(api: Api, owner: Object, job_name: str) -> Object:
    """The spec of a job's pods, from its main object or from an existing pod. Raises NotFound."""
    found: Object = {}
    if text(owner, "kind") != "TrainJob":  # it has patches only
        found = next((pods.spec for pods in pod_sets(owner)), {})
    if not found:
        found = next((pod["spec"] for pod in api.list(POD, labels=job_selector(job_name))[0]), {})
    if not found:
        raise NotFound(
            f"job {job_name} has no pods left that show which volumes it had",
            hint="Copy its outputs with kubectl cp from a pod that mounts the volume.",
        )
    return found


def _reading_pod(pod: Object, path: str, place: tuple[int, int]) -> dict[str, Any]:
    """A pod with only the image, the user and the volume of the job's pods. Raises NotFound."""
    container = next((one for one in items(pod, "containers") if one.get("name") in (CONTAINER, "node")), {})
    at, mounts = PurePosixPath(path), items(container, "volumeMounts")
    mounts = [one for one in mounts if at.is_relative_to(text(one, "mountPath"))]
    mount = max(mounts, key=lambda one: len(text(one, "mountPath")), default=None)
    volumes = [one for one in items(pod, "volumes") if mount and one.get("name") == mount.get("name")]
    if mount is None or not volumes or "emptyDir" in volumes[0] or not container.get("command"):
        raise NotFound(f"{path} was in the pods of the job, and has vanished with them")
    arguments = json.dumps([path, *place])
    return {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        **{name: pod[name] for name in ("securityContext", "imagePullSecrets") if name in pod},
        "volumes": volumes,
        "containers": [
            {
                "name": CONTAINER,
                **{name: container[name] for name in _OF_CONTAINER if name in container},
                # the shell command of the job's own pods, which finds the interpreter
                "command": [*container["command"][:3], literal(arguments), literal(PROGRAM.read_text()), ""],
                "resources": {name: {"cpu": "200m", "memory": "128Mi"} for name in ("requests", "limits")},
                "volumeMounts": [{**mount, "readOnly": True}],
            }
        ],
    }


@contextlib.contextmanager
def _reader(api: Api, owner: Object, job_name: str, pod: dict[str, Any]) -> Iterator[Iterator[bytes]]:
    """The lines of a new Job, which is deleted afterwards. Raises PlatformError."""
    name = f"{job_name[:40].rstrip('-')}-copy-{os.urandom(4).hex()}"
    labels = {MANAGED_BY: CLOUDTRAIN, DOWNLOAD: name}
    reference = {name: owner[name] for name in ("apiVersion", "kind")}
    reference |= {"name": job_name, "uid": text(owner, "metadata", "uid")}
    api.create(
        {
            "apiVersion": JOB.api_version,
            "kind": JOB.kind,
            "metadata": {
                "name": name,
                "namespace": api.namespace,
                "labels": labels,
                "ownerReferences": [reference],
            },
            "spec": {
                "backoffLimit": 0,
                "activeDeadlineSeconds": TIME_LIMIT,
                "ttlSecondsAfterFinished": 60,
                "template": {"metadata": {"labels": {**NO_SIDECAR, **labels}}, "spec": pod},
            },
        }
    )
    try:
        started = _wait_for_pod(api, name)
        with api.pod_log(started, CONTAINER, follow=True, timestamps=False) as lines:
            yield iter(lines)
    finally:
        with contextlib.suppress(PlatformError):
            api.delete(JOB, name, foreground=False)


def _wait_for_pod(api: Api, name: str) -> str:
    """The name of the pod, once its container has started. Raises PlatformError."""
    deadline, why = time.monotonic() + START_SECONDS, "it has not been created"
    while time.monotonic() < deadline:
        found, _ = api.list(POD, labels=f"{DOWNLOAD}={name}")
        for pod in map(Pod.of, found):
            if pod.is_running or pod.end or pod.is_over:
                return pod.name
            why = why_pod(pod, EventIndex(())).sentence
        time.sleep(0.5)
    raise PlatformError(f"the pod that reads the volume has not started: {why}")
