"""One client for both kinds of container engine, Docker and Podman, and the differences between them.

Containers are stopped with a signal, because stopping through Podman's API kills immediately, without Docker's grace
period. They do not remove themselves, because Podman would lose their exit codes.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloudtrain._dataclass import dataclass
from cloudtrain._system.users import ROOT, group_id, user_id
from cloudtrain.engine.engine import Engine
from cloudtrain.errors import InvalidJob, PlatformError

if TYPE_CHECKING:
    import docker

SELINUX = Path("/sys/fs/selinux/enforce")
_VOLUME = re.compile(r"(?P<source>/[^:]*):(?P<target>/[^:]*)(?::(?P<mode>ro|rw))?")

_HINTS = (
    ("bind source path does not exist", "The engine must run on this machine: it mounts the job's folders."),
    ("mounts denied", "Share this machine's folders with Docker Desktop: Settings, Resources, File sharing."),
    ("could not select device driver", "Install the NVIDIA container toolkit, or leave out GPUs."),
    ("unresolvable CDI devices", "Describe the GPUs with `nvidia-ctk cdi generate`, or leave them out."),
    ("all predefined address pools", "Remove unused networks: `docker network prune`."),
    (
        "no space left",
        "Free space. `docker system df` shows the engine's use of the disk; `cloudtrain clean` removes old jobs.",
    ),
)
"""Hints for error messages of engines."""


CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID")
"""The capabilities of root that a run needs to install packages, use others' files, and start programs as another user.

Engines grant more by default: with MKNOD, a container can create devices for this machine's disks, with NET_RAW it can
forge packets on the network of other containers, and with SETFCAP and SETPCAP it can pass on privileges.
"""

SERVICES = ("AUDIT_WRITE", "NET_BIND_SERVICE", "SYS_CHROOT")
"""Further capabilities for an image's own program: SageMaker's toolkit starts an SSH server for MPI."""


@dataclass(frozen=True)
class Bind:
    """A mount of a file or folder on this machine in a container."""

    source: str
    target: str
    read_only: bool = False

    @classmethod
    def parse(cls, text: str) -> Bind:
        """An item of ``platform_options.volumes``: ``/here:/there`` or ``/here:/there:ro``. Raises InvalidJob."""
        match = _VOLUME.fullmatch(text)
        if match is None:
            raise InvalidJob(
                f"platform_options.volumes: {text!r} is not like /here:/there or /here:/there:ro",
                hint="Both paths must be absolute: the first on this machine, the second in the container.",
            )
        return cls(match["source"], match["target"], match["mode"] == "ro")


@dataclass(frozen=True)
class Spec:
    """One container. Sizes are in bytes."""

    name: str
    hostname: str
    image: str
    network: str
    entrypoint: Sequence[str] | None
    command: Sequence[str]
    environment: Mapping[str, str]
    binds: Sequence[Bind]
    labels: Mapping[str, str]
    user: str | None = None
    gpus: str | Sequence[str] | None = None
    """``"all"``, or the names of GPUs."""
    memory: int | None = None
    shm_size: int | None = None
    capabilities: Sequence[str] = CAPABILITIES
    """The Linux capabilities of root in the container."""
    new_privileges: bool = False
    """Whether programs such as ``sudo`` may gain the privileges of their owner."""


@dataclass(frozen=True)
class Ended:
    """How a container ended. The exit code is 128 + n for signal n, as in a shell."""

    exit_code: int
    out_of_memory: bool = False
    why: str = ""
    """The error that the engine reports."""


@dataclass
class EngineClient:
    """A connection to an engine of either kind. Every method may raise PlatformError."""

    engine: Engine
    api: docker.APIClient = field(repr=False)

    @classmethod
    def connect(cls, engine: Engine) -> EngineClient:
        return (Podman if engine.kind == "podman" else Docker)(engine, engine.connect())

    # -- different in Docker and Podman

    def device_requests(self, gpus: str | Sequence[str]) -> list[Any]:
        """The request for GPUs."""
        raise NotImplementedError

    def out_of_memory(self, state: Mapping[str, Any], spec: Spec) -> bool:
        """Whether the kernel killed the container because it ran out of memory."""
        raise NotImplementedError

    # -- common to both

    def user(self) -> str | None:
        """The user of the containers, so that this process can remove their files; None for the image's own user.

        Root can remove anyone's files. In a rootless engine, root in a container is this user.
        """
        if user_id() == ROOT:
            return None
        options = self._info.get("SecurityOptions") or ()
        return "0:0" if any("rootless" in option for option in options) else f"{user_id()}:{group_id()}"

    def memory(self) -> int:
        """The bytes of memory of the engine's machine, which need not be this one."""
        return int(self._info["MemTotal"])

    @cached_property
    def _info(self) -> dict[str, Any]:
        with engine_errors("the engine does not describe itself"):
            info: dict[str, Any] = self.api.info()
        return info

    def has_image(self, image: str) -> bool:
        import docker.errors

        with engine_errors(f"cannot look for image {image}"):
            try:
                self.api.inspect_image(image)
            except docker.errors.NotFound:
                return False
        return True

    def create_network(self, name: str, labels: Mapping[str, str], *, internal: bool) -> None:
        with engine_errors("the job's network cannot be created"):
            self.api.create_network(name, driver="bridge", internal=internal, labels=dict(labels))

    def create(self, spec: Spec) -> str:
        """Create a container, and return its ID. It is not started."""
        from docker.types import Mount

        mounts = [
            Mount(bind.target, bind.source, type="bind", read_only=bind.read_only) for bind in spec.binds
        ]
        host_config = self.api.create_host_config(
            mounts=mounts,
            network_mode=spec.network,
            mem_limit=spec.memory,
            memswap_limit=spec.memory,  # no swap, which would make the job too slow to be useful
            shm_size=spec.shm_size,
            device_requests=self.device_requests(spec.gpus) if spec.gpus else None,
            **confinement(spec.capabilities, new_privileges=spec.new_privileges),
        )
        aliases = self.api.create_endpoint_config(aliases=[spec.hostname])
        with engine_errors(f"the container of {spec.hostname} cannot be created"):
            created = self.api.create_container(
                spec.image,
                list(spec.command),
                name=spec.name,
                hostname=spec.hostname,
                user=spec.user,
                stdin_open=True,  # until the attached process ends: see `attach`
                entrypoint=list(spec.entrypoint) if spec.entrypoint else None,
                environment=dict(spec.environment),
                labels=dict(spec.labels),
                host_config=host_config,
                networking_config=self.api.create_networking_config({spec.network: aliases}),
            )
        return str(created["Id"])

    def attach(self, container: str) -> Iterator[bytes]:
        """The container's stdout and stderr, merged, as they are printed.

        This process holds the container's standard input open. It closes when this process ends in any way.
        """
        from docker.utils.socket import frames_iter

        wanted = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
        with engine_errors("the container's output cannot be read"):
            socket = self.api.attach_socket(container, params=wanted)
        return (data for _, data in frames_iter(socket, tty=False))

    def start(self, container: str) -> None:
        with engine_errors("the container cannot be started"):
            self.api.start(container)

    def wait(self, container: str, spec: Spec) -> Ended:
        """Wait until the container has ended."""
        with engine_errors("the container's exit code cannot be read"):
            code = int(self.api.wait(container, timeout=None)["StatusCode"])
            state = self.api.inspect_container(container)["State"] if code else {}
        return Ended(code, bool(code) and self.out_of_memory(state, spec), str(state.get("Error") or ""))

    def kill(self, container: str, number: int) -> None:
        """Send a signal. Does nothing if the container has ended."""
        with contextlib.suppress(PlatformError), engine_errors("the container cannot be signalled"):
            self.api.kill(container, number)

    def remove(self, container: str) -> None:
        """Kill and remove a container and its volumes, if it exists."""
        with _if_there(), engine_errors("the container cannot be removed"):
            self.api.remove_container(container, v=True, force=True)

    def remove_network(self, name: str) -> None:
        with _if_there(), engine_errors("the job's network cannot be removed"):
            self.api.remove_network(name)


