"""The platforms of PBS Professional and OpenPBS, of Torque, and of Cobalt, and the answers of their ``qstat``."""

from __future__ import annotations

import posixpath
import re
import time
from dataclasses import replace
from functools import partial

from cloudtrain.contract import FailureReport
from cloudtrain.errors import InvalidJob
from cloudtrain.platforms.batch.render import BatchOptions
from cloudtrain.platforms.batch.scheduled import ScheduledPlatform, ended_by, over_limit
from cloudtrain.platforms.batch.scheduler import (
    ENDED,
    RUNNING,
    SCHEDULER_LOG,
    WAITING,
    QueueEntry,
    Scheduler,
    short_number,
)
from cloudtrain.platforms.batch.submitting import SCRIPT
from cloudtrain.platforms.pbs.directives import (
    LACKS,
    ONLY,
    OWN,
    OWN_OF_COBALT,
    PbsOptions,
    cobalt_lines,
    pbs_lines,
    short_name,
    torque_lines,
)
from cloudtrain.spec import TrainingJob

STATES = {
    # PBS Professional and OpenPBS: qstat(1B), "Job Status in Default Format". Torque: qstat(1B)
    "Q": (WAITING, "it waits for resources"),
    "H": (WAITING, "it is held: release it with qrls"),
    "W": (WAITING, "it waits for the time at which it may start"),
    "T": (WAITING, "the server moves it"),
    "M": (WAITING, "it was moved to another server"),
    "S": (RUNNING, "it is suspended: another job has its nodes"),
    "U": (RUNNING, "it is suspended: the owner of its node uses it"),
    "R": (RUNNING, ""),
    "B": (RUNNING, ""),
    "E": (RUNNING, "it is ending"),
    "C": (ENDED, ""),
    "F": (ENDED, ""),
    "X": (ENDED, ""),
}

COBALT_STATES = {
    # qstat(1) of Cobalt 1.0, and the states that its queue manager gives (cqm.py)
    "queued": (WAITING, "it waits for nodes"),
    "starting": (WAITING, "its nodes start"),
    "hold": (WAITING, "it is held: release it with qrls"),
    "user_hold": (WAITING, "you hold it: release it with qrls"),
    "admin_hold": (WAITING, "an administrator holds it"),
    "maxrun_hold": (WAITING, "you have as many running jobs as the queue allows"),
    "dep_hold": (WAITING, "it waits for another job"),
    "dep_fail": (WAITING, "a job that it waits for has failed, so it never starts"),
    "user_hold_dep_fail": (WAITING, "a job that it waits for has failed, so it never starts"),
    "preempted": (WAITING, "it was preempted"),
    "running": (RUNNING, ""),
    "killing": (RUNNING, "it is ending"),
    "exiting": (RUNNING, "it is ending"),
    "done": (ENDED, ""),
}


def parse_full(text: str) -> dict[str, QueueEntry]:
    """The jobs in the output of ``qstat -f``, by number: PBS Pro, OpenPBS, Torque, and Slurm's ``qstat``."""
    found = {}
    for block in re.split(r"^Job Id:", text, flags=re.MULTILINE)[1:]:
        number, _, rest = block.partition("\n")
        fields = _fields(rest)
        state, why = STATES.get(fields.get("job_state", ""), (RUNNING, ""))
        status = fields.get("exit_status", "")
        found[short_number(number)] = QueueEntry(
            state,
            fields.get("comment") or why,
            int(status) if re.fullmatch(r"-?\d+", status) else None,
            fields.get("job_name", ""),
            fields.get("job_owner", "").partition("@")[0],
            # host:path
            posixpath.dirname(re.sub(r"^[^/]*:", "", fields.get("output_path", ""))),
            _seconds(fields.get("qtime", "")),
        )
    return found


def _fields(block: str) -> dict[str, str]:
    """``name = value`` of each attribute, by lower-case names.

    PBS indents attributes with spaces, and continues long values on lines that begin with a tab. Slurm's
    wrappers for users of Torque indent attributes with a tab.
    """
    joined = re.sub(r"\n\t", "", block) if re.search(r"^ ", block, re.MULTILINE) else block
    return {
        name.strip().lower(): value.strip()
        for name, equals, value in (line.partition(" = ") for line in joined.splitlines())
        if equals
    }


def _seconds(text: str) -> float | None:
    """A time such as ``Mon Nov  2 09:31:07 2026``, in the time zone of this machine, as seconds since the epoch."""
    try:
        return time.mktime(time.strptime(text))
    except (ValueError, OverflowError):
        return None


