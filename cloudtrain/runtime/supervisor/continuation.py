"""Continues a job that has to give up its hosts: a scheduler starts its next attempt, with another supervisor.

Each submission of such a job has its own supervisor, which reads in the job's record what the earlier ones did. Between
two submissions the record is pending; only the last submission writes a final record.
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
"""Why an attempt ended after the scheduler took its hosts back. Also used by the client and by accounting."""


class Continuation(Protocol):
    """A supervisor's interface to the scheduler of its job. Without one, a supervisor starts every attempt itself."""

    place: str
    """This submission as shown in the log, such as ``Slurm job 4711 on node-1, node-2``."""
    notice_seconds: float
    """A notice that arrives this close to the end of ``max_run`` ends the job: too little time is left to continue."""

    def takes_back(self) -> bool:
        """Whether a signal to end means that the scheduler takes the hosts back, and the job has to continue.

        False if someone has cancelled the job.
        """

    def end(self) -> None:
        """Remove the job from the queue. It has ended, with a final record."""

    def cause(self) -> FailureClass:
        """Why the scheduler takes the hosts back: PREEMPTED, TIME_LIMIT or HOST_LOST."""

    def spare_seconds(self) -> float:
        """How long this submission may train after a notice, which may be early if the time limit is short."""

    def check_next(self, cause: FailureClass) -> None:
        """Raises PlatformError if the next attempt is not allowed, or would be useless.

        Args:
            cause: why the scheduler takes the hosts back.
        """

    def start_next(self) -> str:
        """Let the scheduler start the next attempt after this supervisor has ended. Returns a sentence for the log.

        The record is already pending, because the scheduler may end this process before this method returns. Raises
        PlatformError if nothing will start the next attempt.
        """
