"""A scheduler as data: its directives, its commands, and how their answers are read."""

from __future__ import annotations

import math
import os
import re
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from cloudtrain._dataclass import dataclass
from cloudtrain.contract import FailureReport
from cloudtrain.errors import InvalidJob, PlatformError
from cloudtrain.platforms.batch.queue import (
    CALL_SECONDS,
    MOST_ABSENCES,
    SharedQueue,
    Snapshot,
    Standing,
    queue_file,
)
from cloudtrain.platforms.batch.shell import Answer, Shell
from cloudtrain.spec import TrainingJob

WAITING, RUNNING, ENDED = "waiting", "running", "ended"
POLL_SECONDS = 5.0
"""How long an answer about the queue is used."""
END_SECONDS = 120
"""How long the end of a job may take after its grace: the last uploads, and the end of all processes."""
NO_COMMAND = 127
"""The exit code of a shell that does not find a command: its ``not found`` does not refer to a job."""
SCHEDULER_LOG = "scheduler.log"
"""The file for the output of a job's scheduler, which writes it when the job has ended.

Its path is relative to the job's folder, from which the job is submitted, because schedulers expand variables in paths.
"""


@dataclass(frozen=True)
class QueueEntry:
    """A job as the scheduler shows it.

    Attributes:
        state: `WAITING`, `RUNNING` or `ENDED`.
        why: the reason for this state, as a sentence without a full stop; empty if there is none.
        exit_status: the exit status that the scheduler recorded; None if there is none.
        owner: the user, without the host; empty if only jobs of this user are shown.
        folder: the folder of its output, from which it was submitted.
        submitted: when it was submitted, in seconds since the epoch.
    """

    state: str
    why: str = ""
    exit_status: int | None = None
    name: str = ""
    owner: str = ""
    folder: str = ""
    submitted: float | None = None

    @property
    def is_ended(self) -> bool:
        return self.state == ENDED


@dataclass(frozen=True)
class Scheduler:
    """A scheduler with a shared folder, as data.

    Attributes:
        platform: its name in a job's ``platform``.
        product: its name, for messages.
        prefix: the start of a directive, such as ``#PBS``.
        directives: the lines of a job, from its options; those of ``platform_options.directives`` follow.
        flag: matches a flag at the beginning of a directive; one of its groups is the name.
        own: the flags that cloudtrain sets itself, with what to do instead.
        program: the command that submits.
        submit: the command line that submits the script in the current folder.
        by_hand: that command line, as a user types it.
        asks: the command that lists jobs, for messages.
        query: the command line that lists the jobs of ``$user``; it may list others too.
        parse: parses its output. Raises ValueError if that is truncated or malformed.
        one: the command line for one job, without its number; empty if it answers an unknown job like an error.
        history: the command line that shows an ended job, without its number; empty if the scheduler keeps none.
        parse_history: parses the output of ``history``, if ``parse`` cannot.
        delete: the command that takes a job out of the queue, or ends it.
        queues: the command that shows the queues, for users.
        explain: why the scheduler ended a job, from its record; None if it did not.
        unknown: matches an answer for a job that has left the queue.
        no_jobs: the exit codes of an answer without a job.
        appears_seconds: how long after its submission a job may be missing from an answer.
        short_name: turns a job's name into one that the scheduler accepts.
        title_last: see `Script`.
        variables: the environment variables that choose a server.
    """

    platform: str
    product: str
    prefix: str
    directives: Callable[[TrainingJob, Any], Iterator[str]]
    flag: re.Pattern[str]
    own: Mapping[str, str]
    program: str
    submit: str
    by_hand: str
    asks: str
    query: str
    parse: Callable[[str], Mapping[str, QueueEntry]]
    delete: str
    queues: str
    explain: Callable[[QueueEntry], FailureReport | None]
    unknown: re.Pattern[str]
    no_jobs: tuple[int, ...]
    one: str = ""
    history: str = ""
    parse_history: Callable[[str], Mapping[str, QueueEntry]] | None = None
    appears_seconds: float = 0.0
    short_name: Callable[[str], str] = str
    title_last: bool = False
    variables: tuple[str, ...] = ()

    def lines(self, job: TrainingJob, options: Any) -> list[str]:
        """All directives, in order. Raises InvalidJob for a line that cloudtrain writes itself."""
        found = [*self.directives(job, options), *map(self._raw, options.directives)]
        return [f"{self.prefix} {line}" for line in found]

    def _raw(self, line: str) -> str:
        text = line.removeprefix(self.prefix).strip()
        flag = self.flag.match(text)
        if not flag:
            raise InvalidJob(
                f"platform_options.directives: {line!r} is not an option of {self.program}",
                hint="Write it as on the command line, for example: -l software=matlab",
            )
        name = next(filter(None, flag.groups()))
        if name in self.own:
            raise InvalidJob(
                f"platform_options.directives: cloudtrain sets -{name} itself",
                hint=f"Leave it out: {self.own[name]}.",
            )
        return text


