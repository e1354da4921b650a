"""Diagnoses of failed ranks."""

from __future__ import annotations

import pytest

from cloudtrain.contract import FailureClass
from cloudtrain.runtime.diagnose.rank_exit import RankExit
from cloudtrain.runtime.diagnose.ranks import (
    diagnose,
    diagnose_server,
    diagnose_torchrun,
)
from cloudtrain.runtime.run_folder import RankRecord


def ending(
    exception_type: str = "", message: str = "", *, code: int = 1, tail: tuple[str, ...] = ()
) -> RankExit:
    record = RankRecord(1, 0, code, exception_type, message, "the traceback", 5.0)
    return RankExit(0, code, 9.0, record, tail)


@pytest.mark.parametrize(
    ("exception_type", "message", "kind"),
    [
        ("ValueError", "x", FailureClass.USER_ERROR),
        ("SyntaxError", "x", FailureClass.SYNTAX_ERROR),
        ("ImportError", "x", FailureClass.IMPORT_ERROR),
        ("ModuleNotFoundError", "No module named 'nosuch'", FailureClass.IMPORT_ERROR),
        ("MemoryError", "", FailureClass.OUT_OF_MEMORY),
        ("FileNotFoundError", "x", FailureClass.MISSING_DATA),
        ("OutOfMemoryError", "CUDA out of memory. Tried to allocate 2 GiB", FailureClass.OUT_OF_MEMORY),
        ("RuntimeError", "[enforce fail] DefaultCPUAllocator: can't allocate", FailureClass.OUT_OF_MEMORY),
        ("OSError", "[Errno 28] No space left on device: 'x'", FailureClass.DISK_FULL),
        ("DistBackendError", "NCCL watchdog: collective timed out", FailureClass.COLLECTIVE_TIMEOUT),
        (
            "DistStoreError",
            "Timed out after 601 seconds waiting for clients.",
            FailureClass.COLLECTIVE_TIMEOUT,
        ),
        ("TimeoutError", "The client socket has timed out after 60s", FailureClass.COLLECTIVE_TIMEOUT),
        ("ReadTimeout", "read timed out", FailureClass.USER_ERROR),
        ("URLError", "<urlopen error timed out>", FailureClass.USER_ERROR),
        ("_ArrayMemoryError", "Unable to allocate 7.45 GiB for an array", FailureClass.OUT_OF_MEMORY),
    ],
)
def test_classes_by_exception(exception_type: str, message: str, kind: FailureClass) -> None:
    report = diagnose(ending(exception_type, message), "algo-1")
    assert (report.failure_class, report.exception_type, report.time) == (kind, exception_type, 5.0)


@pytest.mark.parametrize(
    ("line", "message", "names_keras"),
    [
        ("hvd.broadcast_variables(opt.variables(), 0)", "'list' object is not callable", True),
        ("rows()", "'list' object is not callable", False),
        ("fit()", "compile() got an unexpected keyword argument 'experimental_run_tf_function'", True),
        ("fit()", "'Sequential' object has no attribute 'fit_generator'", True),
        ("SGD(0.1)", "`keras.optimizers.legacy` is not supported in Keras 3.", True),
        ("fit()", "compile() got an unexpected keyword argument 'x'", False),
    ],
)
def test_hint_for_keras_2_scripts(line: str, message: str, names_keras: bool) -> None:
    traceback = f"Traceback (most recent call last):\n    {line}\nTypeError: {message}"
    report = diagnose(
        RankExit(0, 1, 9.0, RankRecord(1, 0, 1, "TypeError", message, traceback, 5.0)), "algo-1"
    )
    assert ("TF_USE_LEGACY_KERAS=1" in report.hint) == names_keras


def test_a_kill_by_the_out_of_memory_killer_is_recognised() -> None:
    killed = RankExit(3, -9, 1.0)
    assert diagnose(killed, "h").failure_class == FailureClass.KILLED
    assert diagnose(killed, "h", memory_kills=1).failure_class == FailureClass.OUT_OF_MEMORY
    assert diagnose(killed, "h").exit_code == 137


