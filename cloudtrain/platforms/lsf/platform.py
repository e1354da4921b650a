"""The platform of IBM Spectrum LSF."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

from cloudtrain.contract import FailureReport
from cloudtrain.platforms.batch.render import WORD, BatchOptions, ranks_on_node
from cloudtrain.platforms.batch.scheduled import ScheduledPlatform, ended_by, over_limit
from cloudtrain.platforms.batch.scheduler import SCHEDULER_LOG, QueueEntry, Scheduler, limit_minutes
from cloudtrain.platforms.batch.submitting import SCRIPT
from cloudtrain.platforms.lsf.queue import SHOW, parse_bhist, parse_bjobs
from cloudtrain.spec import TrainingJob


class LsfOptions(BatchOptions, frozen=True, forbid_unknown_fields=True):
    """The options of a job on LSF.

    The defaults of the queue and the application profile apply to everything that is not given.
    """

    application: WORD | None = None
    user_group: WORD | None = None
    reservation: WORD | None = None
    select: WORD | None = None
    gpu_mode: Literal["shared", "exclusive_process"] = "shared"
    start: Literal["auto", "blaunch", "ssh"] = "auto"


OWN = {
    "J": "set job_name; each element of an array is a separate job: cloudtrain submit --array",
    **dict.fromkeys(("o", "oo", "e", "eo"), "cloudtrain logs shows the output"),
    "n": "set instance_count, and platform_options.cpus",
    "W": "set max_run",
    "r": "cloudtrain continues the job if LSF has lost its host",
    "rn": "cloudtrain continues the job if LSF has lost its host",
    "env": "set environment, or secrets",
    **dict.fromkeys(("I", "Ip", "Is", "K"), "cloudtrain runs no interactive jobs"),
}
"""Flags of ``bsub`` that cloudtrain sets itself, with what to do."""


def directives(job: TrainingJob, options: LsfOptions) -> Iterator[str]:
    """The flags of ``bsub``. Several -R hold together."""
    slots = options.cpus or ranks_on_node(job, options.gpus)
    yield f"-J {job.job_name}"
    yield f"-o {SCHEDULER_LOG}"
    yield "-r"
    flags = {
        "-q": options.queue,
        "-P": options.project,
        "-G": options.user_group,
        "-U": options.reservation,
        "-app": options.application,
        "-W": limit_minutes(job),
    }
    yield from (f"{flag} {value}" for flag, value in flags.items() if value)
    yield f"-n {slots * job.host_count}"
    yield f'-R "span[ptile={slots}]"'
    if options.select:
        yield f'-R "select[{options.select}]"'
    if options.mem:
        yield f'-R "rusage[mem={options.mem}]"'
    if options.gpus:
        model = f":gmodel={options.gpu_type}" if options.gpu_type else ""
        yield f'-gpu "num={options.gpus}/host:mode={options.gpu_mode}{model}"'


LIMITS = {
    "TERM_RUNLIMIT": "time",
    "TERM_DEADLINE": "time",
    "TERM_CPULIMIT": "CPU time",
    "TERM_MEMLIMIT": "memory",
    "TERM_SWAP": "swap space",
    "TERM_PROCESSLIMIT": "processes",
    "TERM_THREADLIMIT": "threads",
}
CANNOT_START = ("TERM_CWD_NOTEXIST", "TERM_PRE_EXEC_FAIL", "TERM_DATA", "TERM_CSM_ALLOC")
"""The termination reasons of bacct(1) of LSF 10.1. All others end a job that runs."""


def explain(entry: QueueEntry) -> FailureReport | None:
    """Why LSF ended a job: by the reason that it gives."""
    reason, _, why = entry.why.partition(":")
    if reason in LIMITS:
        return over_limit("lsf", LIMITS[reason], is_memory=reason in ("TERM_MEMLIMIT", "TERM_SWAP"))
    if not reason.startswith("TERM_"):
        return None
    message = f"lsf ended the job ({reason}): {why.strip() or 'no reason is recorded'}"
    return ended_by(message, entry.exit_status or 1, could_start=reason not in CANNOT_START)


LSF = Scheduler(
    platform="lsf",
    product="LSF",
    prefix="#BSUB",
    directives=directives,
    flag=re.compile(r"-([A-Za-z_]+)"),
    own=OWN,
    program="bsub",
    # it answers: Job <4711> is submitted to queue <normal>.
    submit=f"bsub=$(bsub < {SCRIPT}); code=$?; "
    r"""printf '%s\n' "$bsub" | sed 's/^Job <\([0-9]*\)> is submitted.*/\1/'; (exit $code)""",
    by_hand=f"bsub < {SCRIPT}",
    asks="bjobs",
    query=SHOW,
    parse=parse_bjobs,
    delete="bkill",
    queues="bqueues -u $USER",
    explain=explain,
    unknown=re.compile(
        r"is not found|No (matching |unfinished )?job found|already finished|No matching job", re.IGNORECASE
    ),
    no_jobs=(),
    one=SHOW,
    history="bhist -n 0 -l",
    parse_history=parse_bhist,
    appears_seconds=60.0,  # bjobs may show a copy of the queue (MBD_REFRESH_TIME)
    variables=("LSF_ENVDIR", "EGO_CONFDIR"),
)


class LsfPlatform(ScheduledPlatform):
    """Runs jobs on IBM Spectrum LSF."""

    name = "lsf"
    scheduler = LSF
    options = LsfOptions