def confinement(
    capabilities: Sequence[str] = CAPABILITIES, *, new_privileges: bool = False
) -> dict[str, Any]:
    """The arguments of ``create_host_config`` that isolate a container from its machine, for both engines."""
    # the job's folders are the user's, so they are not relabelled for SELinux
    security = ["label=disable"] if SELINUX.exists() else []
    return {
        "cap_drop": ["ALL"],
        "cap_add": list(capabilities),
        "ipc_mode": "private",
        "security_opt": security if new_privileges else [*security, "no-new-privileges"],
    }


class Docker(EngineClient):
    """A connection to Docker."""

    def device_requests(self, gpus: str | Sequence[str]) -> list[Any]:
        from docker.types import DeviceRequest

        which = {"count": -1} if isinstance(gpus, str) else {"device_ids": list(gpus)}
        return [DeviceRequest(capabilities=[["gpu"]], **which)]

    def out_of_memory(self, state: Mapping[str, Any], spec: Spec) -> bool:
        return bool(state.get("OOMKilled"))


class Podman(EngineClient):
    """A connection to Podman."""

    def create(self, spec: Spec) -> str:
        if spec.gpus:
            self._check_gpus()
        return super().create(spec)

    def _check_gpus(self) -> None:
        """Podman's API ignores requests for devices before version 5.4: https://github.com/containers/podman/pull/25171."""
        with engine_errors("the engine does not describe itself"):
            version = str(self.api.version()["Version"])
        if tuple(int(number) for number in re.findall(r"\d+", version)[:2]) < (5, 4):
            raise PlatformError(
                f"the API of Podman {version} cannot give GPUs to containers",
                hint="Use Podman 5.4 or newer, or Docker, or leave out GPUs.",
            )

    def device_requests(self, gpus: str | Sequence[str]) -> list[Any]:
        from docker.types import DeviceRequest

        names = [gpus] if isinstance(gpus, str) else gpus
        return [DeviceRequest(driver="cdi", device_ids=[f"nvidia.com/gpu={name}" for name in names])]

    def out_of_memory(self, state: Mapping[str, Any], spec: Spec) -> bool:
        """Podman does not always report it, so a container with a limit that exits with 137 counts, too."""
        return bool(state.get("OOMKilled")) or (spec.memory is not None and state.get("ExitCode") == 137)


@contextlib.contextmanager
def engine_errors(what: str) -> Iterator[None]:
    """Turn an engine's refusal into a PlatformError that begins with ``what``."""
    import docker.errors
    import requests

    try:
        yield
    except docker.errors.APIError as error:
        text = str(error.explanation or error)
        hint = next((hint for words, hint in _HINTS if words in text), "")
        problem = _Missing if isinstance(error, docker.errors.NotFound) else PlatformError
        raise problem(f"{what}: {text.strip()}", hint=hint) from error
    except (docker.errors.DockerException, requests.RequestException, OSError) as error:
        raise PlatformError(f"{what}: the container engine went away: {error}") from error


class _Missing(PlatformError):
    """The engine does not have the requested object."""


@contextlib.contextmanager
def _if_there() -> Iterator[None]:
    with contextlib.suppress(_Missing):
        yield
