"""Why a training job failed: from its FailureReason, completed from its logs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cloudtrain.aws.advice import find_advice
from cloudtrain.contract import FailureClass, FailureReport
from cloudtrain.errors import PlatformError
from cloudtrain.runtime.diagnose import RankExit, diagnose
from cloudtrain.runtime.run_folder import RankRecord

LastLines = Callable[["str | None"], Mapping[str, Sequence[str]]]
"""The last lines of one host, or of all of them, by host."""

TAIL_LINES = 50

_REASON = re.compile(
    r"(?:(?P<kind>AlgorithmError|ClientError|CapacityError|InternalServerError): ?)?"
    r"(?P<said>.*?)(?:,? *exit code: (?P<code>-?\d+))?\s*",
    re.DOTALL,
)
_SAGEMAKER_ITSELF = re.compile(r"(ClientError|CapacityError|InternalServerError): ")
_TOOLKIT = re.compile(
    r"(?P<error>\w+Error): ?\n?ExitCode (?P<code>-?\d+)\n"
    r"ErrorMessage \"(?P<message>.*?)(?:\"\n(?:ExtraInfo|Command) .*|\"?)",
    re.DOTALL,
)
"""What the SageMaker training toolkit (5.1, ``errors.py``) writes of a script that failed."""
_EXCEPTION = re.compile(r"(?P<type>[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit))(?:: (?P<message>.*))?")
_RANK = re.compile(r"\[rank (?P<rank>\d+)\] ")
_MPI_RANK = re.compile(r"\[\d+,(?:mpirank:)?(?P<rank>\d+)(?:,[\w.-]+)?\](?:<std\w+>:?| )?")
"""What mpirun puts before each line under the toolkit: ``[1,mpirank:3,algo-2]<stderr>:``."""


def from_failure_reason(answer: Mapping[str, Any]) -> FailureReport:
    """The report that the FailureReason of a failed job amounts to.

    Args:
        answer: what DescribeTrainingJob says of it.
    """
    match = _REASON.fullmatch(answer.get("FailureReason", ""))
    assert match, "every text fits"
    kind, said = match["kind"], match["said"]
    code = int(match["code"]) if match["code"] else None
    ended = answer.get("TrainingEndTime")
    when = ended.timestamp() if ended else None
    ours = FailureReport.from_reason(said)
    if ours:
        return replace(ours, exit_code=ours.exit_code if ours.signal or not code else code, time=when)
    if kind == "AlgorithmError" or (kind is None and code is not None):
        return replace(_from_toolkit(said, code), time=when)
    message = f"{kind}: {said}" if kind else said or "SageMaker does not say why"
    return _advised(FailureReport(FailureClass.PLATFORM, message, time=when), message)


def complete(report: FailureReport, last_lines: LastLines) -> FailureReport:
    """The same with what the job's last lines tell: the whole traceback, what was printed before the end.

    Where these cannot be read, or the script is not to blame, the report stays as it is.
    """
    if report.rank is None and (report.host or _SAGEMAKER_ITSELF.match(report.message)):
        return report
    try:
        tails = last_lines(report.host)
    except PlatformError:
        return report
    return _from_all(report, tails) if report.rank is None else _from_rank(report, tails)


def _from_rank(report: FailureReport, tails: Mapping[str, Sequence[str]]) -> FailureReport:
    lines = [line for host in tails for line in tails[host]]
    prefix = f"[rank {report.rank}] "
    tail = tuple(line[len(prefix) :] for line in lines if line.startswith(prefix))[-TAIL_LINES:]
    if not tail:
        return report
    told = _diagnosed(report.exit_code, tail)
    is_whole = told.exception_type == report.exception_type and told.traceback
    return replace(report, log_tail=tail, traceback=told.traceback if is_whole else report.traceback)


def _from_all(report: FailureReport, tails: Mapping[str, Sequence[str]]) -> FailureReport:
    """A report that blames nobody, completed from the first host that tells of an exception, or the first of all."""
    hosts = sorted((host for host in tails if tails[host]), key=lambda host: not _tells(tails[host]))
    if not hosts:
        return report
    host = hosts[0]
    rank, lines = _failing_rank(tails[host])
    told = _diagnosed(report.exit_code, tuple(lines[-TAIL_LINES:]))
    if told.exception_type is None:
        return replace(report, host=host if len(tails) == 1 else None, log_tail=told.log_tail)
    return replace(
        report,
        failure_class=told.failure_class,
        message=told.message,
        hint=told.hint or report.hint,
        rank=rank,
        host=host,
        exception_type=told.exception_type,
        traceback=told.traceback,
        log_tail=told.log_tail,
    )


def _tells(lines: Sequence[str]) -> bool:
    return any("Traceback (most recent call last)" in line for line in lines)


def _failing_rank(lines: Sequence[str]) -> tuple[int | None, list[str]]:
    """The rank whose lines tell of an exception, and its lines without their prefix; all lines if none has one."""
    found = [(_RANK.match(line) or _MPI_RANK.match(line), line) for line in lines]
    blamed = next((match["rank"] for match, line in found if match and _tells([line])), None)
    if blamed is None:
        return None, list(lines)
    return int(blamed), [line[match.end() :] for match, line in found if match and match["rank"] == blamed]


def _from_toolkit(said: str, code: int | None) -> FailureReport:
    """From the words of AWS's training toolkit, or of a script that wrote ``output/failure`` itself."""
    match = _TOOLKIT.fullmatch(said)
    if match:
        lines = tuple(match["message"].replace("\\n", "\n").strip().split("\n"))
        return _diagnosed(int(match["code"]), lines)
    text = said.strip()
    report = _diagnosed(code or 1, tuple(text.split("\n")) if text else ())
    message = (
        report.message if report.exception_type else text or f"the container exited with code {code or 1}"
    )
    return _advised(replace(report, message=message, log_tail=()), text)


def _diagnosed(code: int, lines: tuple[str, ...]) -> FailureReport:
    """What the runtime would say of a rank that ended so; it blames no rank.

    Args:
        code: 128 + n, or -n, for signal n.
        lines: the last that it printed.
    """
    killed_by = -code if code < 0 else code - 128 if 128 < code < 193 else None
    record = None if killed_by or _tells(lines) else _named_exception(lines)
    ending = RankExit(0, -killed_by if killed_by else code, 0.0, record, lines)
    return replace(diagnose(ending, ""), rank=None, host=None, phase=None, time=None)


def _named_exception(lines: Sequence[str]) -> RankRecord | None:
    """Of lines without a traceback: the last one that names an exception."""
    for line in reversed(lines):
        match = _EXCEPTION.fullmatch(line.strip(" :"))
        if match:
            kind = match["type"].rpartition(".")[2]
            return RankRecord(pid=0, rank=0, exception_type=kind, message=match["message"] or "")
    return None


def _advised(report: FailureReport, text: str) -> FailureReport:
    """With the class and the hint that are known for ``text``."""
    advice = find_advice(text)
    if advice is None or report.exception_type:
        return report
    return replace(report, failure_class=advice.failure_class, hint=advice.hint)
