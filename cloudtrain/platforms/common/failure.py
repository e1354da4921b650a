"""A report of a failure from the words of a platform, or of the program in a container."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from cloudtrain.contract import FailureReport
from cloudtrain.runtime.diagnose import RankExit, diagnose
from cloudtrain.runtime.run_folder import RankRecord

LastLines = Callable[["str | None"], Mapping[str, Sequence[str]]]
"""The last lines of one host, or of all of them, by host."""

TAIL_LINES = 50

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


def report_from_reason(
    said: str,
    code: int | None,
    advise: Callable[[FailureReport, str], FailureReport] = lambda report, _: report,
) -> FailureReport:
    """The report that the text in ``output/failure`` amounts to: of cloudtrain's runtime, AWS's toolkit or a script.

    Args:
        code: the exit code of the container, if it is known.
        advise: completes the report of a text that neither cloudtrain nor AWS's toolkit has written.
    """
    ours = FailureReport.from_reason(said)
    if ours:
        return replace(ours, exit_code=ours.exit_code if ours.signal or not code else code)
    match = _TOOLKIT.fullmatch(said)
    if match:
        lines = tuple(match["message"].replace("\\n", "\n").strip().split("\n"))
        return _diagnosed(int(match["code"]), lines)
    text = said.strip()
    report = _diagnosed(code or 1, tuple(text.split("\n")) if text else ())
    message = (
        report.message if report.exception_type else text or f"the container exited with code {code or 1}"
    )
    return advise(replace(report, message=message, log_tail=()), text)


def complete_report(report: FailureReport, tails: Mapping[str, Sequence[str]]) -> FailureReport:
    """``report`` with the whole traceback and the last lines that ranks printed.

    Args:
        tails: the last lines of the host that the report names, or of all hosts, by host.
    """
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