class BatchQueue(SharedQueue[QueueEntry, Snapshot]):
    """The jobs of this user on one cluster, and the commands of its scheduler."""

    def __init__(self, scheduler: Scheduler, shell: Shell) -> None:
        server = "".join(os.environ.get(name, "") for name in scheduler.variables)
        file = queue_file(scheduler.platform, shell.place, server, os.environ.get("SLURM_CONF", ""))
        super().__init__(shell, file, poll_seconds=POLL_SECONDS)
        self._scheduler = scheduler
        self.product = scheduler.product
        self._single: dict[str, Standing[QueueEntry]] = {}
        """The answers for single jobs, until the next answer for all jobs."""
        self._single_of = -1.0

    def look(self, number: str, since: float) -> Standing[QueueEntry]:
        found = super().look(short_number(number), since)
        if found.row or found.is_alive or not self._scheduler.one:
            return found
        with self._lock:
            if self._single_of != self._snapshot.taken:
                self._single, self._single_of = {}, self._snapshot.taken
            if number not in self._single:
                self._single[number] = self._ask_for(number, since)
            return self._single[number]

    def _ask_for(self, number: str, since: float) -> Standing[QueueEntry]:
        """Query a job that is missing from the answer for all jobs, which may be incomplete.

        The full number contains the server's name, because several clusters may share a folder.
        """
        asked = time.time()
        short = short_number(number)
        try:
            answer = self._shell.run(f"{self._scheduler.one} {shlex.quote(number)}", timeout=CALL_SECONDS)
            user = self._snapshot.text.partition("\n")[0]
            row = self._read(f"{user}\n{answer.text}").get(short)
        except PlatformError:
            return Standing(True)
        if row:
            self._absent.pop(short, None)
            return Standing(not row.is_ended, row, taken=asked)
        if since <= asked < since + self._scheduler.appears_seconds:
            return Standing(True)
        is_quiet = not answer.complaint
        if _is_unknown(answer, self._scheduler) or (is_quiet and answer.code in self._scheduler.no_jobs):
            return Standing(False, taken=asked)
        self._absent[short] = self._absent.get(short, 0) + (is_quiet and not answer.code)
        return Standing(self._absent[short] < MOST_ABSENCES)

    def _query(self) -> str:
        command = f'user=$(id -un); echo "User: $user"\n{self._scheduler.query}'
        answer = self._shell.run(command, timeout=CALL_SECONDS)
        rest = answer.text.partition("\n")[2]
        if answer.code or not rest:
            _check(answer, self._scheduler, is_empty=not rest)
        self._read(answer.text)
        return answer.text

    def _read(self, text: str) -> Mapping[str, QueueEntry]:
        """Raises PlatformError."""
        try:
            return self._parse(text)
        except ValueError as error:
            raise PlatformError(f"the answer of {self._scheduler.asks} is not understood: {error}") from None

    def _parse(self, text: str) -> Mapping[str, QueueEntry]:
        first, _, rest = text.partition("\n")
        user = first.removeprefix("User: ")
        return {number: row for number, row in self._scheduler.parse(rest).items() if row.owner in ("", user)}

    def ended(self, number: str) -> QueueEntry | None:
        """The record of a job that has ended; None if the scheduler keeps none. Raises PlatformError."""
        known = self._scheduler
        if not known.history:
            return None
        answer = self._shell.run(f"{known.history} {shlex.quote(number)}")
        if answer.code:
            _check(answer, known, is_empty=not answer.text)
        return (known.parse_history or known.parse)(answer.text).get(short_number(number))

    def delete(self, number: str) -> None:
        """Take a job out of the queue, or end it. Raises PlatformError if it cannot be done."""
        delete = self._scheduler.delete
        answer = self._shell.run(f"{delete} {shlex.quote(number)}")
        if answer.code and not _is_unknown(answer, self._scheduler):
            raise PlatformError(f"{delete} failed: {_reason(answer.complaint or answer.text, answer.code)}")

    def refusal(self, complaint: str) -> PlatformError:
        """The error for a job that the scheduler did not accept."""
        program, where = self._scheduler.program, self._shell.place or "this machine"
        if re.search(rf"{program}: (command )?not found", complaint):
            return PlatformError(
                f"there is no {program} on {where}", hint="Submit from a login node of the cluster."
            )
        lines = [line.strip().removeprefix(f"{program}: ") for line in complaint.splitlines() if line.strip()]
        return PlatformError(
            f"{self._scheduler.product} does not take the job: "
            f"{'; '.join(lines) or f'{program} gave no reason'}",
            hint=f"Check platform_options against the queues: {self._scheduler.queues}",
        )


def _is_unknown(answer: Answer, scheduler: Scheduler) -> bool:
    """Whether an answer reports that a job is not in the queue."""
    return answer.code != NO_COMMAND and bool(scheduler.unknown.search(answer.complaint + answer.text))


def _check(answer: Answer, scheduler: Scheduler, *, is_empty: bool) -> None:
    """Raises PlatformError unless the scheduler answered: an error with any exit code does not mean an empty queue.

    For a job that has just ended, some versions return only an exit code.
    """
    lines = [line for line in answer.complaint.splitlines() if line.strip()]
    others = [line for line in lines if answer.code == NO_COMMAND or not scheduler.unknown.search(line)]
    is_quiet = not answer.complaint and answer.code in (0, *scheduler.no_jobs)
    if is_quiet or (answer.complaint and not others) or not (is_empty or answer.code):
        return
    raise PlatformError(
        f"{scheduler.asks} failed: {_reason(others[-1] if others else '', answer.code)}",
        hint=f"This must work on the login node: {scheduler.asks}"
        if answer.code == NO_COMMAND
        else f"The server of {scheduler.product} may be restarting: try again later.",
    )


def _reason(complaint: str, code: int) -> str:
    return complaint or f"exit code {code}"


def short_number(text: str) -> str:
    """``1234[7].server.example.org`` as ``1234[7]``: a server may have several names."""
    return text.strip().partition(".")[0]


def limit_minutes(job: TrainingJob) -> int | None:
    """The time limit of a job with ``max_run``, including the time to end it; None for the queue's limit."""
    return None if job.max_run is None else math.ceil((job.max_run + job.stop_grace + END_SECONDS) / 60)
