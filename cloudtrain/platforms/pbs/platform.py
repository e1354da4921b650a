"""The platforms of PBS Professional and OpenPBS, of Torque, and of Cobalt."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial

from cloudtrain.contract import FailureReport
from cloudtrain.errors import InvalidJob
from cloudtrain.platforms.batch.render import BatchOptions
from cloudtrain.platforms.batch.scheduled import ScheduledPlatform, ended_by, over_limit
from cloudtrain.platforms.batch.scheduler import SCHEDULER_LOG, QueueEntry, Scheduler
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
from cloudtrain.platforms.pbs.queue import parse_cobalt, parse_full
from cloudtrain.spec import TrainingJob

LIMITS = {
    # pbs_job.h of Torque 6, job.h of OpenPBS 23
    "torque": {-10: "memory", -11: "walltime", -12: "CPU time"},
    "pbs": {-24: "ncpus", -25: "ncpus", -26: "vmem", -27: "memory", -28: "CPU time", -29: "walltime"},
}
"""The exit statuses for a job that its scheduler has ended because it was over a limit."""

OWN_JOBS = """if command -v qselect >/dev/null 2>&1; then
numbers=$(qselect -u "$user") || exit
[ -z "$numbers" ] || qstat -f $numbers
else qstat -f; fi"""
"""The jobs of this user. The commands that Slurm has for users of Torque have no qselect."""


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


# the commands of Slurm for users of Torque read the path of the folder as a pattern, too
_LOG = rf"$(case $PWD in *[%\\]*) echo /dev/null;; *) echo {SCHEDULER_LOG};; esac)"

# the name of the script is relative: the commands that Slurm has for users of Torque expand it once more
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
    # PBS exits with 153 or 35 then
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
    # the second -j and -o are for the commands of Slurm: they add others if these are missing
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
