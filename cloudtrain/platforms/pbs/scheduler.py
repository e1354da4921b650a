"""The commands of PBS Professional, Torque and Cobalt, and the errors they answer with."""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from cloudtrain.errors import PlatformError
from cloudtrain.platforms.batch.placement import SCRIPT
from cloudtrain.platforms.batch.queue import CALL_SECONDS, MOST_ABSENCES, SharedQueue, Standing, queue_file
from cloudtrain.platforms.batch.shell import Answer, Shell
from cloudtrain.platforms.batch.snapshot import Snapshot
from cloudtrain.platforms.pbs.directives import SCHEDULER_LOG
from cloudtrain.platforms.pbs.queue import QueueEntry, parse_cobalt, parse_full, short_number

UNKNOWN = re.compile(
    r"unknown job ?id|job has finished|invalid job id|not found|does not exist", re.IGNORECASE
)
"""The answers of qstat and qdel for a job that has left the queue: PBS exits with 153 or 35 then."""
NO_JOBS = (1, 35, 153)
"""The exit codes of qstat without a job."""
POLL_SECONDS = 5.0
"""How long an answer of the queue counts."""

OWN_JOBS = """if command -v qselect >/dev/null 2>&1; then
numbers=$(qselect -u "$user") || exit
[ -z "$numbers" ] || qstat -f $numbers
else qstat -f; fi"""
"""The jobs of this user. The commands that Slurm has for users of Torque have no qselect."""


@dataclass(frozen=True)
class Dialect:
    """The differences between the three schedulers.

    Attributes:
        product: its name, for messages.
        submit: the command that submits the script in the current folder.
        query: the command that shows the jobs of ``$user``, and maybe others.
        one: the command that shows one job, before its number; empty if its answer for an unknown job is
            the same as no answer.
        history: the command that shows a job that has ended, before its number; empty if the scheduler forgets it.
        parse: reads the answer of both.
    """

    product: str
    submit: str
    query: str
    one: str
    history: str
    parse: Callable[[str], Mapping[str, QueueEntry]]


# those of Slurm read the path of the folder as a pattern, too
_LOG = rf"$(case $PWD in *[%\\]*) echo /dev/null;; *) echo {SCHEDULER_LOG};; esac)"

# the name of the script is relative: the commands that Slurm has for users of Torque expand it once more
DIALECTS = {
    "pbs": Dialect("PBS", f"qsub {SCRIPT}", OWN_JOBS, "qstat -f", "qstat -x -f", parse_full),
    # the second -j and -o are for these commands: they add others if these are missing
    "torque": Dialect("Torque", f"qsub -j oe -o {_LOG} {SCRIPT}", OWN_JOBS, "qstat -f", "", parse_full),
    "cobalt": Dialect(
        "Cobalt",
        f"qsub --mode script {SCRIPT}",
        'qstat -u "$user" --header JobID:State:User:JobName:OutputPath',
        "",
        "",
        parse_cobalt,
    ),
}


