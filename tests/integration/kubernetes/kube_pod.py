"""One pod on a node: what the kubelet does from the first volume to the last status."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kube_client import KubeError
from kube_containers import Command, Container, Mount, StartFailed, User
from kube_expansion import ConfigError, expand, variables
from kube_images import Image
from kube_objects import condition, event, now
from kube_pod_logs import ContainerLog
from kube_volumes import Volumes

if TYPE_CHECKING:
    from kube_kubelet import Kubelet

Object = dict[str, Any]

RETRY = 0.2
"""Seconds between two attempts to mount a volume, to pull an image, or to start a container again."""
MESSAGE_SIZE = 4096


class _Stop(Exception):
    """The pod is to end before it has started."""


class RunningContainer:
    """A container of a pod, through all of its restarts."""

    def __init__(self, spec: Object) -> None:
        self.spec = spec
        self.name: str = spec["name"]
        self.state: Object = {"waiting": {"reason": "ContainerCreating"}}
        self.last_state: Object = {}
        self.restarts = 0
        self.image: Image | None = None
        self.process: Container | None = None
        self.log = ContainerLog()
        self.previous_log: ContainerLog | None = None
        self.why = ""
        """The reason of its end, if it is not that of its exit code."""

    @property
    def exit_code(self) -> int | None:
        ended = self.state.get("terminated")
        return ended["exitCode"] if ended else None

    def to_status(self) -> Object:
        running = "running" in self.state
        number = f"containerd://{self.process.pid:064x}" if self.process else ""
        return {
            "name": self.name,
            "image": self.spec["image"],
            "imageID": f"sha256:{self.spec['image']}" if self.image else "",
            "containerID": number,
            "state": self.state,
            "lastState": self.last_state,
            "ready": running,
            "started": running,
            "restartCount": self.restarts,
        }


class PodWorker(threading.Thread):
    """Carries out one pod."""

    def __init__(self, kubelet: Kubelet, pod: Object) -> None:
        super().__init__(name=f"pod {pod['metadata']['name']}", daemon=True)
        self.kubelet = kubelet
        self.pod = pod
        self.namespace: str = pod["metadata"]["namespace"]
        self.pod_name: str = pod["metadata"]["name"]
        self.containers = [RunningContainer(one) for one in pod["spec"]["containers"]]
        self.init_containers = [RunningContainer(one) for one in pod["spec"].get("initContainers") or ()]
        self.ip = ""
        self.folder = Path(kubelet.folder, f"pod-{pod['metadata']['uid'][:13]}")
        self.lost = threading.Event()
        """Its node has gone: it ends without a report."""
        self._changed = threading.Event()
        self._evicted = ""
        self._killed_at: float | None = None
        self._sandbox: int | None = None
        self._phase = "Pending"
        self._started_at = now()

    def update(self, pod: Object) -> None:
        """Called when the object has changed."""
        self.pod = pod
        self._changed.set()

    def lose(self) -> None:
        """Kill it, and report nothing any more."""
        self.lost.set()
        self._kill_all()
        self._changed.set()

    def evict(self, message: str) -> None:
        """End it as the kubelet does under pressure."""
        self._evicted = message
        self._changed.set()

    def kill(self, reason: str, container: str = "") -> None:
        """Kill a container's processes; ``reason`` is what its status says."""
        for one in self.containers:
            if one.process and one.process.running and container in ("", one.name):
                one.why = reason
                one.process.send(signal.SIGKILL)

    def container(self, name: str) -> RunningContainer | None:
        return next((one for one in [*self.containers, *self.init_containers] if one.name == name), None)

    def run(self) -> None:
        try:
            self._live()
        except _Stop:
            if not self.lost.is_set():
                self._finish("Failed")
        except KubeError as error:
            if error.status != 404:
                raise
        except (KeyboardInterrupt, OSError):
            if not self.kubelet.closed:
                raise
        finally:
            self._kill_all()
            if self._sandbox is not None:
                with contextlib.suppress(OSError):
                    self.kubelet.end_sandbox(self._sandbox, self.pod)
            shutil.rmtree(self.folder, ignore_errors=True)

    def _live(self) -> None:
        (self.folder / "volumes").mkdir(parents=True)
        self.ip = self.kubelet.next_ip()
        claims = self.kubelet.claims / self.namespace
        self._volumes = Volumes(self.kubelet.client, self.pod, self.folder / "volumes", claims, self.ip)
        self._wait_for_volumes()
        for one in [*self.init_containers, *self.containers]:
            self._pull(one)
        hosts = self.folder / "hosts"
        self.pod.setdefault("status", {})["podIP"] = self.ip
        self._sandbox = self.kubelet.make_sandbox(self.pod, self.ip, hosts)
        self._report()
        for one in self.init_containers:
            self._start(one)
            self._wait_for([one])
            if one.exit_code:
                self._finish("Failed")
                return
        for one in self.containers:
            self._start(one)
        self._phase = "Running"
        self._report(condition("Initialized", True), *_ready(True))
        while True:
            self._wait_for(self.containers)
            if not any(self._is_to_restart(one) for one in self.containers):
                break
            time.sleep(RETRY)
            for one in self.containers:
                if self._is_to_restart(one):
                    self._restart(one)
            self._report()
        if not self.lost.is_set():
            self._finish("Failed" if any(one.exit_code for one in self.containers) else "Succeeded")

    def _wait_for_volumes(self) -> None:
        for problem in self._attempts(self._volumes.make):
            self._record_once("FailedMount", problem)

    def _pull(self, one: RunningContainer) -> None:
        name, first = one.spec["image"], True
        while isinstance(found := self.kubelet.images.pull(name, self.pod, self.kubelet.client), str):
            text = f'Failed to pull image "{name}": {found}'
            self._record_once("Failed", text)
            self._record_once("Failed", "Error: ErrImagePull")
            reason = "ErrImagePull" if first else "ImagePullBackOff"
            message = found if first else f'Back-off pulling image "{name}"'
            if not first:
                self._record_once("BackOff", message, warning=False)
            one.state = {"waiting": {"reason": reason, "message": message}}
            self._report()
            self._pause()
            first = False
        one.image = found
        self.kubelet.record(event(self.pod, "Pulled", f'Container image "{name}" already present on machine'))

    def _start(self, one: RunningContainer) -> None:
        """Start a container; wait for what it refers to."""
        made: list[Command] = []

        def make() -> None:
            made.append(self._command(one))

        for problem in self._attempts(make):
            one.state = {"waiting": {"reason": "CreateContainerConfigError", "message": problem}}
            self._record_once("Failed", f"Error: {problem}")
            self._report()
        assert self._sandbox is not None
        reading, writing = os.pipe()
        began = now()
        try:
            one.process = self.kubelet.containers.run(self._sandbox, made[0], writing)
        except StartFailed as error:
            self._record_once("Failed", f"Error: failed to create containerd task: {error}")
            ended = {"exitCode": 128, "reason": "StartError", "message": str(error)}
            one.state = {"terminated": {**ended, "startedAt": began, "finishedAt": now()}}
            one.log.end()
            os.close(reading)
            return
        finally:
            os.close(writing)
        one.state = {"running": {"startedAt": began}}
        threading.Thread(target=one.log.pump, args=(reading,), daemon=True).start()
        one.process.on_end(self._changed.set)
        self.kubelet.record(event(self.pod, "Started", f"Started container {one.name}"))

    def _restart(self, one: RunningContainer) -> None:
        one.last_state, one.restarts = one.state, one.restarts + 1
        one.previous_log, one.log, one.why = one.log, ContainerLog(), ""
        self._start(one)

    def _is_to_restart(self, one: RunningContainer) -> bool:
        policy = self.pod["spec"].get("restartPolicy", "Always")
        if self._is_ending() or one.exit_code is None:
            return False
        return policy == "Always" or (policy == "OnFailure" and bool(one.exit_code))

    def _wait_for(self, wanted: list[RunningContainer]) -> None:
        """Wait for the end of the containers; pass on the pod's own end."""
        while running := [one for one in wanted if "running" in one.state]:
            self._changed.wait(self._patience())
            self._changed.clear()
            self._end_if_due()
            for one in running:
                if one.process and (code := one.process.wait(0)) is not None:
                    one.log.wait_for_end(5)
                    self._note_end(one, code)
            if len(running) > 1 and not self.lost.is_set():
                self._report()

    def _patience(self) -> float | None:
        return None if self._killed_at is None else max(0.01, self._killed_at - time.monotonic())

    def _is_ending(self) -> bool:
        return bool(self.lost.is_set() or self._evicted or self.pod["metadata"].get("deletionTimestamp"))

    def _end_if_due(self) -> None:
        """Send SIGTERM if the pod is to end, and SIGKILL after its grace."""
        if not self._is_ending() or self.lost.is_set():
            return
        if self._killed_at is None:
            metadata, spec = self.pod["metadata"], self.pod["spec"]
            grace = metadata.get("deletionGracePeriodSeconds", spec.get("terminationGracePeriodSeconds", 30))
            self._killed_at = time.monotonic() + grace
            for one in self.containers + self.init_containers:
                if one.process and one.process.running:
                    self.kubelet.record(event(self.pod, "Killing", f"Stopping container {one.name}"))
                    one.process.send(signal.SIGTERM)
        if time.monotonic() >= self._killed_at:
            self._kill_all()

    def _kill_all(self) -> None:
        for one in self.containers + self.init_containers:
            if one.process:
                with contextlib.suppress(OSError):
                    one.process.send(signal.SIGKILL)

    def _note_end(self, one: RunningContainer, code: int) -> None:
        reason = one.why or ("Completed" if code == 0 else "Error")
        ended = {"exitCode": code, "reason": reason, "finishedAt": now()}
        ended["startedAt"] = one.state["running"]["startedAt"]
        if message := self._message(one, code):
            ended["message"] = message
        one.state = {"terminated": ended}

    def _message(self, one: RunningContainer, code: int) -> str:
        data = (self.folder / f"message-{one.name}").read_bytes()[:MESSAGE_SIZE]
        if not data and code and one.spec.get("terminationMessagePolicy") == "FallbackToLogsOnError":
            data = one.log.text.encode()[-2048:]
        return data.decode(errors="replace")

    def _finish(self, phase: str) -> None:
        """The last status; then the object goes, if it has been deleted."""
        self._phase = phase
        for one in self.containers:
            if "waiting" in one.state:
                code = {
                    "exitCode": 137,
                    "reason": "ContainerStatusUnknown",
                    "message": "it was never started",
                }
                one.state = {"terminated": {**code, "startedAt": None, "finishedAt": None}}
        extra = []
        if self._evicted:
            extra.append(condition("DisruptionTarget", True, "TerminationByKubelet", self._evicted))
            self.kubelet.record(event(self.pod, "Evicted", self._evicted, warning=True))
        reason = "PodCompleted" if phase == "Succeeded" else "PodFailed"
        self._report(*_ready(False, reason), *extra)
        while True:
            if self.pod["metadata"].get("deletionTimestamp"):
                uid = self.pod["metadata"]["uid"]
                options = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
                self.kubelet.client.delete("pods", self.namespace, self.pod_name, **options)
                return
            if self._sandbox is not None:
                self.kubelet.end_sandbox(self._sandbox, self.pod)
                self._sandbox = None
            self._changed.wait()
            self._changed.clear()
            if self.lost.is_set():
                return

    def _report(self, *conditions: Object) -> None:
        if self.lost.is_set():
            return
        status: Object = {
            "phase": self._phase,
            "hostIP": "127.0.0.1",
            "startTime": self._started_at,
            "containerStatuses": [one.to_status() for one in self.containers],
            "conditions": list(conditions),
        }
        if self.init_containers:
            status["initContainerStatuses"] = [one.to_status() for one in self.init_containers]
        if self.ip and self._sandbox is not None:
            status |= {"podIP": self.ip, "podIPs": [{"ip": self.ip}]}
        if self._evicted:
            status |= {"reason": "Evicted", "message": self._evicted}
        self.kubelet.patch_status(self.pod, status)

    def _attempts(self, work: Any) -> Iterator[str]:
        """Try ``work`` until it succeeds; each problem in turn."""
        while True:
            try:
                work()
                return
            except ConfigError as error:
                yield str(error)
            self._pause()

    def _pause(self) -> None:
        if self._is_ending():
            raise _Stop
        self._changed.wait(RETRY)
        if self._is_ending() or self.kubelet.closed:
            raise _Stop

    def _record_once(self, reason: str, message: str, *, warning: bool = True) -> None:
        self.kubelet.record_once(event(self.pod, reason, message, warning=warning))

    def _command(self, one: RunningContainer) -> Command:
        image, spec = one.image, one.spec
        assert image
        env = {
            "PATH": image.path,
            "HOSTNAME": self.pod["spec"].get("hostname") or self.pod_name,
            **self.kubelet.service_variables(),
            **image.environment,
            **self.kubelet.role,
            **variables(self.kubelet.client, self.pod, spec, self.ip),
        }
        context = {**(self.pod["spec"].get("securityContext") or {}), **(spec.get("securityContext") or {})}
        uid = context.get("runAsUser", image.uid)
        if context.get("runAsNonRoot") and uid == 0:
            raise ConfigError("container has runAsNonRoot and image will run as root")
        group = context.get("fsGroup")
        user = User(uid, context.get("runAsGroup", 0), (group,) if group is not None else ())
        env.setdefault("HOME", "/root" if uid == 0 else "/")
        message = self.folder / f"message-{one.name}"
        message.write_bytes(b"")
        message.chmod(0o666)
        mounts = [
            Mount(str(self.folder / "hosts"), "/etc/hosts"),
            Mount(str(message), spec.get("terminationMessagePath", "/dev/termination-log")),
            *self.kubelet.image_mounts,
            *self._volumes.mounts(spec, env),
        ]
        command = spec.get("command") or list(image.entrypoint)
        arguments = spec.get("args") or []
        return Command(
            [expand(part, env) for part in [*command, *arguments]],
            env,
            mounts,
            spec.get("workingDir") or "/",
            user,
            context.get("readOnlyRootFilesystem", False),
            "ALL" in ((context.get("capabilities") or {}).get("drop") or ()),
            context.get("allowPrivilegeEscalation") is False,
            self.kubelet.searchable,
        )


def _ready(ready: bool, reason: str = "") -> list[Object]:
    return [condition("ContainersReady", ready, reason), condition("Ready", ready, reason)]
