"""How jobs ended that have left the queue: ``sacct`` once for all of them, ``scontrol`` where there is no accounting.

``sacct --json`` of some versions gives exit code 0 for jobs that failed, so this reads its table.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable

from cloudtrain.platforms.slurm.squeue import CLEAN, on_cluster, seconds
from cloudtrain.platforms.slurm.states import Ending

SACCT_FORMAT = "JobID,State,ExitCode,End,Timelimit,NodeList,JobName,WorkDir,Reason"
_COLUMNS = 9
NO_ACCOUNTING = ("accounting storage is disabled", "not found")
"""Messages of ``sacct``, or of the shell, on a cluster without accounting."""
UNNAMED = "allocation"
"""The name of a job of which the accounting has the end already, but not yet the start."""
_FIELD = re.compile(r"(?:^|\s)(?P<name>[A-Za-z:/]+)=(?P<value>\S*)")
MOST_AT_ONCE = 500
"""Job numbers in one command: a line of a shell is limited."""


def sacct_command(numbers: Iterable[str], cluster: str = "") -> str:
    """The line of commands for the accounting of these jobs, and only of the jobs, not of their steps."""
    jobs = ",".join([*numbers][:MOST_AT_ONCE])
    return (
        f"{CLEAN} sacct --allocations --noheader --parsable2{on_cluster(cluster)} --format={SACCT_FORMAT} "
        f"--jobs={shlex.quote(jobs)}"
    )


def parse_sacct(text: str) -> dict[str, Ending]:
    """The jobs in the output of `sacct_command`. Of a job that was requeued, the last row counts."""
    found = {}
    for line in text.splitlines():
        fields = [field.strip() for field in line.split("|", _COLUMNS - 1)]
        if len(fields) == _COLUMNS and fields[0]:
            number, *values = fields
            found[number] = _ending(*values)
    return found


def scontrol_command(number: str, cluster: str = "") -> str:
    """The line of commands for a job that the controller still knows, some minutes after its end."""
    return f"{CLEAN} scontrol{on_cluster(cluster)} --oneliner show job {shlex.quote(number)}"


def parse_scontrol(text: str) -> Ending | None:
    """The job in the output of `scontrol_command`."""
    for line in text.splitlines():
        fields = reversed([*_FIELD.finditer(line)])  # the first of a name counts: a comment comes late
        found = {match["name"]: match["value"] for match in fields}
        if "JobState" in found:
            values = (
                found.get(name, "")
                for name in ("ExitCode", "EndTime", "TimeLimit", "NodeList", "JobName", "WorkDir", "Reason")
            )
            return _ending(found["JobState"], *values)
    return None


def _ending(
    state: str, code: str, end: str, limit: str, nodes: str, name: str, folder: str, reason: str
) -> Ending:
    word, _, more = state.partition(" by ")
    status, _, number = code.partition(":")
    return Ending(
        # a narrow column of another table ends with a plus sign
        state=word.split()[0].rstrip("+") if word.strip() else "",
        by=more.strip(),
        exit_code=int(status) if status.isdigit() else None,
        signal=int(number) & 127 or None if number.isdigit() else None,
        reason="" if reason in ("None", "(null)") else reason,
        nodes="" if nodes in ("None assigned", "(null)", "None") else nodes,
        limit="" if limit in ("UNLIMITED", "Partition_Limit") else limit,
        ended_at=seconds(end),
        name=name if folder or name != UNNAMED else "",
        folder=folder,
    )
