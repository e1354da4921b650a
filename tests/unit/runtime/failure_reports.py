"""The failure report of each way in which a host, a rank or a program of a job fails.

python tests/unit/runtime/failure_reports.py    writes tests/data/failure_reports.json again

A change of the code that is meant to change nothing leaves this file as it is.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from cloudtrain.contract import FailureClass, FailureReport
from cloudtrain.errors import InvalidJob, NotFound
from cloudtrain.runtime.diagnose.first_cause import Failures
from cloudtrain.runtime.diagnose.hangs import Hang, Position
from cloudtrain.runtime.diagnose.rank_exit import RankExit
from cloudtrain.runtime.diagnose.ranks import (
    diagnose,
    diagnose_agent,
    diagnose_command,
    diagnose_server,
    diagnose_torchrun,
    report_error,
)
from cloudtrain.runtime.launchers.gpu_environment import differing_gpus
from cloudtrain.runtime.outputs.upload import upload_failure
from cloudtrain.runtime.run_folder import RankRecord

FILE = Path(__file__).parents[2] / "data" / "failure_reports.json"

HOST = "algo-1"
TRACE = (
    'Traceback (most recent call last):\n  File "/opt/ml/code/train.py", line 4, in <module>\n    main()\n'
)
XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus."

EXCEPTIONS = {
    "a mistake": ("ValueError", "bad sample"),
    "an assertion without a message": ("AssertionError", ""),
    "a syntax error": ("SyntaxError", "invalid syntax (train.py, line 1)"),
    "a module that is not there": ("ModuleNotFoundError", "No module named 'yaml'"),
    "a file that is not there": (
        "FileNotFoundError",
        "[Errno 2] No such file or directory: 'data/train.csv'",
    ),
    "a full disk": ("OSError", "[Errno 28] No space left on device"),
    "no memory": ("MemoryError", ""),
    "no memory of the GPU": ("OutOfMemoryError", "CUDA out of memory. Tried to allocate 2.00 GiB"),
    "a lost rank, seen by Gloo": (
        "RuntimeError",
        "[../gloo/pair.cc:534] Connection closed by peer [10.0.0.2]:4711",
    ),
    "a lost rank, seen by Horovod": ("HorovodInternalError", "an operation failed"),
    "a collective that timed out": ("CollectiveError", "no answer of rank 1 within 60 s"),
    "a store that timed out": (
        "DistStoreError",
        "Timed out after 61 seconds waiting for clients. 1/2 clients joined.",
    ),
    "a port in use": ("OSError", "[Errno 98] Address already in use"),
    "a variable of a launcher": ("KeyError", "'LOCAL_RANK'"),
    "an interrupt": ("KeyboardInterrupt", ""),
}
SIGNALS = {"SIGHUP": 1, "SIGABRT": 6, "SIGKILL": 9, "SIGSEGV": 11, "SIGTERM": 15}


def _raised(kind: str, message: str, *, rank: int = 0, time: float = 5.0) -> RankExit:
    end = f"{kind}: {message}" if message else kind
    code = 130 if kind == "KeyboardInterrupt" else 1
    record = RankRecord(1, rank, code, kind, message, f"{TRACE}{end}\n", time)
    return RankExit(rank, code, 9.0, record, ("epoch 1", end))


def _of_ranks() -> Iterator[tuple[str, FailureReport]]:
    for name, (kind, message) in EXCEPTIONS.items():
        yield f"exception: {name}", diagnose(_raised(kind, message), HOST)
    for name, number in SIGNALS.items():
        yield f"signal: {name}", diagnose(RankExit(2, -number, 9.0, RankRecord(1, 2), ("epoch 1",)), HOST)
    killed = RankExit(0, -9, 9.0, RankRecord(1, 0))
    yield "signal: SIGKILL for lack of memory", diagnose(killed, HOST, memory_kills=1)
    yield "exit: a code", diagnose(RankExit(0, 3, 9.0, RankRecord(1, 0), ("no data",)), HOST)
    yield "exit: a text", diagnose(RankExit(0, 1, 9.0, RankRecord(1, 0, 1, "SystemExit", "no data")), HOST)
    yield "exit: a shell's code of a signal", diagnose(RankExit(0, 139, 9.0, None, ("core dumped",)), HOST)
    printed = (*TRACE.splitlines(), "KeyError: 'label'")
    yield "exit: a traceback that was only printed", diagnose(RankExit(0, 1, 9.0, None, printed), HOST)
    crashed = "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc"
    yield "crash: no memory", diagnose(RankExit(0, -6, 9.0, None, (), crashed), HOST)
    lost = "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely."
    yield "crash: NCCL lost a rank", diagnose(RankExit(0, -6, 9.0, None, (), lost), HOST)
    yield "crash: a GPU failed", diagnose(RankExit(0, -6, 9.0, None), HOST, gpu_faults=XID)


def _of_programs() -> Iterator[tuple[str, FailureReport]]:
    tail = ("-----", "An ORTE daemon has unexpectedly failed", "-----")
    for started in (False, True):
        yield f"mpirun: ranks started: {started}", diagnose_agent("mpirun", 213, started, tail, HOST)
    yield "mpirun: killed", diagnose_agent("the daemon of mpirun", -9, True, (), HOST)
    for name, code, unstarted, left in (
        ("no rank started", 0, [0, 1], []),
        ("failed without ranks", 2, [0], []),
        ("ended before its ranks", 0, [], [1]),
        ("killed", -9, [], [0, 1]),
    ):
        yield (
            f"command: {name}",
            diagnose_command("accelerate", code, unstarted, left, not unstarted, ("usage",), HOST),
        )
    for code in (1, -11):
        yield f"parameter server: {code}", diagnose_server(code, ("it failed",), HOST)
    no_torch = RankExit(0, 1, 9.0, None, ("ModuleNotFoundError: No module named 'torch'",))
    report = diagnose_torchrun(no_torch, "/usr/bin/python", HOST)
    assert report
    yield "torchrun: no torch", report


def _of_hosts() -> Iterator[tuple[str, FailureReport]]:
    errors = {
        "a job that is not valid": InvalidJob("the job names no entry point", hint="Name one."),
        "a channel without data": NotFound("there is nothing at s3://bucket/train"),
        "a full disk": OSError(errno.ENOSPC, "No space left on device"),
        "a storage error": OSError(errno.EIO, "Input/output error"),
        "an unexpected error": RuntimeError("unexpected"),
    }
    for name, error in errors.items():
        yield f"runtime: {name}", report_error(error, HOST, "fetch")
    yield (
        "upload: a storage error",
        upload_failure(errors["a storage error"], HOST, "job-1", Path("/jobs/job-1")),
    )
    yield (
        "upload: an unexpected error",
        upload_failure(errors["an unexpected error"], HOST, "job-1", Path("/jobs")),
    )
    yield "host: lost", FailureReport.host_lost("algo-2", "no message for 30 s", 5.0)
    gpus = differing_gpus({HOST: (4, 4), "algo-2": (2, 2)})
    assert gpus
    yield "hosts: different GPUs", gpus


def _of_jobs() -> Iterator[tuple[str, FailureReport]]:
    cause = diagnose(_raised("ValueError", "bad sample", rank=1, time=6.0), "algo-2")
    lost = diagnose(_raised("RuntimeError", EXCEPTIONS["a lost rank, seen by Gloo"][1]), HOST)
    aborted = diagnose(RankExit(0, -6, 4.0, None, (), "ncclRemoteError: A call failed"), HOST)
    host = FailureReport.host_lost("algo-2", "its runtime exited without a report", 1.0)
    ended_by_signal = diagnose(RankExit(0, -15, 3.0, RankRecord(1, 0)), HOST)
    for name, reports, ended in (
        ("one rank lost the other", (lost, cause), ()),
        ("native code ended one rank", (aborted, cause), ()),
        ("a signal ended one rank", (ended_by_signal, cause), ()),
        ("a host and a rank", (host, cause), ()),
        ("a host and a rank that lost it", (lost, host), ()),
        ("a rank had ended", (lost,), (1,)),
    ):
        failures = Failures()
        for report in reports:
            failures.add(report)
        yield f"cause: {name}", failures.cause(ended)
    hung = FailureReport(FailureClass.HANG, "no heartbeat", rank=0, host=HOST, phase="train")
    hang = Hang()
    for host_name, position in ((HOST, Position(0, 6, True, 9.0)), ("algo-2", Position(1, 5, False, 30.0))):
        hang.add(host_name, {"positions": [position], "limit": 5.0, "tail": ["epoch 1"]})
    yield "hang: by the heartbeats", hang.blame(hung)


def reports() -> dict[str, FailureReport]:
    """The reports by case, without the times at which they were made."""
    found = [*_of_ranks(), *_of_programs(), *_of_hosts(), *_of_jobs()]
    return {name: replace(report, time=None) for name, report in found}


def rendered() -> str:
    shown = {}
    for name, report in reports().items():
        fields = {key: value for key, value in report.to_dict().items() if value not in (None, "", [])}
        shown[name] = {"summary": report.summary(), **fields}
    return json.dumps(shown, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(rendered(), encoding="utf-8")
