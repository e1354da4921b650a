"""Creates the report of a failure from the reason that a platform or a container's program gives."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from cloudtrain.contract import FailureReport
from cloudtrain.runtime.diagnose.hints.table import UNKNOWN, JobFacts
from cloudtrain.runtime.diagnose.rank_exit import RankExit
from cloudtrain.runtime.diagnose.ranks import diagnose
from cloudtrain.runtime.run_folder import RankRecord

LastLines = Callable[["str | None"], Mapping[str, Sequence[str]]]
"""The last lines of one host, or of every host, by host."""

TAIL_LINES = 50

_TOOLKIT = re.compile(
    r"(?P<error>\w+Error): ?\n?ExitCode (?P<code>-?\d+)\n"
    r"ErrorMessage \"(?P<message>.*?)(?:\"\n(?:ExtraInfo|Command) .*|\"?)",
    re.DOTALL,
)
"""The text that the SageMaker training toolkit (5.1, ``errors.py``) writes if a script fails."""
_EXCEPTION = re.compile(r"(?P<type>[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit))(?:: (?P<message>.*))?")
_RANK = re.compile(r"\[rank (?P<rank>\d+)\] ")
_MPI_RANK = re.compile(r"\[\d+,(?:mpirank:)?(?P<rank>\d+)(?:,[\w.-]+)?\](?:<std\w+>:?| )?")
"""The prefix that mpirun puts before each line under the toolkit: ``[1,mpirank:3,algo-2]<stderr>:``."""


def report_from_reason(
    reason: str,
    code: int | None,
    advise: Callable[[FailureReport, str], FailureReport] = lambda report, _: report,
    facts: JobFacts = UNKNOWN,
) -> FailureReport:
    """Parse the text in ``output/failure``, written by cloudtrain's runtime, AWS's toolkit or a script.

    Args:
        code: the exit code of the container, if there is one.
        advise: completes the report of a text that neither cloudtrain nor AWS's toolkit wrote.
        facts: the facts that hints may name.
    """
    ours = FailureReport.from_reason(reason)
    if ours:
        return replace(ours, exit_code=ours.exit_code if ours.signal or not code else code)
    match = _TOOLKIT.fullmatch(reason)
    if match:
        lines = tuple(match["message"].replace("\\n", "\n").strip().split("\n"))
        return _diagnosed(int(match["code"]), lines, facts)
    text = reason.strip()
    report = _diagnosed(code or 1, tuple(text.split("\n")) if text else (), facts)
    message = (
        report.message if report.exception_type else text or f"the container exited with code {code or 1}"
    )
    return advise(replace(report, message=message, log_tail=()), text)


def complete_report(
    report: FailureReport, tails: Mapping[str, Sequence[str]], facts: JobFacts = UNKNOWN
) -> FailureReport:
    """``report`` with the whole traceback and the last lines that ranks printed.

    Args:
        tails: the last lines of the host that the report names, or of all hosts, by host.
    """
    return _from_all(report, tails, facts) if report.rank is None else _from_rank(report, tails)


def _from_rank(report: FailureReport, tails: Mapping[str, Sequence[str]]) -> FailureReport:
    lines = [line for host in tails for line in tails[host]]
    prefix = f"[rank {report.rank}] "
    tail = tuple(line[len(prefix) :] for line in lines if line.startswith(prefix))[-TAIL_LINES:]
    if not tail:
        return report
    found = _diagnosed(report.exit_code, tail)
    is_whole = found.exception_type == report.exception_type and found.traceback
    return replace(report, log_tail=tail, traceback=found.traceback if is_whole else report.traceback)


def _from_all(report: FailureReport, tails: Mapping[str, Sequence[str]], facts: JobFacts) -> FailureReport:
    """A report without a rank, completed from the first host with a traceback, or else the first host."""
    hosts = sorted((host for host in tails if tails[host]), key=lambda host: not _has_traceback(tails[host]))
    if not hosts:
        return report
    host = hosts[0]
    rank, lines = _failing_rank(tails[host])
    found = _diagnosed(report.exit_code, tuple(lines[-TAIL_LINES:]), facts)
    if found.exception_type is None:
        return replace(report, host=host if len(tails) == 1 else None, log_tail=found.log_tail)
    return replace(
        report,
        failure_class=found.failure_class,
        message=found.message,
        hint=found.hint or report.hint,
        rank=rank,
        host=host,
        exception_type=found.exception_type,
        traceback=found.traceback,
        log_tail=found.log_tail,
    )


def _has_traceback(lines: Sequence[str]) -> bool:
    return any("Traceback (most recent call last)" in line for line in lines)


def _failing_rank(lines: Sequence[str]) -> tuple[int | None, list[str]]:
    """The rank whose lines have a traceback, and its lines without their prefix; all lines if none has one."""
    found = [(_RANK.match(line) or _MPI_RANK.match(line), line) for line in lines]
    blamed = next((match["rank"] for match, line in found if match and _has_traceback([line])), None)
    if blamed is None:
        return None, list(lines)
    return int(blamed), [line[match.end() :] for match, line in found if match and match["rank"] == blamed]


def _diagnosed(code: int, lines: tuple[str, ...], facts: JobFacts = UNKNOWN) -> FailureReport:
    """The report that the runtime would create for a rank that ended this way, without the rank.

    Args:
        code: 128 + n, or -n, for signal n.
        lines: the last lines that it printed.
    """
    killed_by = -code if code < 0 else code - 128 if 128 < code < 193 else None
    record = None if killed_by or _has_traceback(lines) else _named_exception(lines)
    ending = RankExit(0, -killed_by if killed_by else code, 0.0, record, lines)
    return replace(diagnose(ending, "", facts=facts), rank=None, host=None, phase=None, time=None)


def _named_exception(lines: Sequence[str]) -> RankRecord | None:
    """The last line that names an exception, for lines without a traceback."""
    for line in reversed(lines):
        match = _EXCEPTION.fullmatch(line.strip(" :"))
        if match:
            kind = match["type"].rpartition(".")[2]
            return RankRecord(pid=0, rank=0, exception_type=kind, message=match["message"] or "")
    return None
