"""One ``squeue`` for all jobs of this user: the command, and the parser of its output.

The columns are fixed, and the same in Slurm 22.05 to 26.05, while ``--json`` changes between versions. ``%s`` as the
format of times gives seconds since the epoch, regardless of the login node's time zone. The reason is last, because a
site may put any text there.

Jobs that have left the queue are read from ``sacct``, with one call for all of them, or from ``scontrol`` where there
is no accounting. ``sacct --json`` of some versions gives exit code 0 for failed jobs, so its table is parsed instead.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence

from cloudtrain._dataclass import dataclass
from cloudtrain.platforms.slurm.states import PENDING, Ending, is_ended, is_waiting
from cloudtrain.runtime.supervisor.submissions import Submission

FORMAT = "%F|%K|%T|%S|%e|%V|%Q|%P|%D|%N|%j|%Z|%r"
_COLUMNS = 13
HEADER = "ARRAY_JOB_ID|ARRAY_TASK_ID|STATE|"
"""The beginning of the line above the rows."""
_ORDER_FORMAT = "%F|%K|%Q|%P|%r"

_OVERRIDES = (
    "SQUEUE_ACCOUNT SQUEUE_ALL SQUEUE_ARRAY SQUEUE_FORMAT SQUEUE_FORMAT2 SQUEUE_LICENSES SQUEUE_LOCAL SQUEUE_NAMES "
    "SQUEUE_PARTITION SQUEUE_PRIORITY SQUEUE_QOS SQUEUE_SORT SQUEUE_STATES SQUEUE_USERS SACCT_FEDERATION SACCT_LOCAL "
    "SLURM_JSON SLURM_YAML SLURM_CLUSTERS"
)
"""Variables with which users change the output of the commands."""
CLEAN = f"unset {_OVERRIDES}; export SLURM_TIME_FORMAT=%s LC_ALL=C;"
"""The beginning of a command line whose output is parsed."""

_NOT_ELIGIBLE = ("BeginTime", "Dependency", "DependencyNeverSatisfied", "JobHeldAdmin", "JobHeldUser")
"""Pending jobs with these reasons do not keep others waiting."""


@dataclass(frozen=True)
class QueueRow:
    """A job in Slurm's queue, or one that has just left it. Times are in seconds since the epoch."""

    number: str
    """Slurm's number of the job; ``12_3`` for an element of an array."""
    state: str
    reason: str = ""
    start: float | None = None
    """When it started; for a waiting job, when Slurm expects it to start."""
    end: float | None = None
    submitted: float | None = None
    priority: int = 0
    partition: str = ""
    node_count: int = 0
    nodes: str = ""
    name: str = ""
    folder: str = ""
    """The folder from which it was submitted, as an absolute path."""

    @property
    def is_waiting(self) -> bool:
        return is_waiting(self.state)

    @property
    def is_ended(self) -> bool:
        return is_ended(self.state)


def on_cluster(cluster: str) -> str:
    """The option that chooses a cluster other than the default one."""
    return f" --clusters={shlex.quote(cluster)}" if cluster else ""


def squeue_command(cluster: str = "") -> str:
    """The command line that lists all jobs of this user, including those that ended minutes ago."""
    return f"{CLEAN} squeue --me --states=all --array{on_cluster(cluster)} --format={shlex.quote(FORMAT)}"


def is_table(text: str) -> bool:
    """Whether ``text`` is a complete table. After some errors, ``squeue`` exits with code 0, and lists nothing."""
    return (
        text.endswith("\n")
        and any(line.startswith(HEADER) for line in text.splitlines())
        and not _rows(text)[1]
    )


def parse_squeue(text: str) -> dict[str, QueueRow]:
    """The jobs in the output of `squeue_command`, by number. Other lines are ignored."""
    return {row.number: row for row in map(_row, _rows(text)[0]) if row}


def _rows(text: str) -> tuple[list[str], str]:
    """The rows of the table, and an incomplete row at its end. A job's name may contain line breaks."""
    rows, rest = [], ""
    for line in text.splitlines():
        rest = f"{rest} {line}" if rest else line if line[:1].isdigit() else ""
        if rest.count("|") >= _COLUMNS - 1:
            rows.append(rest)
            rest = ""
    return rows, rest


