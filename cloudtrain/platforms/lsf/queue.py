"""Reads the answers of ``bjobs`` and ``bhist``: which jobs wait, run or have ended, and why."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Mapping
from typing import Any

from cloudtrain.platforms.batch.scheduler import ENDED, RUNNING, WAITING, QueueEntry

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
"""The jobs of this user, also those that have ended within CLEAN_PERIOD; or the one whose number follows."""


def parse_bjobs(text: str) -> dict[str, QueueEntry]:
    """The jobs in the output of `SHOW`, by number. Raises ValueError if JSON breaks off, or is something else."""
    if text.lstrip().startswith("{"):
        document, end = json.JSONDecoder().raw_decode(text.lstrip())
        rows = document.get("RECORDS")
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise ValueError("it has no RECORDS")
        rest = text.lstrip()[end:]  # of a wrapper, or of the second command, which found no job either
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


def _seconds(text: str, now: float | None = None) -> float | None:
    """The end of the minute ``Dec 20 16:25``, in the time zone of this machine, as seconds since the epoch.

    Some sites add the year. Without one, it is the last such minute.
    """
    now = time.time() if now is None else now
    year = time.localtime(now + 86400).tm_year
    for given, layout in ((text, "%b %d %H:%M %Y"), (f"{text} {year}", "%b %d %H:%M %Y")):
        try:
            found = time.mktime(time.strptime(given, layout)) + 59
        except (ValueError, OverflowError):
            continue
        if given == text or found < now + 86400:
            return found
        return _seconds(f"{text} {year - 1}")
    return None


def parse_bhist(text: str) -> Mapping[str, QueueEntry]:
    """The jobs in the output of ``bhist -l`` that have ended, by number. It breaks lines within values."""
    found = {}
    for block in re.split(r"^(?=Job <)", re.sub(r"\n {21}", "", text), flags=re.MULTILINE):
        number = re.match(r"Job <(\d+)>", block)
        if not number or not re.search(r": (Completed <exit>|Exited|Done successfully)", block):
            continue
        name = re.search(r"^Job <\d+>, Job Name <([^>]*)>", block)
        reason = re.findall(r"(TERM_\w+:.*?)[;.]\s*$", block, re.MULTILINE)
        code = re.findall(r"Exited with exit code (\d{1,5})", block)
        signal = re.findall(r"Exited by signal (\d{1,3})", block)
        status = int(code[-1]) if code else 128 + int(signal[-1]) if signal else None
        found[number[1]] = QueueEntry(ENDED, reason[-1] if reason else "", status, name[1] if name else "")
    return found