class PbsQueue(SharedQueue[QueueEntry, Snapshot]):
    """The jobs of this user on one cluster."""

    def __init__(self, platform: str, shell: Shell) -> None:
        server = os.environ.get("PBS_DEFAULT", "") + os.environ.get("PBS_SERVER", "")
        file = queue_file(platform, shell.place, server, os.environ.get("SLURM_CONF", ""))
        super().__init__(shell, file, poll_seconds=POLL_SECONDS)
        self._dialect = DIALECTS[platform]
        self.product = self._dialect.product
        self._single: dict[str, Standing[QueueEntry]] = {}
        """The answers for single jobs, after the present answer for all."""
        self._single_of = -1.0
        self._absent: dict[str, int] = {}
        """How many times neither a job nor an error came in answer to the number of a job."""

    def look(self, number: str, since: float) -> Standing[QueueEntry]:
        found = super().look(short_number(number), since)
        if found.row or found.is_alive or not self._dialect.one:
            return found
        with self._lock:
            if self._single_of != self._snapshot.taken:
                self._single, self._single_of = {}, self._snapshot.taken
            if number not in self._single:
                self._single[number] = self._ask_for(number)
            return self._single[number]

    def _ask_for(self, number: str) -> Standing[QueueEntry]:
        """Look for a job that is not among all jobs: that answer may be a part of one.

        The full number has the name of its server: several clusters may share a folder.
        """
        asked = time.time()
        try:
            answer = self._shell.run(f"{self._dialect.one} {shlex.quote(number)}", timeout=CALL_SECONDS)
        except PlatformError:
            return Standing(True)
        user = self._snapshot.text.partition("\n")[0]
        row = self._parse(f"{user}\n{answer.text}").get(short_number(number))
        if row:
            return Standing(not row.is_ended, row, taken=asked)
        is_quiet = not answer.complaint
        if UNKNOWN.search(answer.complaint + answer.text) or (is_quiet and answer.code in NO_JOBS):
            return Standing(False, taken=asked)
        self._absent[number] = self._absent.get(number, 0) + (is_quiet and not answer.code)
        return Standing(self._absent[number] < MOST_ABSENCES)

    def _query(self) -> str:
        command = f'user=$(id -un); echo "User: $user"\n{self._dialect.query}'
        answer = self._shell.run(command, timeout=CALL_SECONDS)
        rest = answer.text.partition("\n")[2]
        if answer.code or not rest:
            _check(answer, self._dialect, is_empty=not rest)
        return answer.text

    def _parse(self, text: str) -> Mapping[str, QueueEntry]:
        first, _, rest = text.partition("\n")
        user = first.removeprefix("User: ")
        return {number: row for number, row in self._dialect.parse(rest).items() if row.owner in ("", user)}


class Scheduler:
    """The scheduler of a cluster.

    Args:
        shell: where its commands are.
    """

    def __init__(self, platform: str, shell: Shell) -> None:
        self._dialect = DIALECTS[platform]
        self._shell = shell
        self._platform = platform
        self.product = self._dialect.product
        self.submit = self._dialect.submit

    @cached_property
    def queue(self) -> PbsQueue:
        return PbsQueue(self._platform, self._shell)

    def ended(self, number: str) -> QueueEntry | None:
        """The record of a job that has ended; None if the scheduler keeps none. Raises PlatformError."""
        if not self._dialect.history:
            return None
        answer = self._shell.run(f"{self._dialect.history} {shlex.quote(number)}")
        if answer.code:
            _check(answer, self._dialect, is_empty=not answer.text)
        return self._dialect.parse(answer.text).get(short_number(number))

    def delete(self, number: str) -> None:
        """Take a job out of the queue, or end it. Raises PlatformError if it cannot be done."""
        answer = self._shell.run(f"qdel {shlex.quote(number)}")
        if answer.code and not UNKNOWN.search(answer.complaint + answer.text):
            raise PlatformError(f"qdel failed: {_reason(answer.complaint or answer.text, answer.code)}")

    def refusal(self, complaint: str) -> PlatformError:
        where = self._shell.place or "this machine"
        if re.search(r"qsub: (command )?not found", complaint):
            return PlatformError(
                f"there is no qsub on {where}", hint="Submit from a login node of the cluster."
            )
        lines = [line.strip().removeprefix("qsub: ") for line in complaint.splitlines() if line.strip()]
        return PlatformError(
            f"{self.product} does not take the job: {'; '.join(lines) or 'qsub gave no reason'}",
            hint="Check platform_options against the queues: qstat -Q",
        )


def _check(answer: Answer, dialect: Dialect, *, is_empty: bool) -> None:
    """Raises PlatformError unless qstat has answered: an error is not an empty queue, with any exit code.

    A job that has ended just before leaves no more than an exit code with some versions.
    """
    others = [line for line in answer.complaint.splitlines() if line.strip() and not UNKNOWN.search(line)]
    is_quiet = not answer.complaint and answer.code in (0, *NO_JOBS)
    if is_quiet or (answer.complaint and not others) or not (is_empty or answer.code):
        return
    raise PlatformError(
        f"qstat failed: {_reason(others[-1] if others else '', answer.code)}",
        hint=f"The server of {dialect.product} may be restarting: try again later.",
    )


def _reason(complaint: str, code: int) -> str:
    return complaint or f"exit code {code}"
