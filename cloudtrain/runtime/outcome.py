"""How one host's part of a job ended."""

from __future__ import annotations

import signal
from dataclasses import replace

from cloudtrain._dataclass import dataclass
from cloudtrain._secrets.hiding import ValueHider
from cloudtrain.contract import FailureClass, FailureReport, JobStatus, Paths
from cloudtrain.contract.documents import LARGEST_REPORT
from cloudtrain.contract.failure import FINAL_CODE
from cloudtrain.observe import steady
from cloudtrain.storage.atomic import replace_file
from cloudtrain.storage.disk_reserve import Reserve

SPARES = 2
"""The number of files that describe a failure. The output folder has space reserved for each."""

_STATUS = {FailureClass.TIME_LIMIT: JobStatus.STOPPED, FailureClass.HANG: JobStatus.FAILED}
"""The status of a job that has ended at a limit, by class; ``INTERRUPTED`` for other classes."""

NO_FAULT = (FailureClass.HOST_LOST, FailureClass.PREEMPTED)
"""The classes of failures that are not the script's fault."""


@dataclass(frozen=True)
class HostOutcome:
    """How this host's part ended, which is the same on every host of the job."""

    status: JobStatus
    failure: FailureReport | None = None
    is_announced: bool = True
    """Whether this host prints the failure. Only one of the hosts with this outcome does."""
    is_decided: bool = False
    """Whether the leader, on another host, decided this outcome and reports it too."""

    is_final: bool = False
    """Whether another attempt would end in the same way."""
    leaves_machine: bool = False
    """Whether this host has to free its machine for other hosts, rather than restart in place."""

    @classmethod
    def at_limit(cls, report: FailureReport, *, leads: bool = True) -> HostOutcome:
        """The outcome of a host after the leader has ended the job at one of its `Limits`."""
        status = _STATUS.get(report.failure_class, JobStatus.INTERRUPTED)
        return cls(status, report, is_announced=leads, is_decided=not leads)

    @property
    def leaves_outputs(self) -> bool:
        """Whether a failure left outputs that nothing has tried to upload."""
        tried = (FailureClass.UPLOAD, FailureClass.TIME_LIMIT)
        return self.failure is not None and self.failure.failure_class not in tried

    @property
    def exit_code(self) -> int:
        """0, the exit code of the rank that failed first, or 143 (128 + SIGTERM) if the job was stopped."""
        if self.status == JobStatus.COMPLETED:
            return 0
        return self.failure.exit_code or 1 if self.failure else 128 + signal.SIGTERM

    def exit_code_with(self, restart: int) -> int:
        """The exit code on a platform that restarts all hosts after the code ``restart``, without counting a failure.

        A host returns ``restart`` if it was stopped, if it lost another host, or if the leader reports the failure with
        its own code. If ``restart`` is 0, the platform has no such code; otherwise, a script's `FINAL_CODE` becomes 1.
        """
        if not restart or self.status == JobStatus.COMPLETED:
            return self.exit_code
        if self.failure is None or self.is_decided:
            return restart
        if self.is_final or reached_limit(self.failure):
            return FINAL_CODE
        if self.failure.failure_class in NO_FAULT:
            return restart
        return 1 if self.exit_code in (restart, FINAL_CODE) else self.exit_code

    def write(self, paths: Paths) -> None:
        """Write the files of the contract: ``failure`` or ``success``.

        They replace anything that the script has created at their paths, except folders. Raises OSError.
        """
        if self.failure:
            reserve = Reserve(paths.output, SPARES)
            report = self.failure.shortened(LARGEST_REPORT).to_json()
            reserve.replace(paths.failure_report, report.encode("utf-8", "backslashreplace"))
            reserve.replace(paths.failure, self.failure.reason().encode("utf-8", "backslashreplace"))
        elif self.status == JobStatus.COMPLETED:
            replace_file(paths.success, b"")


def reached_limit(report: FailureReport) -> bool:
    """Whether the runtime has ended the job at one of its `Limits` or for a hang, so that it does not restart."""
    is_limit = report.failure_class in (FailureClass.TIME_LIMIT, FailureClass.PREEMPTED, FailureClass.HANG)
    return is_limit and report.exit_code == FINAL_CODE


def without_secrets(report: FailureReport, hider: ValueHider) -> FailureReport:
    """The report without the values that ``hider`` hides and credentials in URLs. Exceptions may contain both."""
    texts = ("message", "hint", "traceback", "stacks")
    hidden = {name: hider.hide_all(getattr(report, name)) for name in texts}
    return replace(report, **hidden, log_tail=tuple(hider.hide_all(report.log_tail)))


def phase_failure(error: Exception, host: str, phase: str | None, hider: ValueHider) -> FailureReport:
    """The report of ``error`` on ``host``. Does not name a rank."""
    from cloudtrain.runtime.diagnose.ranks import report_error
    from cloudtrain.runtime.inputs.installer import RequirementsFailed

    if isinstance(error, RequirementsFailed):
        return without_secrets(replace(error.report, host=host, time=steady.now()), hider)
    return without_secrets(report_error(error, host, phase), hider)
