"""The question that a job asks its hosts, and the checks before it is submitted."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cloudtrain._system.owned import FolderIsOpen, own_place
from cloudtrain.contract.request_body import request_settings
from cloudtrain.errors import PlatformError
from cloudtrain.platforms.checks import MISSING_MODULES, Check, CheckStatus, Finding
from cloudtrain.platforms.hosts.host_list import parse_hosts
from cloudtrain.platforms.hosts.probe import Answers, Question, ask
from cloudtrain.platforms.hosts.transfer import check_size, local_paths


def question_of(body: Mapping[str, Any], modules: Sequence[str] = ()) -> Question:
    """The question of the job with the request ``body``.

    Args:
        modules: those that the script imports.
    """
    settings = request_settings(body)
    return Question(
        parse_hosts(body["hosts"]),
        body.get("ssh", ["ssh"]),
        body["remote_python"],
        folder=body.get("folder", ""),
        paths=local_paths(settings),
        modules=modules,
        timeout=max(settings.host_timeout, 15.0),
    )


@contextlib.contextmanager
def with_token(question: Question) -> Iterator[Question]:
    """``question`` with a new file in the shared folder, if the job has one: hosts that see it see the same folder.

    Raises PlatformError if this machine cannot write there, or another user could replace what it writes.
    """
    if not question.folder:
        yield question
        return
    with safe_folder():
        own_place(question.folder)
    token = os.urandom(16).hex()
    path = Path(question.folder, f".cloudtrain-{token[:8]}")
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), "w") as file:
            file.write(token)
    except OSError as error:
        raise PlatformError(
            f"platform_options.folder: {question.folder} cannot be written: {error.strerror}",
            hint="Name a folder that exists on this machine and on all hosts.",
        ) from None
    try:
        yield replace(question, token_file=path.name, token=token)
    finally:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def safe_folder() -> Iterator[None]:
    """Report a folder of the shared one that another user could replace. Raises PlatformError."""
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


def check_hosts(body: Mapping[str, Any]) -> None:
    """Ask all hosts of a request. Raises PlatformError if one cannot take part; the message has a sentence for each."""
    with with_token(question_of(body)) as question:
        found = ask(question)
    found.close()
    found.check()
    settings = request_settings(body)
    for name, hello in found.hellos.items():
        check_size(settings, hello, name, question.folder)


class HostChecks:
    """The checks of hosts that are not this machine: one for each, and they all ask at the same time."""

    def __init__(self, question: Question) -> None:
        self._question = question
        self._lock = threading.Lock()
        self._found: Answers | None = None

    def checks(self) -> Iterator[tuple[str, Check]]:
        for host in self._question.remote:
            yield f"host {host.name}", lambda name=host.name: self._check(name)  # type: ignore[misc]

    def _check(self, name: str) -> Finding:
        found = self._answers()
        if problem := found.problems.get(name):
            return Finding(CheckStatus.FAILED, problem.what, problem.hint)
        hello = found.hellos[name]
        version = ".".join(map(str, hello["python"]))
        what = f"{hello['executable']} is Python {version}; {hello['free'] / 1e9:.1f} GB free for {hello['home']}"
        for problem in found.warnings():
            if f" {name} " in problem.what:
                return Finding(CheckStatus.WARNING, f"{what}; {problem.what}", problem.hint)
        if hello["missing"]:
            missing = f"{name} and requirements.txt do not have {', '.join(hello['missing'])}"
            return Finding(CheckStatus.WARNING, f"{what}; {missing}", MISSING_MODULES)
        return Finding(CheckStatus.OK, what)

    def _answers(self) -> Answers:
        with self._lock:
            if self._found is None:
                with with_token(self._question) as question:
                    self._found = ask(question)
                self._found.close()
            return self._found


def remote_checks(body: Mapping[str, Any], imports: Sequence[str]) -> dict[str, Check]:
    """A check for every host of a request that is not this machine."""
    return dict(HostChecks(question_of(body, imports)).checks())
