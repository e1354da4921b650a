"""Reads the answers of ``qstat``: which jobs wait, run or have ended, and why."""

from __future__ import annotations

import posixpath
import re
import time

from cloudtrain.platforms.batch.scheduler import ENDED, RUNNING, WAITING, QueueEntry, short_number

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

    PBS indents attributes with spaces, and continues long values on lines that begin with a tab. The commands that
    Slurm has for users of Torque indent attributes with a tab.
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
