"""The report of an error in a phase of a host: before its ranks start, or after they have ended."""

from __future__ import annotations

from dataclasses import replace

from cloudtrain._secrets.hiding import ValueHider
from cloudtrain.contract import FailureReport
from cloudtrain.observe import steady
from cloudtrain.runtime.outcome import without_secrets


def phase_failure(error: Exception, host: str, phase: str | None, hider: ValueHider) -> FailureReport:
    """The report of ``error`` on ``host``. Does not name a rank."""
    from cloudtrain.runtime.diagnose.ranks import report_error
    from cloudtrain.runtime.inputs.installer import RequirementsFailed

    if isinstance(error, RequirementsFailed):
        return without_secrets(replace(error.report, host=host, time=steady.now()), hider)
    return without_secrets(report_error(error, host, phase), hider)
