"""Queries whether a host that was lost can rejoin its job, without waiting for the answer."""

from __future__ import annotations

import threading
from dataclasses import replace

from cloudtrain.errors import PlatformError
from cloudtrain.platforms.hosts.connection import Connection
from cloudtrain.platforms.hosts.host_list import NamedHost
from cloudtrain.platforms.hosts.probe import Answers, Question, hear, with_token


class ReturningHost:
    """One question to ``host``, in a thread."""

    def __init__(self, host: NamedHost, question: Question) -> None:
        self._question = replace(question, hosts=[host])
        self._connection = Connection(host, question.ssh, question.python)
        self._found = Answers()
        self._takes_part = False
        self._thread = threading.Thread(target=self._ask, name="returning-host", daemon=True)
        self._thread.start()

    @property
    def has_answered(self) -> bool:
        return not self._thread.is_alive()

    def join(self, found: Answers) -> bool:
        """Add the host's answer to those of the others. Returns whether it can take part."""
        if not self._takes_part:
            self.close()
            return False
        name = self._connection.host.name
        found.problems.pop(name, None)
        found.connections[name] = self._connection
        found.facts[name], found.skews[name] = self._found.facts[name], self._found.skews[name]
        return True

    def close(self) -> None:
        self._connection.close()

    def _ask(self) -> None:
        try:
            with with_token(self._question) as asked:
                self._connection.open(asked.inquiry)
                self._takes_part = hear(self._connection, asked, self._found) is None
        except PlatformError:  # the shared folder cannot be written
            return