def order_command(cluster: str = "") -> str:
    """The command line that lists the pending jobs of all users."""
    return (
        f"{CLEAN} squeue --states=PENDING --noheader --array{on_cluster(cluster)} "
        f"--format={shlex.quote(_ORDER_FORMAT)}"
    )


def parse_order(text: str, mine: Mapping[str, QueueRow]) -> dict[str, tuple[int, int]]:
    """The best place of each of this user's pending jobs in its partitions, from 1, and how many jobs wait there.

    Slurm starts jobs of a higher priority first, and among those of equal priority the one that was submitted first.
    Jobs that wait for a time, a release or another job are not counted.
    """
    waiting: dict[str, list[tuple[int, tuple[int, int], str]]] = {}
    for number, priority, partitions, reason in _order_rows(text):
        if _is_eligible(priority, reason):
            for partition in partitions.split(","):
                waiting.setdefault(partition, []).append((-priority, _age(number), number))
    places: dict[str, tuple[int, int]] = {}
    for jobs in waiting.values():
        for place, (_, _, number) in enumerate(sorted(jobs), 1):
            row = mine.get(number)
            if row and has_place(row):
                best = places.get(number)
                if best is None or place < best[0]:
                    places[number] = (place, len(jobs))
    return places


def has_place(row: QueueRow) -> bool:
    """Whether the job waits for nothing but nodes."""
    return row.state == PENDING and _is_eligible(row.priority, row.reason)


def _is_eligible(priority: int, reason: str) -> bool:
    return priority > 0 and reason.partition(",")[0] not in _NOT_ELIGIBLE


def _order_rows(text: str) -> Iterator[tuple[str, int, str, str]]:
    for line in text.splitlines():
        fields = line.split("|", 4)
        if len(fields) == 5 and fields[0].isdigit():
            yield _number(fields[0], fields[1]), _integer(fields[2]), fields[3], fields[4].strip()


def _age(number: str) -> tuple[int, int]:
    job, _, index = number.partition("_")
    return int(job), int(index or 0)


def _row(line: str) -> QueueRow | None:
    fields = [field.strip() for field in line.split("|", _COLUMNS - 1)]
    if len(fields) != _COLUMNS or not fields[0].isdigit():
        return None
    job, index, state, start, end, submitted, priority, partition, count, nodes, name, folder, reason = fields
    return QueueRow(
        _number(job, index),
        state,
        reason,
        seconds(start),
        seconds(end),
        seconds(submitted),
        _integer(priority),
        partition,
        _integer(count),
        "" if nodes in ("(null)", "N/A") else nodes,
        name,
        folder,
    )


def _number(job: str, index: str) -> str:
    return f"{job}_{index}" if index.isdigit() else job


def _integer(text: str) -> int:
    return int(text) if text.isdigit() else 0


def seconds(text: str) -> float | None:
    """A time that Slurm printed with ``SLURM_TIME_FORMAT=%s``; None for ``N/A``, ``Unknown`` and ``None``."""
    return float(text) if text.isdigit() and int(text) > 0 else None


OWN_SECONDS = 30.0
"""How long a stop waits for the name of the job that has the submission's number."""
SITE = f"{{ {CLEAN} scontrol show config 2>/dev/null | sed -n 's/^ClusterName *= */site=/p'; }}"
"""The command that prints ``site=`` and the name of the cluster, which distinguishes clusters that share a folder."""


def own_function() -> str:
    """The shell line that defines ``own``, for the commands of `own`. It needs ``say``, which sets ``said``."""
    # a slow controller must not delay the stop, which follows
    squeue = f"timeout {OWN_SECONDS:g} squeue --states=all --noheader --array --format='|%j|%Z|'"
    return f'{CLEAN} own() {{ say {squeue} $1; shift; case $said in *"|"*) echo "$said" | grep -qF "$@";; esac; }}'


def own(submission: Submission, job_name: str) -> str:
    """The command that fails if the job with a submission's number is another one, by the name that Slurm reports.

    It succeeds if Slurm reports no name, because a stop must not depend on one.
    """
    names, folders = signs(job_name, submission.number)
    patterns = [f"|{name}|" for name in names] + [f"/{folder}|" for folder in folders]
    given = " ".join(f"-e {shlex.quote(pattern)}" for pattern in patterns)
    options = f"{on_cluster(submission.cluster)} --jobs={submission.number}".strip()
    return f"own {shlex.quote(options)} {given}"


