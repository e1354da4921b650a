"""Outputs that could not be uploaded: they stay where they are, and can be sent later."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from cloudtrain.contract import FailureClass, FailureReport
from cloudtrain.observe import steady
from cloudtrain.runtime.diagnose.ranks import report_error

UPLOAD_SECONDS = 3600.0
"""How long to try to upload the outputs of a completed training while the storage does not answer."""


def upload_failure(error: Exception, host: str, job_name: str, folder: Path) -> FailureReport:
    """The report of a job whose training is complete, and whose outputs could not be uploaded.

    Args:
        folder: where the outputs are.
    """
    report = report_error(error, host, "upload")
    if report.failure_class not in (FailureClass.STORAGE, FailureClass.MISSING_DATA, FailureClass.DISK_FULL):
        return report
    return replace(
        report,
        failure_class=FailureClass.UPLOAD,
        message=f"the training is complete, but its outputs could not be uploaded: {report.message}",
        hint=f"They are in {folder}. Send them with: cloudtrain upload {job_name}",
        time=steady.now(),
    )