def parse_cobalt(text: str) -> dict[str, QueueEntry]:
    """The jobs in the output of ``qstat --header JobID:State:User:JobName:OutputPath``, by number."""
    found = {}
    for line in text.splitlines():
        words = line.split(maxsplit=4)
        if len(words) == 5 and words[0].isdigit():
            number, word, owner, name, output = words
            state, why = COBALT_STATES.get(word.lower(), (RUNNING, ""))
            found[number] = QueueEntry(state, why, None, name, owner, posixpath.dirname(output.strip()))
    return found


LIMITS = {
    # pbs_job.h of Torque 6, job.h of OpenPBS 23
    "torque": {-10: "memory", -11: "walltime", -12: "CPU time"},
    "pbs": {-24: "ncpus", -25: "ncpus", -26: "vmem", -27: "memory", -28: "CPU time", -29: "walltime"},
}
"""The exit statuses of a job that its scheduler ended because it exceeded a limit."""

OWN_JOBS = """if command -v qselect >/dev/null 2>&1; then
numbers=$(qselect -u "$user") || exit
[ -z "$numbers" ] || qstat -f $numbers
else qstat -f; fi"""
"""Lists the jobs of this user. Slurm's wrappers for users of Torque include no qselect."""


def explain(platform: str, entry: QueueEntry) -> FailureReport | None:
    """Why the scheduler ended a job."""
    status = entry.exit_status
    if status is None:
        return None
    if limit := LIMITS.get(platform, {}).get(status):
        return over_limit(platform, limit, is_memory=limit in ("memory", "vmem"))
    why = entry.why or "no reason is recorded"
    if status >= 256:  # PBS Professional and Torque add 256 to the number of a signal
        number = status - 256
        return ended_by(f"{platform} reports that signal {number} ended the job: {why}", 128 + number)
    if status < 0:
        message = f"{platform} could not run the job (exit status {status}): {why}"
        return ended_by(message, 1, could_start=False)
    return None


# Slurm's wrappers for users of Torque interpret the path of the folder as a pattern, too
_LOG = rf"$(case $PWD in *[%\\]*) echo /dev/null;; *) echo {SCHEDULER_LOG};; esac)"

# the name of the script is relative, because Slurm's wrappers for users of Torque expand it a second time
PBS = Scheduler(
    platform="pbs",
    product="PBS",
    prefix="#PBS",
    directives=pbs_lines,
    flag=re.compile(r"--([\w-]+)|-(\w)"),
    own=OWN,
    program="qsub",
    submit=f"qsub {SCRIPT}",
    by_hand=f"qsub {SCRIPT}",
    asks="qstat",
    query=OWN_JOBS,
    parse=parse_full,
    delete="qdel",
    queues="qstat -Q",
    explain=partial(explain, "pbs"),
    # for these, PBS exits with 153 or 35
    unknown=re.compile(
        r"unknown job ?id|job has finished|invalid job id|not found|does not exist", re.IGNORECASE
    ),
    no_jobs=(1, 35, 153),
    one="qstat -f",
    history="qstat -x -f",
    short_name=short_name,
    variables=("PBS_DEFAULT", "PBS_SERVER"),
)
TORQUE = replace(
    PBS,
    platform="torque",
    product="Torque",
    directives=torque_lines,
    # -j and -o are repeated for Slurm's wrappers, which add others if they are missing
    submit=f"qsub -j oe -o {_LOG} {SCRIPT}",
    explain=partial(explain, "torque"),
    history="",
)
COBALT = replace(
    PBS,
    platform="cobalt",
    product="Cobalt",
    prefix="#COBALT",
    directives=cobalt_lines,
    own=OWN_OF_COBALT,
    submit=f"qsub --mode script {SCRIPT}",
    by_hand=f"qsub --mode script {SCRIPT}",
    query='qstat -u "$user" --header JobID:State:User:JobName:OutputPath',
    parse=parse_cobalt,
    explain=partial(explain, "cobalt"),
    one="",
    history="",
    title_last=True,
)


class PbsPlatform(ScheduledPlatform):
    """Runs jobs on PBS Professional and OpenPBS."""

    name = "pbs"
    scheduler = PBS
    options = PbsOptions

    def options_of(self, job: TrainingJob) -> BatchOptions:
        options = super().options_of(job)
        for name in job.platform_options:
            if ONLY.get(name, self.name) != self.name or name in LACKS.get(self.name, ()):
                raise InvalidJob(
                    f"platform_options.{name}: {self.name} has no such request",
                    hint="Leave it out, or write the scheduler's own line in platform_options.directives.",
                )
        return options


class TorquePlatform(PbsPlatform):
    """Runs jobs on Torque, and on a Slurm with Torque's commands."""

    name = "torque"
    scheduler = TORQUE


class CobaltPlatform(PbsPlatform):
    """Runs jobs on Cobalt."""

    name = "cobalt"
    scheduler = COBALT
