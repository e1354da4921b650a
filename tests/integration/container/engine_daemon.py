"""A real Docker or Podman for tests, on a simulated host.

It is isolated from the networks and the firewall of this machine and from other engines. When it ends, or the tests
end for any reason, the kernel ends all of its containers. Its only image is almost empty: the container runtime mounts
this machine's programs and this Python into each container, read-only.
"""

from __future__ import annotations

import io
import shutil
import sys
import tarfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import docker
from docker.errors import DockerException
from host_network import Machine, Network, NetworkError, Program

IMAGE = "cloudtrain-test:latest"

USER = "trainer"
"""The image's user without root privileges."""

START_SECONDS = 60.0
STOP_SECONDS = 20.0
PROGRAMS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

MOUNTED = ["/usr", *sorted({p for p in (sys.base_prefix, sys.prefix) if not p.startswith("/usr/")})]
"""Folders of this machine that every container sees."""

_LINKS = ("bin", "lib", "lib32", "lib64", "libx32", "sbin")
_ETC = ("alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "nsswitch.conf", "openmpi", "ssl")
_ACCOUNTS = {
    "etc/passwd": f"root:x:0:0:root:/root:/bin/sh\n{USER}:x:1000:1000::/home/{USER}:/bin/sh\n",
    "etc/group": f"root:x:0:\n{USER}:x:1000:\n",
}

# wraps runc: adds mounts to the configuration of the bundle before it creates the container
_RUNTIME = """#!/bin/sh
previous=
for argument do
    [ "$previous" != --bundle ] || bundle=$argument
    previous=$argument
done
case " $* " in *" create "*) sed -i 's|"mounts": *\\[|&{mounts},|' "$bundle/config.json" ;; esac
exec {runc} "$@"
"""

_MOUNT = '{{"destination":"{path}","type":"bind","source":"{path}","options":["rbind","ro"]}}'

_CONTAINERS_CONF = """
[containers]
base_hosts_file = "none"
default_ulimits = []
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "mounting"
[engine.runtimes]
mounting = ["{runtime}"]
[network]
network_backend = "netavark"
network_config_dir = "{folder}/networks"
"""


class EngineError(Exception):
    """An engine cannot run on this machine; the message says why."""


@dataclass(frozen=True)
class Engine:
    """A running engine that has the image `IMAGE`."""

    name: str
    url: str
    """In the format of ``DOCKER_HOST``."""

    def leftovers(self) -> list[str]:
        """The names of all containers, networks and volumes, except the engine's own networks."""
        with closing(docker.DockerClient(base_url=self.url)) as client:
            networks = [network.name for network in client.networks.list()]
            return [
                *(container.name for container in client.containers.list(all=True)),
                *(name for name in networks if name not in ("bridge", "host", "none", "podman")),
                *(volume.name for volume in client.volumes.list()),
            ]


@contextmanager
def docker_engine(
    folder: Path, mounted: Sequence[str] = MOUNTED, *, before: Sequence[str] = ()
) -> Iterator[Engine]:
    """Run dockerd with all of its data in ``folder``. Raises EngineError.

    ``mounted`` are the folders of this machine that every container sees, ``before`` is what starts the engine, and so
    its containers, such as ``strace``.
    """
    command = [
        *before,
        _find("dockerd", "docker.io"),
        f"--data-root={folder}/data",
        f"--host=unix://{folder}/socket",
        "--bridge=none",  # each job creates its own network
        f"--add-runtime=mounting={_write_runtime(folder, mounted)}",
        "--default-runtime=mounting",
    ]
    with _running("docker", command, folder) as engine:
        yield engine


@contextmanager
def podman_engine(folder: Path) -> Iterator[Engine]:
    """Run Podman's service with all of its data in ``folder``. Raises EngineError."""
    conf = folder / "containers.conf"
    conf.write_text(_CONTAINERS_CONF.format(folder=folder, runtime=_write_runtime(folder, MOUNTED)))
    command = [
        *("env", f"CONTAINERS_CONF={conf}", _find("podman", "podman")),
        *(f"--root={folder}/data", "system", "service", "--time=0", f"unix://{folder}/socket"),
    ]
    with _running("podman", command, folder) as engine:
        yield engine


@contextmanager
def _running(name: str, command: list[str], folder: Path) -> Iterator[Engine]:
    with ExitStack() as stack:
        try:
            network = stack.enter_context(Network(1, folder, "engine"))
        except NetworkError as error:
            raise EngineError(str(error)) from error
        program = _start(network.machines[0], command, folder)
        stack.callback(program.kill)
        engine = Engine(name, f"unix://{folder}/socket")
        with closing(_connect(engine, program, folder / "log")) as client:
            path = f"ENV PATH={Path(sys.executable).parent}:/usr/bin:/bin"
            client.api.import_image_from_data(_image(), *IMAGE.split(":"), changes=[path])
        yield engine
        program.terminate()
        program.wait(STOP_SECONDS)


def _start(machine: Machine, command: list[str], folder: Path) -> Program:
    alone = [
        "sh",
        "-ec",
        'mount -t tmpfs none /run; exec "$@"',
        "sh",
    ]  # engines could also interfere through files in /run
    with open(folder / "log", "wb") as output:
        environment = {"PATH": PROGRAMS, "HOME": str(folder)}
        return machine.start([*alone, *command], cwd=folder, env=environment, output=output)


def _connect(engine: Engine, program: Program, log: Path) -> docker.DockerClient:
    """A client, as soon as the engine answers."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            return docker.DockerClient(base_url=engine.url)
        except DockerException as error:
            if not program.running or time.monotonic() > deadline:
                raise EngineError(f"the engine does not start: {error}\n{log.read_text()}") from error
            time.sleep(0.05)


def _find(program: str, package: str) -> str:
    path = shutil.which(program, path=PROGRAMS)
    if path is None:
        raise EngineError(f"there is no {program} (Debian: {package})")
    return path


def _write_runtime(folder: Path, mounted: Sequence[str]) -> Path:
    path = folder / "runc"
    mounts = ",".join(_MOUNT.format(path=path) for path in mounted)
    path.write_text(_RUNTIME.replace("{mounts}", mounts).replace("{runc}", _find("runc", "runc")))
    path.chmod(0o755)
    return path


def _image() -> bytes:
    """A tar archive of the files that containers need in addition to `MOUNTED`."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, mode in _folders():
            member = tarfile.TarInfo(name)
            member.type, member.mode = tarfile.DIRTYPE, mode
            tar.addfile(member)
        for name in _LINKS:
            if Path("/", name).is_symlink():
                member = tarfile.TarInfo(name)
                member.type, member.linkname = tarfile.SYMTYPE, f"usr/{name}"
                tar.addfile(member)
        for name in _ETC:
            if Path("/etc", name).exists():
                tar.add(f"/etc/{name}", f"etc/{name}")
        for name, text in _ACCOUNTS.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    return buffer.getvalue()


def _folders() -> Iterator[tuple[str, int]]:
    """Names and modes."""
    for name in ("dev", "etc", "home", "opt", "proc", "root", "run", "sys", "usr", "var", "var/lib"):
        yield name, 0o755
    for name in ("tmp", "var/tmp"):
        yield name, 0o1777
