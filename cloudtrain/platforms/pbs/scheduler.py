"""The commands of PBS Professional, Torque and Cobalt, and the errors they answer with."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from cloudtrain.errors import PlatformError
from cloudtrain.platforms.batch.shell import Shell
from cloudtrain.platforms.pbs.queue import QueueEntry, parse_cobalt, parse_full, short_number

UNKNOWN = re.compile(
    r"unknown job ?id|job has finished|invalid job id|not found|does not exist", re.IGNORECASE
)
"""The answers of qstat and qdel for a job that has left the queue: PBS exits with 153 or 35 then."""


@dataclass(frozen=True)
class Dialect:
    """The differences between the three schedulers.

    Attributes:
        product: its name, for messages.
        submit: the options of ``qsub`` before the script.
        query: the command that shows jobs, before their numbers.
        history: the same for jobs that have ended; empty if the scheduler forgets them.
        parse: reads the answer of both.
    """

    product: str
    submit: str
    query: str
    history: str
    parse: Callable[[str], Mapping[str, QueueEntry]]


DIALECTS = {
    "pbs": Dialect("PBS", "qsub", "qstat -f", "qstat -x -f", parse_full),
    # the second -j and -o are for the commands that Slurm has for users of Torque: they add others if these are missing
    "torque": Dialect("Torque", "qsub -j oe -o scheduler.log", "qstat -f", "", parse_full),
    "cobalt": Dialect("Cobalt", "qsub --mode script", "qstat --header JobID:State", "", parse_cobalt),
}


class Scheduler:
    """The scheduler of a cluster.

    Args:
        shell: where its commands are.
    """

    def __init__(self, platform: str, shell: Shell) -> None:
        self._dialect = DIALECTS[platform]
        self._shell = shell

    def submit(self, folder: str, script: str) -> str:
        """Submit the script in a folder. Returns the scheduler's number. Raises PlatformError if it is refused."""
        line = f"cd {shlex.quote(folder)} && chmod +x {script} && {self._dialect.submit} {folder}/{script}"
        answer = self._shell.run(line)
        # warnings and notes may come before the number, which is the last line: 1234.server, 1234
        found = re.search(r"^(\d+)(?:\.[\w.-]+)?\s*$", answer.text, re.MULTILINE)
        if answer.code or not found:
            raise self._refused(answer.complaint or answer.text)
        return found[1] if self._dialect.product == "Cobalt" else found[0].strip()

    def entries(self, numbers: Sequence[str]) -> dict[str, QueueEntry]:
        """The jobs that the scheduler knows, by number without the server: one command for all.

        Raises PlatformError if it does not answer.
        """
        return self._ask(self._dialect.query, numbers)

    def ended(self, number: str) -> QueueEntry | None:
        """The record of a job that has ended; None if the scheduler keeps none. Raises PlatformError."""
        if not self._dialect.history:
            return None
        return self._ask(self._dialect.history, [number]).get(short_number(number))

    def delete(self, number: str) -> None:
        """Take a job out of the queue, or end it. Raises PlatformError if it cannot be done."""
        answer = self._shell.run(f"qdel {shlex.quote(number)}")
        if answer.code and not UNKNOWN.search(answer.complaint + answer.text):
            raise PlatformError(f"qdel failed: {_reason(answer.complaint or answer.text, answer.code)}")

    def _ask(self, command: str, numbers: Sequence[str]) -> dict[str, QueueEntry]:
        answer = self._shell.run(f"{command} {shlex.join(numbers)}")
        found = dict(self._dialect.parse(answer.out.decode("utf-8", "replace")))
        if answer.code and not found and not UNKNOWN.search(answer.complaint):
            # a job that has ended leaves no more than an exit code with some versions
            if not answer.complaint and answer.code in (1, 35, 153):
                return {}
            raise PlatformError(
                f"qstat failed: {_reason(answer.complaint, answer.code)}",
                hint=f"The server of {self._dialect.product} may be restarting: try again later.",
            )
        return found

    def _refused(self, complaint: str) -> PlatformError:
        where = self._shell.place or "this machine"
        if re.search(r"qsub: (command )?not found", complaint):
            return PlatformError(
                f"there is no qsub on {where}", hint="Submit from a login node of the cluster."
            )
        lines = [line.strip().removeprefix("qsub: ") for line in complaint.splitlines() if line.strip()]
        return PlatformError(
            f"{self._dialect.product} does not take the job: {'; '.join(lines) or 'qsub gave no reason'}",
            hint="Check platform_options against the queues: qstat -Q",
        )


def _reason(complaint: str, code: int) -> str:
    return complaint or f"exit code {code}"
