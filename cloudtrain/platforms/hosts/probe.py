"""Queries all hosts of a job for facts in parallel, when the job starts, and in checks before that."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from cloudtrain._system.gpu_models import gpu_models
from cloudtrain._system.interfaces import own_addresses, resolve
from cloudtrain._system.owned import FolderIsOpen, own_place
from cloudtrain.contract.request_body import request_settings
from cloudtrain.errors import PlatformError
from cloudtrain.platforms.checks import MISSING_MODULES, Check, Finding, Once, failed, ok, warning
from cloudtrain.platforms.hosts.connection import Connection, HostDisconnected, Problem
from cloudtrain.platforms.hosts.host_list import NamedHost, parse_hosts
from cloudtrain.platforms.hosts.transfer import check_size, local_paths
from cloudtrain.runtime.start.messages import Facts, Inquiry, Refused

FACTS_SECONDS = 60.0
"""How long a connected host may take to answer, because its file system may hang."""
LITTLE_SPACE = 200 << 20
"""The free bytes that a host must have."""
LARGE_SKEW = 5.0
"""The difference between two clocks, in seconds, above which to warn."""
USE_ADDRESSES = "Use addresses instead of names, or make the names known on every host."


@dataclass(frozen=True)
class Question:
    """A job's question to its hosts."""

    hosts: Sequence[NamedHost]
    ssh: Sequence[str]
    python: str
    inquiry: Inquiry = field(default_factory=Inquiry)
    token: str = ""
    """The content of the file in the shared folder."""
    spares: Sequence[str] = ()
    """The hosts that need not answer."""

    @property
    def remote(self) -> list[NamedHost]:
        return [host for host in self.hosts if not host.is_this_machine]


@dataclass
class Answers:
    """The connections that answered, the answers, and the problems of the other hosts, by name."""

    connections: dict[str, Connection] = field(default_factory=dict)
    facts: dict[str, Facts] = field(default_factory=dict)
    skews: dict[str, float] = field(default_factory=dict)
    """How many seconds the clock of a host is ahead of this machine's."""
    problems: dict[str, Problem] = field(default_factory=dict)
    address: str = ""
    """The address at which all hosts reach the leader; empty for a single host."""

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
    """Connect to every host that is not this machine. Those that answer stay connected until the caller closes them."""
    found = Answers()
    connections = [Connection(host, question.ssh, question.python) for host in question.remote]
    for connection in connections:
        connection.open(question.inquiry)
        found.connections[connection.host.name] = connection
    if connections:
        with ThreadPoolExecutor(len(connections)) as pool:
            answers = list(pool.map(lambda connection: hear(connection, question, found), connections))
        found.problems = {
            connection.host.name: problem
            for connection, problem in zip(connections, answers, strict=True)
            if problem
        }
        order = [connection.host.name for connection in connections]  # not the one in which they answered
        found.facts = {name: found.facts[name] for name in order if name in found.facts}
        found.skews = {name: found.skews[name] for name in found.facts}
    wants_leader = len(question.hosts) > 1 and not question.inquiry.gpus
    while wants_leader and not found.problems.keys() - {*question.spares}:
        answered = [host for host in question.hosts if host.name not in found.problems]
        problem = _find_leader(replace(question, hosts=answered), found)
        if problem is None:
            break
        found.problems.update([problem])
    return found


def hear(connection: Connection, question: Question, found: Answers) -> Problem | None:
    """Wait for the answer of one host, in a thread. Returns its problem if it cannot take part."""
    name = connection.host.name
    try:
        answer = connection.receive(FACTS_SECONDS)
    except HostDisconnected:
        return connection.problem()
    if isinstance(answer, Refused):
        return Problem(f"{name}: {answer.message}")
    if not isinstance(answer, Facts):
        return Problem(f"{name} does not answer as it should")
    connection.limit_silence(question.inquiry.timeout)
    found.skews[name] = answer.time - time.time()
    found.facts[name] = answer
    return _judge(name, answer, question)


def _judge(name: str, facts: Facts, question: Question) -> Problem | None:
    home = facts.home
    if facts.unwritable:
        return Problem(
            f"{name}: the folder {home} cannot be written: {facts.unwritable}",
            "Set CLOUDTRAIN_HOME there to a folder that can, for example in ~/.ssh/environment or ~/.bashrc.",
        )
    if facts.free < LITTLE_SPACE:
        return Problem(
            f"{name}: the disk is full: {facts.free / 1e6:.0f} MB are free for {question.inquiry.folder or home}",
            f"Free space on {name}.",
        )
    if question.inquiry.folder and facts.token != question.token:
        return Problem(
            f"{name} does not see the folder of this machine at {question.inquiry.folder}",
            "platform_options.folder has to be one folder that all hosts mount at the same path. Leave it out to send "
            "files through ssh.",
        )
    return None