def test_without_a_record_the_last_printed_traceback_counts() -> None:
    tail = (
        "Traceback (most recent call last):", "  earlier", "KeyError: 'handled'", "continues",
        "Traceback (most recent call last):", '  File "x.py", line 1', "pkg.mod.CustomError: boom: twice", "bye",
    )  # fmt: skip
    report = diagnose(RankExit(0, 4, 1.0, None, tail), "h")
    assert (report.exception_type, report.message, report.exit_code) == ("CustomError", "boom: twice", 4)
    assert report.traceback.splitlines() == list(tail[4:7])


def test_torchs_prefix_of_a_printed_traceback_is_left_out() -> None:
    """The ranks of a shell script leave no record."""
    lines = ("Traceback (most recent call last):", '  File "x.py", line 1', "pkg.CustomError: boom")
    report = diagnose(RankExit(0, 1, 1.0, None, tuple(f"[rank0]: {line}" for line in lines)), "h")
    assert (report.exception_type, report.message) == ("CustomError", "boom")
    assert report.traceback.splitlines() == list(lines)


def test_a_process_that_torch_spawned_is_the_cause() -> None:
    of_child = (
        'Traceback (most recent call last):\n  File "t.py", line 3, in f\nFileNotFoundError: [Errno 2] x'
    )
    message = f"\n\n-- Process 0 terminated with the following error:\n{of_child}\n"
    record = RankRecord(1, 0, 1, "ProcessRaisedException", message, "Traceback of spawn")
    report = diagnose(RankExit(0, 1, 0.0, record), "")
    assert (report.exception_type, report.message, report.traceback) == (
        "FileNotFoundError",
        "[Errno 2] x",
        of_child,
    )
    assert report.failure_class == FailureClass.MISSING_DATA


def test_without_a_traceback_the_last_line_is_shown() -> None:
    assert (
        diagnose(RankExit(0, 4, 1.0, None, ("a", "b")), "h").summary()
        == "rank 0 on h exited with code 4: its last line: b"
    )


def test_a_torchrun_without_torch_names_no_rank() -> None:
    tail = ("Traceback (most recent call last):", "ModuleNotFoundError: No module named 'torch'")
    report = diagnose_torchrun(RankExit(0, 1, 9.0, None, tail), "/venv/bin/python", "algo-1")
    assert report and report.failure_class == FailureClass.IMPORT_ERROR
    assert report.summary() == (
        "launch on algo-1: the launcher torchrun needs torch, which /venv/bin/python does not have: "
        "no rank was started"
    )
    assert not report.log_tail, "the log has shown it, and the message says it"
    started = RankExit(0, 1, 9.0, RankRecord(1, 0, 1, "ModuleNotFoundError", "x", "", 5.0), tail)
    assert diagnose_torchrun(started, "/venv/bin/python", "algo-1") is None


def test_a_long_last_line_is_cut_in_the_message() -> None:
    """A rank that wrote binary output filled the screen in ``cloudtrain list``."""
    report = diagnose(RankExit(0, 3, 0.0, log_tail=("a" * 5000,)), "h")
    assert report.message == f"its last line: {'a' * 200}..."
    assert report.log_tail == ("a" * 5000,)


def test_a_parameter_server_that_was_killed() -> None:
    """Its last line does not say why."""
    report = diagnose_server(-9, ("To enable the following instructions: AVX2",), "algo-2")
    assert (report.failure_class, report.exit_code) == (FailureClass.KILLED, 137)
    assert report.message == "the parameter server was killed by SIGKILL"


def test_an_exception_without_a_message_shows_its_line() -> None:
    traceback = (
        'Traceback (most recent call last):\n  File "/job/code/train.py", line 7, in <module>\n    main()\n'
        '  File "/job/code/train.py", line 4, in main\n    assert version == "1.9.1"\n           ^^^^^^^\n'
        "AssertionError\n"
    )
    record = RankRecord(1, 0, 1, "AssertionError", "", traceback, 5.0)
    for end in (RankExit(0, 1, 9.0, record), RankExit(0, 1, 9.0, None, tuple(traceback.splitlines()))):
        assert diagnose(end, "algo-1").message == 'assert version == "1.9.1" (train.py, line 4)'
