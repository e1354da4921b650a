"""Hosts linked by a network, made of Linux namespaces on this machine.

A host has a name, an address, a ``/var/tmp``, and an interface ``eth0``, connected by a cable (a veth pair) to a switch
(a bridge in a separate namespace). Like many machines, it also has an unconnected ``docker0``, with the same address on
every host. A program started on a host is process 1 of a process namespace: when it ends, the kernel kills all of its
descendants, as in a container.

Names exist only inside, so networks cannot conflict. Each namespace belongs to a process that ends when its pipe from
this process is closed, even if this process is killed.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO

TOOLS = {"ip": "iproute2", "nsenter": "util-linux", "setpriv": "util-linux", "unshare": "util-linux"}
"""Required programs, and the Debian package of each."""


class NetworkError(Exception):
    """This machine cannot run hosts; the message states why."""


class _Namespaces:
    """Network, host name and mounts of one machine, held by an idle process."""

    def __init__(self, setup: str, *arguments: str) -> None:
        script = f"{setup}\necho ready\nexec cat"
        self._holder = subprocess.Popen(
            ["unshare", "--net", "--uts", "--mount", "sh", "-ec", script, "sh", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._holder.stdout is not None
        if self._holder.stdout.readline() != "ready\n":
            _, errors = self._holder.communicate()
            raise NetworkError(f"cannot create namespaces: {errors.strip()}")

    @property
    def pid(self) -> int:
        return self._holder.pid

    def command(self, command: Sequence[str]) -> list[str]:
        """``command``, wrapped to run inside."""
        return ["nsenter", f"--target={self.pid}", "--net", "--uts", "--mount", "--", *command]

    def ip(self, arguments: str) -> None:
        """Run ``ip`` inside. Raises NetworkError if it fails."""
        command = self.command(["ip", *arguments.split()])
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            raise NetworkError(f"ip {arguments}: {done.stderr.strip()}")

    def close(self) -> None:
        self._holder.communicate()


class Program:
    """A program on a host, with all of its descendants."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def wait(self, timeout: float) -> int:
        """Wait; returns the exit code like `subprocess.Popen`. Raises subprocess.TimeoutExpired."""
        return self._process.wait(timeout)

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def terminate(self) -> None:
        """Send SIGTERM to process 1, like ``docker stop``."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill all of its processes and wait for their end. Does nothing if the program has ended."""
        if self.running:
            self._signal(signal.SIGKILL)  # the kernel kills the others before process 1 counts as ended
            self._process.wait()

    @property
    def first_process(self) -> int:
        """The id, outside, of process 1; that of its parent if it does not exist yet."""
        outer = self._process.pid
        inner = Path(f"/proc/{outer}/task/{outer}/children").read_text().split()
        return int(inner[0]) if inner else outer

    def _signal(self, number: int) -> None:
        os.kill(self.first_process, number)


class Machine:
    """One host of the network."""

    def __init__(self, name: str, namespaces: _Namespaces, switch: _Namespaces, port: str) -> None:
        self.name = name
        self._namespaces = namespaces
        self._switch = switch
        self._port = port

    def start(
        self, command: Sequence[str], *, cwd: Path, env: Mapping[str, str], output: IO[bytes]
    ) -> Program:
        """Start ``command`` as process 1."""
        first = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--", *command]
        inside = self._namespaces.command(["env", f"--chdir={cwd}", *first])
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig=KILL", *inside],  # dies with this process
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        return Program(process)

    def command(self, command: Sequence[str]) -> list[str]:
        """``command``, wrapped to run on this machine without its own process namespace."""
        return self._namespaces.command(command)

    def hide(self, folder: Path) -> None:
        """Put an empty folder in place of ``folder``, for the programs that start later."""
        command = self.command(["mount", "-t", "tmpfs", "none", str(folder)])
        subprocess.run(command, check=True)

    def unplug(self) -> None:
        """Pull the cable: packets are lost without any error."""
        self._switch.ip(f"link set {self._port} down")

    def plug(self) -> None:
        self._switch.ip(f"link set {self._port} up")


class Network:
    """The machines ``n1``, ``n2``, ..., or with another prefix. Use it as a context manager.

    Raises:
        NetworkError: a tool is missing, or namespaces are not permitted (they require root).
    """

    def __init__(self, count: int, folder: Path, name: str = "n", subnet: str = "10.77.0.{}/24") -> None:
        """``folder`` holds the files that differ between the machines and this one. ``subnet`` may be of IPv6."""
        self._subnet = subnet
        self._count = count
        self._folder = folder
        self._name = name
        self._stack = ExitStack()
        self.machines: list[Machine] = []

    def __enter__(self) -> Network:
        missing = [f"{tool} (Debian: {package})" for tool, package in TOOLS.items() if not shutil.which(tool)]
        if missing:
            raise NetworkError(f"not installed: {', '.join(missing)}")
        numbers = range(1, self._count + 1)
        lines = ["127.0.0.1 localhost"]
        lines += [f"{self._subnet.format(n).partition('/')[0]} {self._name}{n}" for n in numbers]
        (self._folder / "hosts").write_text("\n".join(lines) + "\n")
        with self._stack:  # closes everything if a part cannot be created
            switch = self._namespaces("ip link add br0 type bridge; ip link set br0 up")
            self.machines = [self._machine(number, switch) for number in numbers]
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _machine(self, number: int, switch: _Namespaces) -> Machine:
        name = f"{self._name}{number}"
        temporary = self._folder / f"tmp-{name}"
        temporary.mkdir()
        host = self._namespaces(
            'hostname "$1"; mount --bind "$2" /etc/hosts; mount --bind "$3" /var/tmp; ip link set lo up; '
            "ip link add docker0 type bridge; ip address add 172.17.0.1/16 dev docker0; ip link set docker0 up",
            *(name, str(self._folder / "hosts"), str(temporary)),
        )
        port = f"port{number}"
        switch.ip(f"link add {port} type veth peer name eth0 netns {host.pid}")
        switch.ip(f"link set {port} master br0 up")
        options = (
            " nodad" if ":" in self._subnet else ""
        )  # IPv6: no wait for another machine with this address
        host.ip(f"address add {self._subnet.format(number)} dev eth0{options}")
        host.ip("link set eth0 up")
        return Machine(name, host, switch, port)

    def _namespaces(self, setup: str, *arguments: str) -> _Namespaces:
        namespaces = _Namespaces(setup, *arguments)
        self._stack.callback(namespaces.close)
        return namespaces
