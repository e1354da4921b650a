"""How a job continues that has to give up its hosts: a scheduler starts its next attempt, with another supervisor.

One supervisor runs in each submission of such a job, and finds in the job's record what the earlier ones did. Between
two submissions the record is pending; only the last one writes a final record.
"""

from __future__ import annotations

from typing import Protocol

from cloudtrain.contract import FailureClass

PREEMPTED = "preempted"
TAKEN_BACK = {
    FailureClass.PREEMPTED: PREEMPTED,
    FailureClass.TIME_LIMIT: "ended by the scheduler's time limit",
    FailureClass.HOST_LOST: "ended by the loss of a host",
}
"""Why an attempt ended whose hosts the scheduler took back; the supervisor, the client and accounting share it."""


class Continuation(Protocol):
    """The scheduler of a job, as its supervisor sees it. Without one, a supervisor starts every attempt itself."""

    place: str
    """This submission, for the log: ``Slurm job 4711 on node-1, node-2``."""
    notice_seconds: float
    """A notice that arrives this close to the end of ``max_run`` ends the job: nothing is left to continue for."""

    def takes_back(self) -> bool:
        """Whether a signal to end means that the scheduler takes the hosts back, so that the job is to continue.

        False if someone has cancelled the job.
        """

    def end(self) -> None:
        """The job has ended, with a final record: nothing of it stays in the queue."""

    def cause(self) -> FailureClass:
        """Why the scheduler takes the hosts back: PREEMPTED, TIME_LIMIT or HOST_LOST."""

    def spare_seconds(self) -> float:
        """How long this submission may still train after a notice, which may arrive too early for a short limit."""

    def check_next(self, cause: FailureClass) -> None:
        """Raises PlatformError if the job may not make the next attempt, or would make it in vain.

        Args:
            cause: why the scheduler takes the hosts back.
        """

    def start_next(self) -> str:
        """Let the scheduler start the next attempt, once this supervisor has ended. Returns what was done, for the log.

        The record is pending already: the scheduler may end this process before it returns. Raises PlatformError if
        nothing will start the next attempt.
        """
