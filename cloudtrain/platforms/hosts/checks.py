"""Checks of the hosts of a job, before it is submitted."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cloudtrain.contract.request_body import request_settings
from cloudtrain.platforms.checks import MISSING_MODULES, Check, CheckStatus, Finding
from cloudtrain.platforms.hosts.probe import Answers, Question, ask
from cloudtrain.platforms.hosts.question import question_of, with_token
from cloudtrain.platforms.hosts.transfer import check_size


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
