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
"""How long an answer of the queue counts."""
END_SECONDS = 120
"""How long the end of a job may take after its grace: the last uploads, and the end of all processes."""
NO_COMMAND = 127
"""The exit code of a shell that does not find a command: its ``not found`` is about no job."""
SCHEDULER_LOG = "scheduler.log"
"""The file for the output of a job's scheduler, which writes it when the job has ended.

Its path is relative to the folder of the job, from which it is submitted: schedulers expand variables in paths.
"""


@dataclass(frozen=True)
class QueueEntry:
    """A job as the scheduler shows it.

    Attributes:
        state: `WAITING`, `RUNNING` or `ENDED`.
        why: why it is in this state, in a sentence without a full stop; empty if there is none.
        exit_status: what the scheduler recorded; None if it has none.
        owner: the user, without the host; empty if only jobs of this user are shown.
        folder: of its output, which is that from which it was submitted.
        submitted: in seconds since the epoch.
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
        platform: its name in ``platform``.
        product: its name, for messages.
        prefix: of a directive, such as ``#PBS``.
        directives: the lines of a job, from its options; those of ``platform_options.directives`` follow.
        flag: matches a flag at the begin of a directive; its groups are the name.
        own: the flags that cloudtrain sets itself, with what to do.
        program: the command that submits.
        submit: its call for the script in the current folder.
        by_hand: the same, for a user.
        asks: the command that lists jobs, for messages.
        query: its call for the jobs of ``$user``, and maybe others.
        parse: reads its answer. Raises ValueError if that is cut off, or something else.
        one: its call for one job, before the number; empty if its answer for an unknown job is the same as no answer.
        history: the call that shows a job that has ended, before its number; empty if the scheduler forgets it.
        parse_history: reads that answer, if it is another one.
        delete: the command that takes a job out of the queue, or ends it.
        queues: the command that shows the queues, for users.
        explain: why the scheduler ended a job, from its record; None if it did not.
        unknown: matches an answer for a job that has left the queue.
        no_jobs: the exit codes of an answer without a job.
        appears_seconds: how long after its submission a job may be missing in an answer.
        short_name: a job's name as the scheduler takes it.
        title_last: see `Script`.
        variables: those that choose a server.
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
        """The answers for single jobs, after the present answer for all."""
        self._single_of = -1.0
        self._absent: dict[str, int] = {}
        """How many times neither a job nor an error was the answer to the number of a job."""

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
        """Look for a job that is not among all jobs: that answer may be a part of one.

        The full number has the name of its server: several clusters may share a folder.
        """
        asked = time.time()
        try:
            answer = self._shell.run(f"{self._scheduler.one} {shlex.quote(number)}", timeout=CALL_SECONDS)
            user = self._snapshot.text.partition("\n")[0]
            row = self._read(f"{user}\n{answer.text}").get(short_number(number))
        except PlatformError:
            return Standing(True)
        if row:
            return Standing(not row.is_ended, row, taken=asked)
        if since <= asked < since + self._scheduler.appears_seconds:
            return Standing(True)
        is_quiet = not answer.complaint
        if _is_unknown(answer, self._scheduler) or (is_quiet and answer.code in self._scheduler.no_jobs):
            return Standing(False, taken=asked)
        self._absent[number] = self._absent.get(number, 0) + (is_quiet and not answer.code)
        return Standing(self._absent[number] < MOST_ABSENCES)

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
        """The error for a job that the scheduler did not take."""
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
    """Whether a job is not in the queue."""
    return answer.code != NO_COMMAND and bool(scheduler.unknown.search(answer.complaint + answer.text))


def _check(answer: Answer, scheduler: Scheduler, *, is_empty: bool) -> None:
    """Raises PlatformError unless the scheduler has answered: an error is not an empty queue, with any exit code.

    A job that has ended just before leaves no more than an exit code with some versions.
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
    """``1234[7].server.example.org`` as ``1234[7]``: servers have several names."""
    return text.strip().partition(".")[0]


def limit_minutes(job: TrainingJob) -> int | None:
    """The time limit of a job that has its own, with the time that its end takes; None for that of the queue."""
    return None if job.max_run is None else math.ceil((job.max_run + job.stop_grace + END_SECONDS) / 60)
