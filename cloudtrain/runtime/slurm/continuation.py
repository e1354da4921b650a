"""Continues a job on Slurm after a preemption or a time limit, from its batch step.

``scontrol requeue`` requeues the job under its number, even while PreemptMode=CANCEL is ending it. If the nodes do not
have scontrol, or the cluster refuses, sbatch submits the job again, to start after this submission has ended. If they
have neither, a client that waits for the job submits it; in no other case does a client submit anything. With a chain,
further submissions are in the queue already: see `cloudtrain.platforms.slurm.jobs`.

Slurm's time limit may be set by the job, the partition, a QOS or an administrator, and is available only to the running
job. The batch script requests a notice for a long limit. With a shorter limit, this notice arrives too early, and takes
effect later.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Callable

from cloudtrain._dataclass import dataclass
from cloudtrain._system.patterns import pattern
from cloudtrain.checkpoint.saved import Saved
from cloudtrain.contract import FailureClass
from cloudtrain.contract.request_body import request_settings
from cloudtrain.errors import PlatformError
from cloudtrain.runtime.outer_variables import without_outer_allocation
from cloudtrain.runtime.supervisor.folder import SUPERVISOR_LOG, JobFolder
from cloudtrain.runtime.supervisor.submissions import (
    SUBMISSIONS,
    Submission,
    note_submission,
    parse_submissions,
)
from cloudtrain.storage.atomic import replace_file

END_SECONDS = 120
"""The time that a job's end takes in addition to its grace, for the last uploads and the end of all processes."""
EARLY_SECONDS = 60
"""The seconds by which Slurm may send a signal earlier than requested."""
LARGEST_PART = 3
"""The divisor of the time limit: the notice takes at most a third of it."""


def notice_seconds(stop_grace: float, limit: float | None = None) -> float:
    """The time before its time limit at which a job begins to end. Half of it suffices for a grace of up to 120 s."""
    notice = stop_grace + END_SECONDS
    return notice if limit is None else min(notice, limit / LARGEST_PART)


@dataclass(frozen=True)
class TimeLimit:
    """The time at which a job started, and at which Slurm ends it, in seconds since the epoch."""

    start: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.start

    def spare_seconds(self, stop_grace: float, now: float) -> float:
        """The time for which the job may still train after a notice at ``now``; 0 if the notice was not too early."""
        asked, needed = notice_seconds(stop_grace), notice_seconds(stop_grace, self.seconds)
        left = self.end - now
        if needed == asked or left > asked + EARLY_SECONDS:  # a long limit, or not a notice of its end
            return 0.0
        return max(left - needed, 0.0)


def parse_time_limit(shown: str, environ: Mapping[str, str]) -> TimeLimit | None:
    """The limit of a job; None if it has none, or Slurm does not show it.

    Args:
        shown: the output of ``scontrol show job --oneliner``, with ``SLURM_TIME_FORMAT=%s``.
        environ: the environment of the batch step, in which later versions of Slurm set the times.
    """
    times = []
    for name, variable in (("StartTime", "SLURM_JOB_START_TIME"), ("EndTime", "SLURM_JOB_END_TIME")):
        found = re.search(rf" {name}=(\d+)\b", shown)
        text = found[1] if found else environ.get(variable, "")
        if not text.isdigit():
            return None
        times.append(float(text))
    return TimeLimit(*times) if times[0] < times[1] else None


COMMAND_SECONDS = 60.0
ANSWER_SECONDS = 10.0
LONGEST_TAIL = 1 << 16
SCRIPT = "job.sh"
INTERRUPTED = "interrupted"
"""The file with the number of the submission that a client has to follow with a new one."""

