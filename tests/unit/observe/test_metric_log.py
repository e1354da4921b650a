"""``cloudtrain.log``: what reaches the file of a rank, and what a failing disk does to the script."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from array import array
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cloudtrain.observe.heartbeat import VARIABLE
from cloudtrain.observe.metric_log import log, metrics_path
from tests.metric_logs import log_to

LIBRARY = str(Path(__file__).parents[3])


def calls_in(text: str) -> list[list[Any]]:
    """The time, step, rank and values of each call in the whole lines of a file."""
    calls = []
    for line in text.split("\n")[:-1]:
        if line.endswith('"]'):
            rank, begin, moments, steps, lists, kinds, values = json.loads(line)
            times, numbers = (iter(array("d", bytes.fromhex(digits))) for digits in (moments, values))
            for step, kind in zip(steps, kinds, strict=True):
                named = {name: next(numbers) for name in lists[kind]}
                calls.append([begin + next(times), step, rank, named])
    return calls


def run(tmp_path: Path, script: str, **environ: str) -> tuple[list[Any], str]:
    """The calls in the whole lines that a process with ``script`` writes, with its rank; and its stderr."""
    environment = {"PYTHONPATH": LIBRARY, VARIABLE: str(tmp_path / "beat"), "PATH": "", **environ}
    done = subprocess.run(
        [sys.executable, "-c", f"import cloudtrain\n{script}"],
        env=environment,
        check=True,
        text=True,
        stderr=subprocess.PIPE,
    )
    path = Path(metrics_path(str(tmp_path / "beat")))
    return calls_in(path.read_text() if path.is_file() else ""), done.stderr


def test_each_call_has_time_step_and_rank(tmp_path: Path) -> None:
    lines, errors = run(
        tmp_path, "cloudtrain.log(step=7, loss=0.5, n=3)\ncloudtrain.log({'a/b': 1})", RANK="2"
    )
    assert [line[1:] for line in lines] == [[7, 2, {"loss": 0.5, "n": 3.0}], [1, 2, {"a/b": 1.0}]]
    assert errors == ""


def test_all_values_of_a_fast_script_are_kept(tmp_path: Path) -> None:
    lines, _ = run(tmp_path, "for step in range(20_000): cloudtrain.log(step=step, loss=1 / (step + 1))")
    assert [line[1] for line in lines] == list(range(20_000))


def test_a_forked_process_has_its_own_log(tmp_path: Path) -> None:
    script = """
import os, sys, time
cloudtrain.log(step=1, a=1)
if not os.fork():
    cloudtrain.log(step=2, b=2)
    sys.exit()
os.wait()
"""
    lines, _ = run(tmp_path, script)
    assert sorted(line[3].popitem() for line in lines) == [("a", 1.0), ("b", 2.0)]


def test_a_worker_of_a_data_loader_loses_nothing(tmp_path: Path) -> None:
    script = """
import multiprocessing
cloudtrain.log(step=1, a=1)
worker = multiprocessing.get_context("fork").Process(target=cloudtrain.log, kwargs={"step": 2, "b": 2})
worker.start()
worker.join()
"""
    lines, errors = run(tmp_path, script)
    assert sorted(line[3].popitem() for line in lines) == [("a", 1.0), ("b", 2.0)]
    assert errors == ""


def test_handlers_of_the_end_can_log(tmp_path: Path) -> None:
    script = """
import atexit
for accuracy in (1, 2):
    atexit.register(cloudtrain.log, accuracy=accuracy)
cloudtrain.log(loss=1)
"""
    lines, errors = run(tmp_path, script)
    assert [line[1:] for line in lines] == [
        [0, 0, {"loss": 1.0}],
        [1, 0, {"accuracy": 2.0}],
        [2, 0, {"accuracy": 1.0}],
    ]
    assert errors == ""


def test_only_handlers_of_the_end_log(tmp_path: Path) -> None:
    lines, errors = run(tmp_path, "import atexit\natexit.register(cloudtrain.log, accuracy=1)")
    assert [line[1:] for line in lines] == [[0, 0, {"accuracy": 1.0}]]
    assert errors == ""


def test_values_wait_for_a_full_disk_with_one_warning(tmp_path: Path) -> None:
    script = """
import resource, time
from cloudtrain.observe import metric_log
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, -1))
for step in range(2000):
    cloudtrain.log(step=step, loss=1)
    if step == 1000:
        while not metric_log._log._warned:
            time.sleep(0.01)
        resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))  # there is space again
"""
    lines, errors = run(tmp_path, script)
    assert [line[1] for line in lines] == list(range(2000))
    assert errors.startswith("[cloudtrain] metrics of cloudtrain.log() cannot be written, and wait: ")
    assert errors.count("\n") == 1


def test_a_disk_that_stays_full_loses_values_with_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cloudtrain.observe.metric_log.MOST_WAITING", 1000)
    warnings: list[str] = []
    found = log_to(tmp_path / "missing" / "file", warnings.append, monkeypatch)
    for step in range(2000):
        log(step=step, a=1.0, b=2.0)
    assert len(found.waiting) == 500
    found.close()
    assert [warning for warning in warnings if "are lost" in warning] == warnings[:1]


ENDS_THE_THREAD = """
import ctypes, time
from cloudtrain.observe import metric_log
cloudtrain.log(step=1, loss=1)
for _ in range(2):
    writer = metric_log._log._thread  # threading.enumerate() still has one that ended before it began to run
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(writer.ident), ctypes.py_object(SystemExit))
    while writer.is_alive():
        time.sleep(0.01)
    cloudtrain.log(step=2, loss=2)
    time.sleep(1.1)
    cloudtrain.log(step=3, loss=3)