def _find_leader(question: Question, found: Answers) -> tuple[str, Problem] | None:
    """Set the address of the leader, as the other hosts resolve its name. Returns a host that cannot reach it."""
    leader = question.hosts[0]
    here = leader.is_this_machine
    own = own_addresses() if here else found.facts[leader.name].addresses
    common: list[str] | None = None
    for host in question.hosts[1:]:
        facts = found.facts.get(host.name)
        seen = facts.leader if facts else resolve(leader.name)
        if here and facts and not set(seen) & set(own):
            seen = [facts.client]  # this machine's address, as the host sees it
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


def question_of(body: Mapping[str, Any], modules: Sequence[str] = ()) -> Question:
    """The question of the job with the request ``body``.

    Args:
        modules: those that the script imports.
    """
    settings, hosts = request_settings(body), parse_hosts(body["hosts"])
    inquiry = Inquiry(
        leader="" if hosts[0].name == "localhost" else hosts[0].name,
        folder=body.get("folder", ""),
        paths=local_paths(settings),
        modules=list(modules),
        timeout=max(float(settings.host_timeout), 15.0),
    )
    return Question(hosts, body.get("ssh", ["ssh"]), body["remote_python"], inquiry)


@contextlib.contextmanager
def with_token(question: Question) -> Iterator[Question]:
    """``question`` with a new file in the shared folder, if the job has one: hosts that see it share the folder.

    Raises PlatformError if this machine cannot write there, or another user could replace what it writes.
    """
    if not question.inquiry.folder:
        yield question
        return
    with safe_folder():
        own_place(question.inquiry.folder)
    token = os.urandom(16).hex()
    path = Path(question.inquiry.folder, f".cloudtrain-{token[:8]}")
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), "w") as file:
            file.write(token)
    except OSError as error:
        raise PlatformError(
            f"platform_options.folder: {question.inquiry.folder} cannot be written: {error.strerror}",
            hint="Name a folder that exists on this machine and on all hosts.",
        ) from None
    try:
        yield replace(question, inquiry=replace(question.inquiry, token_file=path.name), token=token)
    finally:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def safe_folder() -> Iterator[None]:
    """Report a shared folder, or one in it, that another user could replace. Raises PlatformError."""
    try:
        yield
    except FolderIsOpen as error:
        raise PlatformError(
            f"platform_options.folder: {error}; they could run code as you", hint=error.hint
        ) from None
    except OSError as error:
        raise PlatformError(
            f"platform_options.folder: {error.filename} cannot be used: {error.strerror}",
            hint="Name a folder that exists on this machine and on all hosts.",
        ) from None


def find_gpus(body: Mapping[str, Any]) -> tuple[dict[str, list[str]], list[Problem]]:
    """The models of the GPUs of each host that answers, and the problems of the others. Writes nothing on the hosts."""
    question = question_of({**body, "folder": ""})
    found = ask(replace(question, inquiry=Inquiry(gpus=True)))
    found.close()
    here = {host.name: gpu_models() for host in question.hosts if host.is_this_machine}
    answers = {name: facts.gpus for name, facts in found.facts.items()}
    return {**here, **answers}, [one for name, one in found.problems.items() if name not in answers]


def check_hosts(body: Mapping[str, Any]) -> None:
    """Query all hosts of a request. Raises PlatformError, with a sentence for each host that cannot take part."""
    question = question_of(body)
    found = _answers(question)
    found.check()
    settings = request_settings(body)
    for name, facts in found.facts.items():
        check_size(settings, facts, name, question.inquiry.folder)


def remote_checks(body: Mapping[str, Any], imports: Sequence[str]) -> dict[str, Check]:
    """A check for every host of a request except this machine. All of them share one query."""
    question = question_of(body, imports)
    answers = Once(partial(_answers, question))
    return {f"host {host.name}": partial(_check, host.name, answers) for host in question.remote}


def _answers(question: Question) -> Answers:
    with with_token(question) as asked:
        found = ask(asked)
    found.close()
    return found


def _check(name: str, answers: Once[Answers]) -> Finding:
    found = answers()
    if problem := found.problems.get(name):
        return failed(problem.what, problem.hint)
    facts = found.facts[name]
    version = ".".join(map(str, facts.python))
    what = f"{facts.executable} is Python {version}; {facts.free / 1e9:.1f} GB free for {facts.home}"
    for problem in found.warnings():
        if f" {name} " in problem.what:
            return warning(f"{what}; {problem.what}", problem.hint)
    if facts.missing:
        missing = f"{name} and requirements.txt do not have {', '.join(facts.missing)}"
        return warning(f"{what}; {missing}", MISSING_MODULES)
    return ok(what)