def signs(job_name: str, number: str) -> tuple[list[str], list[str]]:
    """The names and the folders of the job in Slurm. All elements of an array have those of the array."""
    array, _, index = job_name.rpartition("-")
    if "_" in number and array and index.isdigit():
        return [job_name, array], [job_name, f"{array}-0"]
    return [job_name], [job_name]


SACCT_FORMAT = "JobID,State,ExitCode,End,Timelimit,NodeList,JobName,WorkDir,Reason"
_SACCT_COLUMNS = 9
NO_ACCOUNTING = ("accounting storage is disabled", "not found")
"""Messages of ``sacct``, or of the shell, on a cluster without accounting."""
UNNAMED = "allocation"
"""The accounting's name for a job whose end it has recorded before its start."""
_FIELD = re.compile(r"(?:^|\s)(?P<name>[A-Za-z:/]+)=(?P<value>\S*)")
MOST_AT_ONCE = 500
"""The largest number of jobs in one `sacct_command`, because the length of a shell line is limited."""


def sacct_command(numbers: Iterable[str], cluster: str = "") -> str:
    """The command line for the accounting of these jobs, without their steps."""
    jobs = ",".join(numbers)
    return (
        f"{CLEAN} sacct --allocations --noheader --parsable2{on_cluster(cluster)} --format={SACCT_FORMAT} "
        f"--jobs={shlex.quote(jobs)}"
    )


def parse_sacct(text: str) -> dict[str, Ending]:
    """The jobs in the output of `sacct_command`. For a job that was requeued, the last row counts."""
    found = {}
    for line in text.splitlines():
        fields = [field.strip() for field in line.split("|", _SACCT_COLUMNS - 1)]
        if len(fields) == _SACCT_COLUMNS and fields[0]:
            number, *values = fields
            found[number] = _ending(*values)
    return found


def scontrol_command(number: str, cluster: str = "") -> str:
    """The command line for a job that the controller still lists, some minutes after its end."""
    return f"{CLEAN} scontrol{on_cluster(cluster)} --oneliner show job {shlex.quote(number)}"


def parse_scontrol(text: str) -> Ending | None:
    """The job in the output of `scontrol_command`."""
    for line in text.splitlines():
        # the first field of a name counts: the user's comment, near the end of the line, may contain others
        fields = reversed([*_FIELD.finditer(line)])
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
        # a narrow column of another table ends in a plus sign
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


AWAY = ("Unable to contact", "timed out")
"""Parts of the messages of Slurm's commands if the controller does not answer."""


def signal_command(job_name: str, submissions: Sequence[Submission], name: str, *, unqueue: bool) -> str:
    """The command line that signals the batch step of a job, which passes the signal on to its hosts.

    An unreachable controller keeps each command waiting, so the line ends with the first that fails to reach it.
    Another job that now has the number of this one is not signalled.

    Args:
        unqueue: also take the job out of the queue, if it waits there.
    """
    lines = [f"{own(one, job_name)}; own{index}=$?" for index, one in enumerate(submissions)]
    if unqueue:
        lines += [f"[ $own{index} = 0 ] && {{ {_unqueue(one)}; }}" for index, one in enumerate(submissions)]
    running = (
        "" if unqueue else " --state=RUNNING"
    )  # scancel would wait until a pending job runs, and then signal it
    lines += [
        f"[ $own{index} = 0 ] && say scancel --batch{running} --signal={name}{_names(one)}"
        for index, one in enumerate(submissions)
    ]
    away = "|".join(f'*"{message}"*' for message in AWAY)
    say = f'say() {{ said=$("$@" 2>&1) && return; echo "$said" >&2; case $said in {away}) exit 1;; esac; }}'
    return "\n".join([say, own_function(), *lines])


def _names(one: Submission) -> str:
    return f"{on_cluster(one.cluster)} {shlex.quote(one.number)}"


def _unqueue(one: Submission) -> str:
    """The command that takes a submission out of the queue, if it waits there.

    The waiting elements of an array are one entry of the queue, and ``scancel --state=PENDING`` would cancel them all.
    """
    if "_" not in one.number:
        return f"say scancel --state=PENDING{_names(one)}"
    state = f"squeue --noheader --format=%t{on_cluster(one.cluster)} --jobs={shlex.quote(one.number)}"
    return f'[ "$(timeout {OWN_SECONDS:g} {state} 2>/dev/null)" = PD ] && say scancel{_names(one)}'
