"""Asks all hosts of a job about themselves, at the same time, and says which cannot take part."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from cloudtrain.errors import PlatformError
from cloudtrain.platforms.hosts.connection import CONNECT_SECONDS, Connection, HostDisconnected, Problem
from cloudtrain.platforms.hosts.host_list import NamedHost
from cloudtrain.runtime.routes import own_addresses, resolve
from cloudtrain.runtime.start.remote_start import ERROR, HELLO, fingerprint

ANSWER_SECONDS = CONNECT_SECONDS + 10
"""How long a host may take to connect, and be silent."""
HELLO_SECONDS = 60.0
"""How long a host that is not silent may take to answer: its file system may hang."""
DESCRIBED = {"addresses", "client", "fingerprints", "has_runtime", "leader", "missing"}
"""The parts of an answer that a job reads later."""
LITTLE_SPACE = 200 << 20
"""Free bytes that a host needs at least."""
LARGE_SKEW = 5.0
"""Seconds between two clocks that are worth a warning."""
USE_ADDRESSES = "Use addresses instead of names, or make the names known on every host."


@dataclass(frozen=True)
class Question:
    """A job's question to its hosts."""

    hosts: Sequence[NamedHost]
    ssh: Sequence[str]
    python: str
    runtime: str = ""
    """The SHA-256 of the bundled runtime."""
    folder: str = ""
    """The shared folder, in which ``token_file`` has ``token``."""
    token_file: str = ""
    token: str = ""
    paths: Sequence[str] = ()
    """Files and folders of this machine that hosts may see at the same place."""
    modules: Sequence[str] = ()
    """Modules that the script imports."""
    timeout: float = 30.0
    """The seconds of silence after which a host ends what it runs."""

    @property
    def remote(self) -> list[NamedHost]:
        return [host for host in self.hosts if not host.is_this_machine]

    def text(self) -> bytes:
        leader = self.hosts[0]
        asked = {
            "leader": "" if leader.name == "localhost" else leader.name,
            "runtime": self.runtime,
            "folder": self.folder,
            "token_file": self.token_file,
            "paths": list(self.paths),
            "modules": list(self.modules),
            "timeout": self.timeout,
        }
        return json.dumps(asked).encode()


@dataclass
class Answers:
    """The connections that answered, what the hosts said, and the problems of the others, by name."""

    connections: dict[str, Connection] = field(default_factory=dict)
    hellos: dict[str, dict[str, Any]] = field(default_factory=dict)
    skews: dict[str, float] = field(default_factory=dict)
    """How many seconds the clock of a host is ahead of this machine's."""
    problems: dict[str, Problem] = field(default_factory=dict)
    address: str = ""
    """The leader's address, by which all hosts reach it; empty for a single host."""

    def close(self) -> None:
        for connection in self.connections.values():
            connection.close()

    def check(self) -> None:
        """Raises PlatformError with a sentence about every host that cannot take part."""
        if self.problems:
            found = list(self.problems.values())
            raise PlatformError("; ".join(problem.what for problem in found), hint=found[0].hint)

    def warnings(self) -> Iterator[Problem]:
        for name, skew in self.skews.items():
            if abs(skew) > LARGE_SKEW:
                way = "ahead of" if skew > 0 else "behind"
                yield Problem(
                    f"the clock of {name} is {abs(skew):.0f} s {way} this machine's",
                    "Let all machines get their time from one server (NTP): logs and S3 need it.",
                )


def ask(question: Question) -> Answers:
    """Connect to every host that is not this machine. Those with an answer stay connected: close them."""
    found = Answers()
    asked = question.text()
    connections = [Connection(host, question.ssh, question.python) for host in question.remote]
    for connection in connections:
        connection.open(asked)
        found.connections[connection.host.name] = connection
    if connections:
        with ThreadPoolExecutor(len(connections)) as pool:
            answers = list(pool.map(lambda connection: _hear(connection, question, found), connections))
        found.problems = {
            connection.host.name: problem
            for connection, problem in zip(connections, answers, strict=True)
            if problem
        }
    if not found.problems and len(question.hosts) > 1:
        problem = _find_leader(question, found)
        if problem:
            found.problems.update([problem])
    return found


def _hear(connection: Connection, question: Question, found: Answers) -> Problem | None:
    """Wait for the answer of one host, in a thread. Returns why it cannot take part."""
    name = connection.host.name
    try:
        kind, content = connection.receive(ANSWER_SECONDS, HELLO_SECONDS)
        heard = time.time()
        if kind != HELLO:
            what = content.decode("utf-8", "replace") if kind == ERROR else "it does not answer as it should"
            return Problem(f"{name}: {what}")
        hello = json.loads(content)
        if not hello.keys() >= DESCRIBED:
            raise ValueError("the answer is incomplete")
        found.skews[name] = hello["time"] - heard
        found.hellos[name] = hello
        return _judge(name, hello, question)
    except HostDisconnected:
        return connection.problem()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return Problem(f"{name} does not answer as it should")


def _judge(name: str, hello: Mapping[str, Any], question: Question) -> Problem | None:
    home = hello["home"]
    if hello["unwritable"]:
        return Problem(
            f"{name}: the folder {home} cannot be written: {hello['unwritable']}",
            "Set CLOUDTRAIN_HOME there to a folder that can, for example in ~/.ssh/environment or ~/.bashrc.",
        )
    if hello["free"] < LITTLE_SPACE:
        return Problem(
            f"{name}: the disk is full: {hello['free'] / 1e6:.0f} MB are free for {question.folder or home}",
            f"Free space on {name}.",
        )
    if question.folder and hello["token"] != question.token:
        return Problem(
            f"{name} does not see the folder of this machine at {question.folder}",
            "platform_options.folder has to be one folder that all hosts mount at the same path. Leave it out to send "
            "files through ssh.",
        )
    return None


def _find_leader(question: Question, found: Answers) -> tuple[str, Problem] | None:
    """Set the address of the leader, as the other hosts resolve its name. Returns the host with a problem."""
    leader = question.hosts[0]
    here = leader.is_this_machine
    own = own_addresses() if here else found.hellos[leader.name]["addresses"]
    common: list[str] | None = None
    for host in question.hosts[1:]:
        hello = found.hellos.get(host.name)
        seen = hello["leader"] if hello else resolve(leader.name)
        if here and hello and not set(seen) & set(own):
            seen = [hello["client"]]  # this machine's address, as the host sees it
        if not seen:
            return host.name, Problem(
                f"{host.name} cannot resolve the name {leader.name}, the first host of the list, which all others "
                "connect to",
                USE_ADDRESSES,
            )
        usable = [address for address in seen if address in own]
        if not usable:
            return host.name, Problem(
                f"{host.name} takes {leader.name} for {seen[0]}, but {leader.name} itself has "
                f"{', '.join(own[:4]) or 'no address'}",
                USE_ADDRESSES,
            )
        common = [address for address in usable if common is None or address in common]
        if not common:
            return host.name, Problem(
                f"{host.name} reaches {leader.name} only at {usable[0]}, which the other hosts do not use",
                USE_ADDRESSES,
            )
    found.address = common[0] if common else ""
    return None


def sees(hello: Mapping[str, Any], path: str) -> bool:
    """Whether a host sees the same file or folder at ``path`` as this machine."""
    there = hello["fingerprints"].get(path)
    return bool(there) and there == fingerprint(path)
