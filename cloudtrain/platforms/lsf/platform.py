"""The platform of IBM Spectrum LSF: the answers of ``bjobs`` and ``bhist``, options, and directives."""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from cloudtrain.contract import FailureReport
from cloudtrain.platforms.batch.render import WORD, BatchOptions, ranks_on_node
from cloudtrain.platforms.batch.scheduled import ScheduledPlatform, ended_by, over_limit
from cloudtrain.platforms.batch.scheduler import (
    ENDED,
    RUNNING,
    SCHEDULER_LOG,
    WAITING,
    QueueEntry,
    Scheduler,
    limit_minutes,
)
from cloudtrain.platforms.batch.submitting import SCRIPT
from cloudtrain.spec import TrainingJob

STATES = {
    # bjobs(1) of LSF 10.1, "Output: Default display", STAT
    "PEND": (WAITING, "it waits for resources"),
    "PSUSP": (WAITING, "it is held: release it with bresume"),
    "FWD_PEND": (WAITING, "it waits in another cluster"),
    "WAIT": (WAITING, "it waits for the other jobs of its chunk"),
    "PROV": (WAITING, "its hosts start"),
    "RUN": (RUNNING, ""),
    "USUSP": (RUNNING, "it is suspended: resume it with bresume"),
    "SSUSP": (RUNNING, "it is suspended by LSF: another job has its hosts"),
    "UNKWN": (RUNNING, "LSF has lost the connection to its host"),
    "ZOMBI": (RUNNING, "it was killed, but its host does not answer"),
    "EXIT": (ENDED, ""),
    "DONE": (ENDED, ""),
}
FIELDS = ("jobid", "stat", "exit_code", "submit_time", "job_name", "sub_cwd", "exit_reason", "pend_reason")
DELIMITER = "^"
OUTPUT = " ".join(FIELDS)
# -json came with LSF 10.1 Fix Pack 2
SHOW = f"""bjobs_of() {{ bjobs -a -json -o '{OUTPUT}' "$@" 2>/dev/null ||
bjobs -a -noheader -o "{OUTPUT} delimiter='{DELIMITER}'" "$@"; }}; bjobs_of"""
"""Lists the jobs of this user, including those that ended within CLEAN_PERIOD, or the one whose number follows."""


def parse_bjobs(text: str) -> dict[str, QueueEntry]:
    """The jobs in the output of `SHOW`, by number. Raises ValueError if JSON is truncated or malformed."""
    if text.lstrip().startswith("{"):
        document, end = json.JSONDecoder().raw_decode(text.lstrip())
        rows = document.get("RECORDS")
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise ValueError("it has no RECORDS")
        rest = text.lstrip()[end:]  # from a wrapper, or the second command, which found no job either
        return {**_entries(rows), **_delimited(rest)}
    return _delimited(text)


def _delimited(text: str) -> dict[str, QueueEntry]:
    """The last field may contain the delimiter."""
    lines = (line.split(DELIMITER, len(FIELDS) - 1) for line in text.splitlines())
    names = [name.upper() for name in FIELDS]
    return _entries([dict(zip(names, values, strict=True)) for values in lines if len(values) == len(FIELDS)])


def _entries(rows: list[dict[str, Any]]) -> dict[str, QueueEntry]:
    found = {}
    for row in rows:
        given = {name: "" if value == "-" else value for name, value in row.items() if isinstance(value, str)}
        number = given.get("JOBID", "")
        if not number.isascii() or not number.isdigit() or "ERROR" in given:
            continue
        state, why = STATES.get(given.get("STAT", ""), (RUNNING, ""))
        reason = given.get("PEND_REASON" if state == WAITING else "EXIT_REASON", "")
        code = given.get("EXIT_CODE", "")
        found[number] = QueueEntry(
            state,
            " ".join(reason.split()).rstrip(";.") or why,
            int(code) if re.fullmatch(r"[0-9]{1,5}", code) else None,
            given.get("JOB_NAME", ""),
            "",
            re.sub(r"^\$HOME(?=/|$)", lambda _: os.path.expanduser("~"), given.get("SUB_CWD", "")),
            _seconds(given.get("SUBMIT_TIME", "")),
        )
    return found


def _seconds(text: str) -> float | None:
    """The end of the minute ``Dec 20 16:25``, in the time zone of this machine, as seconds since the epoch.

    Some sites add the year. Without it, the result is the latest such minute of this year and the last one.
    """
    tomorrow = time.time() + 86400
    year = time.localtime(tomorrow).tm_year
    for given in (text, f"{text} {year}", f"{text} {year - 1}"):
        with contextlib.suppress(ValueError, OverflowError):
            found = time.mktime(time.strptime(given, "%b %d %H:%M %Y")) + 59
            if given == text or found < tomorrow:
                return found
    return None


def parse_bhist(text: str) -> Mapping[str, QueueEntry]:
    """The jobs in the output of ``bhist -l`` that have ended, by number. ``bhist`` breaks lines within values.

    Of a job that was requeued, the last run counts.
    """
    found = {}
    for block in re.split(r"^(?=Job <)", re.sub(r"\n {21}", "", text), flags=re.MULTILINE):
        number = re.match(r"Job <(\d+)>", block)
        last = block.rpartition(": Starting (Pid ")[2]
        if not number or not re.search(r": (Completed <exit>|Exited|Done successfully)", last):
            continue
        name = re.search(r"^Job <\d+>, Job Name <([^>]*)>", block)
        reason = re.findall(r"(TERM_\w+:.*?)[;.]\s*$", last, re.MULTILINE)
        exits = re.findall(r"Exited (?:with exit code (\d{1,5})|by signal (\d{1,3}))", last)
        code, signal = exits[-1] if exits else ("", "")
        status = int(code) if code else 128 + int(signal) if signal else None
        found[number[1]] = QueueEntry(ENDED, reason[-1] if reason else "", status, name[1] if name else "")
    return found


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
"""Flags of ``bsub`` that cloudtrain sets itself, with what to do instead."""


def directives(job: TrainingJob, options: LsfOptions) -> Iterator[str]:
    """The flags of ``bsub``, which combines several -R."""
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
"""The termination reasons in bacct(1) of LSF 10.1 for a job that never ran. All others end a running job."""


def explain(entry: QueueEntry) -> FailureReport | None:
    """Why LSF ended a job, from the reason that it reports."""
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
    appears_seconds=60.0,  # bjobs may show an older copy of the queue (MBD_REFRESH_TIME)
    variables=("LSF_ENVDIR", "EGO_CONFDIR"),
)


class LsfPlatform(ScheduledPlatform):
    """Runs jobs on IBM Spectrum LSF."""

    name = "lsf"
    scheduler = LSF
    options = LsfOptions