"""


def test_a_thread_that_dies_is_replaced_with_one_warning(tmp_path: Path) -> None:
    lines, errors = run(tmp_path, ENDS_THE_THREAD)
    assert {line[1] for line in lines} == {1, 2, 3}
    assert errors == (
        "[cloudtrain] the thread of cloudtrain.log() has ended unexpectedly, and was started again\n"
    )


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_dies_while_it_writes_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = log_to(tmp_path / "file", pytest.fail, monkeypatch)
    ends: list[type[BaseException]] = [SystemExit]

    def value() -> float:
        if ends:
            raise ends.pop()
        return 2.0

    log(step=1, loss=1.0)
    found.waiting.append((0.0, 2, {"loss": value}))
    found.close()
    assert not ends
    log(step=3, loss=3.0)
    found.close()
    assert [call[1] for call in calls_in((tmp_path / "file").read_text())] == [1, 2, 3]


def test_no_thread_for_the_log_does_not_reach_the_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    warnings: list[str] = []
    found = log_to(tmp_path / "file", warnings.append, monkeypatch)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        log({"loss": 1.0}, step=1)
    found.close()
    assert len(warnings) == 1
    assert calls_in((tmp_path / "file").read_text())[-1][3] == {"loss": 1.0}


def test_closed_output_does_not_reach_the_script(tmp_path: Path) -> None:
    script = "import sys; sys.stderr.close(); cloudtrain.log(step=1, loss=1); import time; time.sleep(1.5)"
    run(tmp_path, script, **{VARIABLE: str(tmp_path / "no" / "beat")})


def test_a_missing_folder_does_not_reach_the_script(tmp_path: Path) -> None:
    _, errors = run(tmp_path, "cloudtrain.log(step=1, loss=1)", **{VARIABLE: str(tmp_path / "no" / "beat")})
    assert "are lost" in errors
    assert errors.count("\n") == 1


def test_handlers_of_the_end_need_no_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In Python 3.12, they cannot start one."""

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    found = log_to(tmp_path / "file", pytest.fail, monkeypatch)
    log(loss=1.0)
    found.close()
    monkeypatch.setattr(threading.Thread, "start", refuse)
    log(loss=2.0)
    assert [call[3] for call in calls_in((tmp_path / "file").read_text())] == [{"loss": 1.0}, {"loss": 2.0}]


def test_outside_a_job_nothing_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    log(step=1, loss=0.5)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("value", [np.float32(0.5), np.array([0.5]).sum(), True, np.int64(1)])
def test_numbers_of_numpy_are_numbers(tmp_path: Path, value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found = log_to(tmp_path / "file", pytest.fail, monkeypatch)
    log({"x": value}, step=1)
    found.close()
    [[_, _, _, values]] = calls_in((tmp_path / "file").read_text())
    assert values == {"x": float(value)}


def test_torch_tensors_with_one_element_are_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    found = log_to(tmp_path / "file", pytest.fail, monkeypatch)
    loss = torch.tensor([0.25], requires_grad=True)
    log({"loss": loss.sum()}, step=1)
    with pytest.raises(TypeError, match=r"log\(\): loss must be a number"):
        log({"loss": torch.zeros(3)}, step=2)
    found.close()
    assert calls_in((tmp_path / "file").read_text())[0][3] == {"loss": 0.25}


@pytest.mark.parametrize("value", ["0.5", None, [1, 2], {}])
def test_other_values_are_refused_by_name(
    tmp_path: Path, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_to(tmp_path / "file", pytest.fail, monkeypatch)
    with pytest.raises(TypeError, match="loss must be a number or a tensor"):
        log({"loss": value}, step=1)


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 256])
def test_names_that_no_table_can_show_are_refused(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match="a metric needs a name"):
        log_to(tmp_path / "file", pytest.fail, monkeypatch)
        log({name: 1.0}, step=1)


def test_a_number_beyond_all_floats_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log_to(tmp_path / "file", pytest.fail, monkeypatch)
    with pytest.raises(ValueError, match="n is beyond the largest"):
        log(step=1, n=10**400)


@pytest.mark.parametrize("step", [float("nan"), float("inf"), "two", [1]])
def test_other_steps_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: Any) -> None:
    log_to(tmp_path / "file", pytest.fail, monkeypatch)
    with pytest.raises(TypeError, match="step must be a whole number"):
        log(step=step, loss=1.0)


def test_other_names_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log_to(tmp_path / "file", pytest.fail, monkeypatch)
    with pytest.raises(TypeError, match="name of a metric must be a string, not 1"):
        log({1: 0.5}, step=1)  # type: ignore[dict-item]