_TAKEN = pattern(
    rb"\*\*\* JOB \d+ ON \S+ CANCELLED AT \S+ DUE TO (PREEMPTION|TIME LIMIT|NODE FAILURE|JOB REQUEUE)"
)
"""A line of slurmstepd in the output of a job, before SIGTERM, unless a user has cancelled the job."""
_PREEMPTED = pattern(r" PreemptTime=\d")
"""A field in the description of a job that is preempted with a grace, whose batch step gets no signal yet."""
_CAUSES = {b"TIME LIMIT": FailureClass.TIME_LIMIT, b"NODE FAILURE": FailureClass.HOST_LOST}
WAITS_ALREADY = "Job is pending execution"
"""The error of ``scontrol requeue`` for a job that Slurm itself has requeued."""


class SlurmContinuation:
    """See `cloudtrain.platforms.supervised.Continuation`.

    Args:
        number: Slurm's number of this submission.
        requeue: the platform option ``requeue``. With ``chain``, other submissions wait for the end of this one.
    """

    notice_seconds = 120.0
    """The job starts a little later than its time limit, and Slurm may send the notice a minute early."""

    def __init__(
        self, folder: JobFolder, number: str, *, requeue: str, environ: Mapping[str, str] = os.environ
    ) -> None:
        self._folder = folder
        self._number = number
        self._requeues = requeue
        settings = request_settings(folder.read_request())
        self._stop_grace = settings.stop_grace
        self._saved = Saved(settings.checkpoint_uri)
        self._environ, _ = without_outer_allocation(environ)
        self._output = folder.path / SUPERVISOR_LOG
        self._begin = _size(self._output)
        self._restarts = int(environ.get("SLURM_RESTART_COUNT") or 0)
        self._site = environ.get("SLURM_CLUSTER_NAME", "")
        self._show_command = ("scontrol", "show", "job", "--oneliner", number)
        self.place = f"Slurm job {number} on {environ.get('SLURM_JOB_NODELIST', 'its nodes')}"

    def takes_back(self) -> bool:
        try:
            return bool(self._notices() or _PREEMPTED.search(self._show()))
        except OSError:
            return False

    def cause(self) -> FailureClass:
        """The reason that Slurm gives in the output of the job, or else in its description of the job."""
        with contextlib.suppress(OSError):
            if notices := self._notices():
                return _CAUSES.get(notices[-1], FailureClass.PREEMPTED)
        shown = self._show()
        if _PREEMPTED.search(shown):
            return FailureClass.PREEMPTED
        end = re.search(r" EndTime=(\d+)", shown)
        is_near = end and int(end[1]) - time.time() < notice_seconds(self._stop_grace) + EARLY_SECONDS
        return FailureClass.TIME_LIMIT if is_near else FailureClass.PREEMPTED

    def _notices(self) -> list[bytes]:
        """The reasons of slurmstepd for the job's end, in the output of this submission. Raises OSError."""
        with open(self._output, "rb") as file:
            file.seek(max(self._begin, _size(self._output) - LONGEST_TAIL))
            return _TAKEN.findall(file.read())

    def _show(self) -> str:
        """Slurm's description of the job, with times in seconds since the epoch."""
        return self._launch(*self._show_command)(ANSWER_SECONDS).stdout

    def spare_seconds(self) -> float:
        limit = parse_time_limit(self._show(), self._environ)
        return limit.spare_seconds(self._stop_grace, time.time()) if limit else 0.0

    def ask_grace(self) -> Callable[[], float]:
        """Query Slurm for this job's time limit. Returns a function that waits for the result.

        The result is the longest grace for which a notice of the limit leaves time.
        """
        shown = self._launch(*self._show_command)

        @cache
        def longest_grace() -> float:
            limit = parse_time_limit(shown(ANSWER_SECONDS).stdout, self._environ)
            return notice_seconds(self._stop_grace, limit.seconds if limit else None) / 2

        return longest_grace

    def check_next(self, cause: FailureClass) -> None:
        if self._requeues == "never":
            raise PlatformError(
                "platform_options.requeue is never",
                hint="Submit the job again: it resumes from its last checkpoint.",
            )
        if cause == FailureClass.TIME_LIMIT and self._requeues != "always" and not self._saved.is_new():
            raise PlatformError(
                "this attempt saved no checkpoint, and the next one would get no further",
                hint="Save checkpoints more often than the time limit: see docs/guides/checkpoints.md. Or choose a "
                "longer limit: platform_options.time, another partition or QOS. For a script that saves elsewhere: "
                "platform_options.requeue: always.",
            )

        if self._requeues == "chain" and self._is_last_of_chain():
            raise PlatformError(
                "it was the last submission of the chain",
                hint="Submit the job again: it resumes from its last checkpoint. For a longer chain, raise "
                "platform_options.max_preemptions.",
            )

    def _is_last_of_chain(self) -> bool:
        with contextlib.suppress(OSError):
            known = parse_submissions((self._folder.path / SUBMISSIONS).read_bytes())
            return len(known) > 1 and known[-1].number == self._number
        return False

    def start_next(self) -> str:
        if self._requeues == "chain":
            return "the next submission waits in the queue"
        refused = self._requeue()
        if refused is None:
            return f"Slurm job {self._number} is in the queue again"
        if shutil.which("sbatch"):
            return self._submit()
        with contextlib.suppress(OSError):  # a full disk
            replace_file(self._folder.path / INTERRUPTED, self._number.encode())
        return f"{refused}. To submit the job again, run: cloudtrain wait {self._folder.path.name}"

    def end(self) -> None:
        """Remove the submissions that wait for this one from the queue, because the job has ended.

        Without scancel, the next one starts, finds that it is not needed, and succeeds. Slurm then removes the others.
        """
        if self._requeues == "chain" and shutil.which("scancel"):
            known = (self._folder.path / SUBMISSIONS).read_bytes()
            numbers = [one.number for one in parse_submissions(known) if one.number != self._number]
            self._run("scancel", "--state=PENDING", *numbers)

    def _requeue(self) -> str | None:
        """Requeue this job. Returns None, or the reason why that is not possible."""
        if not shutil.which("scontrol"):
            return "there is no scontrol and no sbatch on this node"
        done = self._run("scontrol", "requeue", self._number)
        if done.returncode == 0 or WAITS_ALREADY in done.stderr:
            return None
        # it may have succeeded, but Slurm's response was lost, or the resulting SIGTERM has ended the command
        restarts = re.search(r" Restarts=(\d+)", self._show())
        if restarts and int(restarts[1]) > self._restarts:
            return None
        return f"scontrol requeue failed: {' '.join(done.stderr.split())}"

    def _submit(self) -> str:
        done = self._run("sbatch", "--parsable", f"--dependency=afterany:{self._number}", SCRIPT)
        found = re.search(r"^(\d+)(?:;(.*))?$", done.stdout.strip(), re.MULTILINE)
        if done.returncode or not found:
            raise PlatformError(
                f"sbatch failed: {' '.join(done.stderr.split())}",
                hint="Submit the job again: it resumes from its last checkpoint.",
            )
        new = Submission(found[1], found[2] or "", time.time(), site=self._site)
        note_submission(self._folder.path, new)
        return f"submitted again as Slurm job {found[1]}"

    def _run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return self._launch(*command)(COMMAND_SECONDS)

    def _launch(self, *command: str) -> Callable[[float], subprocess.CompletedProcess[str]]:
        """Start a command. Returns a function that waits for its end, up to a number of seconds."""
        try:
            process = subprocess.Popen(
                command,
                cwd=self._folder.path,
                env={**self._environ, "SLURM_TIME_FORMAT": "%s"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        except OSError as error:
            failed = subprocess.CompletedProcess(command, 1, "", str(error))
            return lambda _seconds: failed

        def end(seconds: float) -> subprocess.CompletedProcess[str]:
            with process:
                try:
                    out, complaint = process.communicate(timeout=seconds)
                except subprocess.TimeoutExpired as error:
                    process.kill()
                    return subprocess.CompletedProcess(command, 1, "", str(error))
                return subprocess.CompletedProcess(command, process.returncode, out, complaint)

        return end


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
