"""The states of Slurm's jobs, and reports about jobs that ended without an outcome.

https://slurm.schedmd.com/job_state_codes.html
"""

from __future__ import annotations

import signal
import time

from cloudtrain._dataclass import dataclass
from cloudtrain.contract import FailureClass, FailureReport
from cloudtrain.contract.failure import signal_name
from cloudtrain.runtime.supervisor.continuation import TAKEN_BACK

PENDING = "PENDING"
CANCELLED = "CANCELLED"
TIMEOUT = "TIMEOUT"
WAITING = {PENDING, "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT"}
"""States of a job that has no nodes, but may get some."""
ENDED = {
    "BOOT_FAIL",
    CANCELLED,
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "LAUNCH_FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "RECONFIG_FAIL",
    "REVOKED",
    TIMEOUT,
}
"""In all other states, including those of later versions, a job is still alive."""
NO_OUTPUT_FILE = 53
"""The signal that Slurm reports if a node could not open the file for the output of the batch step."""
RESUMES = "Submit the job again: it resumes from its last checkpoint."


@dataclass(frozen=True)
class Ending:
    """How a job ended, as far as Slurm reports it. Unknown fields are empty."""

    state: str
    """The state alone: ``CANCELLED`` for ``CANCELLED by 1000``."""
    by: str = ""
    """The user, by name or number, who cancelled the job."""
    exit_code: int | None = None
    signal: int | None = None
    """The signal that ended the batch step."""
    reason: str = ""
    """As Slurm writes it: ``NodeDown``, ``TimeLimit``."""
    nodes: str = ""
    limit: str = ""
    """The time limit, as Slurm writes it: ``2-00:00:00``."""
    ended_at: float | None = None
    name: str = ""
    folder: str = ""
    """The folder from which it was submitted, as an absolute path."""


def is_waiting(state: str) -> bool:
    """Whether a job in this state has no nodes, but is in the queue."""
    return state in WAITING


def is_ended(state: str) -> bool:
    return state in ENDED


def explain(ending: Ending, number: str, said: str = "") -> FailureReport:
    """Why a job that wrote no outcome ended, based only on Slurm's report, never on how long the job ran.

    Args:
        number: Slurm's number of the job, for commands.
        said: the last line that the batch step printed.
    """
    kind, message, hint = _cause(ending, number, said)
    killed_by = ending.signal if ending.state == "FAILED" else None
    code = 128 + killed_by if killed_by else ending.exit_code or _exit_code(kind)
    return FailureReport(
        kind, message, hint, exit_code=code, signal=killed_by, time=ending.ended_at or time.time()
    )


def _exit_code(kind: FailureClass) -> int:
    """The exit code of a job that Slurm ended with SIGTERM or SIGKILL, or could not start."""
    if kind == FailureClass.PLATFORM:
        return 1
    return 128 + (signal.SIGTERM if kind in (FailureClass.PREEMPTED, FailureClass.TIME_LIMIT) else 9)


_NOT_BOOTED = (
    FailureClass.HOST_LOST,
    "a node of the job did not boot{nodes}",
    "Submit the job again; leave a node that fails again out with platform_options.exclude.",
)
_CAUSES = {
    "NODE_FAIL": (
        FailureClass.HOST_LOST,
        "a node of the job failed{nodes}",
        f"{RESUMES} If the same node fails again, leave it out with platform_options.exclude.",
    ),
    "BOOT_FAIL": _NOT_BOOTED,
    "RECONFIG_FAIL": _NOT_BOOTED,
    TIMEOUT: (
        FailureClass.TIME_LIMIT,
        f"{TAKEN_BACK[FailureClass.TIME_LIMIT]}{{limit}}",
        f"Increase max_run, up to the limit of the partition. {RESUMES}",
    ),
    "DEADLINE": (
        FailureClass.TIME_LIMIT,
        "the job could not end before its deadline",
        "Set a later platform_options.deadline or a shorter max_run.",
    ),
    "OUT_OF_MEMORY": (
        FailureClass.OUT_OF_MEMORY,
        "Slurm ended the job because it used more memory than it was allocated{nodes}",
        "Ask for more memory with platform_options.mem or mem_per_gpu, or use a smaller batch or fewer workers of data "
        "loaders.",
    ),
    "PREEMPTED": (
        FailureClass.PREEMPTED,
        "Slurm gave the nodes of the job to a job of a higher priority",
        f"{RESUMES} A partition or QOS that is not preempted keeps its nodes.",
    ),
    CANCELLED: (
        FailureClass.KILLED,
        "{cancelled}",
        f"The user who cancelled it, or the administrators of the cluster, may know the reason. {RESUMES}",
    ),
}
"""The failure class, the message and the hint for each state that itself is the reason."""


def _cause(ending: Ending, number: str, said: str) -> tuple[FailureClass, str, str]:
    if ending.state not in _CAUSES:
        return _failed(ending, number, said)
    kind, message, hint = _CAUSES[ending.state]
    facts = {
        "nodes": f" (nodes: {ending.nodes})" if ending.nodes else "",
        "limit": f" of {ending.limit}" if ending.limit else "",
        "cancelled": cancelled_by(ending),
    }
    return kind, message.format(**facts), hint


def cancelled_by(ending: Ending) -> str:
    """Who cancelled the job, if Slurm reports it."""
    if ending.by in ("root", "0"):
        return "an administrator (root) cancelled the job in Slurm"
    return f"user {ending.by} cancelled the job in Slurm" if ending.by else "the job was cancelled in Slurm"


def _failed(ending: Ending, number: str, said: str) -> tuple[FailureClass, str, str]:
    words = f": {said}" if said else ""
    if ending.state == "FAILED" and ending.signal == NO_OUTPUT_FILE:
        return (
            FailureClass.PLATFORM,
            "the first node of the job could not write into the job's folder",
            "All nodes must share that folder, and you must be able to write there: set platform_options.folder.",
        )
    if ending.state == "FAILED" and ending.signal:
        name = signal_name(ending.signal)
        hint = (
            "The kernel of the node may have run out of memory: ask for more with platform_options.mem."
            if ending.signal == 9
            else "Look at the last lines of its output."
        )
        return FailureClass.KILLED, f"the batch step of the job was killed by {name}{words}", hint
    if ending.state == "LAUNCH_FAILED" or (ending.reason == "JobLaunchFailure" and not ending.exit_code):
        return (
            FailureClass.PLATFORM,
            f"Slurm could not start the job on its nodes{f' ({ending.nodes})' if ending.nodes else ''}{words}",
            "The log of slurmd on the first node has the reason: a missing folder, user or prolog. Leave the node out "
            f"with platform_options.exclude, or ask the administrators about job {number}.",
        )
    if ending.state == "COMPLETED":
        return (
            FailureClass.PLATFORM,
            f"the batch step ended without an outcome{words}",
            "Its folder may be full, or not shared with the nodes: check both with cloudtrain doctor --platform slurm.",
        )
    if ending.exit_code:
        return (
            FailureClass.PLATFORM,
            f"the batch step exited with code {ending.exit_code} and left no outcome{words}",
            "The end of its output has the reason: a module, the prologue, or the Python of the node.",
        )
    return (
        FailureClass.PLATFORM,
        f"Slurm says {ending.state or 'nothing'} of the job, which left no outcome{words}",
        f"Ask the administrators of the cluster about job {number}.",
    )
