"""How long a rank waits for its data: what it reports, and what is shown of it."""

from __future__ import annotations

import multiprocessing
import threading
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from cloudtrain._display.waits import data_shares, mean_share
from cloudtrain.observe import Sample, data_wait, heartbeat
from cloudtrain.observe.data_wait import loading_data, watch_loaders
from cloudtrain.runtime.sampling.sampler import _share


@pytest.fixture
def beat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    path = str(tmp_path / "rank-0.heartbeat")
    heartbeat.create(path)
    monkeypatch.setenv(heartbeat.VARIABLE, path)
    monkeypatch.setattr(data_wait, "_state", (0.0, 0.0))
    monkeypatch.setattr(data_wait, "_first", 0.0)
    return path


def _waited(path: str) -> float | None:
    data_wait._report()
    found = heartbeat.read_data(path)
    return found and found[0]


def test_a_wait_counts_while_it_lasts_and_once(beat: str) -> None:
    with loading_data(), loading_data():
        time.sleep(0.02)
        during = _waited(beat)
    after = _waited(beat)
    assert during and after and after >= during >= 0.02
    time.sleep(0.02)
    assert _waited(beat) == after
    assert heartbeat.read(beat) is None  # it does not count as one


def test_the_first_report_covers_an_interval(beat: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank that has just begun to wait has not waited for all of its time."""
    monkeypatch.setattr(data_wait, "INTERVAL", 0.2)
    with loading_data():
        pass
    deadline = time.monotonic() + 60
    while (found := heartbeat.read_data(beat)) is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    _, first, now = found
    assert now - first >= 0.2


def test_iterators_of_loaders_count_in_the_main_thread_only(beat: str) -> None:
    class _BaseDataLoaderIter:
        left = 2

        def __next__(self) -> int:
            time.sleep(0.02)
            if not self.left:
                raise StopIteration
            self.left -= 1
            return self.left

        def __iter__(self) -> _BaseDataLoaderIter:
            return self

    module = ModuleType("torch.utils.data.dataloader")
    watch_loaders(module)  # of a version without such a class
    module._BaseDataLoaderIter = _BaseDataLoaderIter  # type: ignore[attr-defined]
    watch_loaders(module)
    other = threading.Thread(target=lambda: list(_BaseDataLoaderIter()))
    other.start()
    other.join()
    assert data_wait._state == (0.0, 0.0)
    assert list(_BaseDataLoaderIter()) == [1, 0]
    assert (_waited(beat) or 0) >= 0.06  # with the end


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_of_loaders_do_not_count(beat: str, method: str) -> None:
    code = "from cloudtrain.observe.data_wait import _report, loading_data\nwith loading_data(): _report()"
    worker: Any = multiprocessing.get_context(method).Process(target=exec, args=(code,))  # type: ignore[attr-defined]
    worker.start()
    worker.join(120)
    assert worker.exitcode == 0
    assert heartbeat.read_data(beat) is None


@pytest.mark.parametrize("content", [b"", bytes(48), bytes(40)], ids=len)
def test_data_wait_is_unknown_without_a_valid_report(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "rank-0.heartbeat"
    path.write_bytes(content)
    assert heartbeat.read_data(str(path)) is None


@pytest.mark.parametrize(
    ("before", "after", "share"),
    [
        (None, None, None),
        (None, (1.0, 10.0, 20.0), 0.1),
        ((1.0, 10.0, 20.0), (6.0, 10.0, 30.0), 0.5),
        ((1.0, 10.0, 20.0), (1.0, 10.0, 20.0), None),  # no report since then: it is stopped
        ((5.0, 10.0, 20.0), (1.0, 10.0, 30.0), 0.0),
        ((1.0, 10.0, 20.0), (99.0, 10.0, 30.0), 1.0),
        ((1.0, 10.0, 20.0), (float("nan"), 10.0, 30.0), None),
        ((1.0, 10.0, 20.0), (float("inf"), 10.0, 30.0), None),
    ],
    ids=str,
)
def test_the_share_of_the_time_between_reports(
    before: tuple[float, float, float] | None, after: tuple[float, float, float] | None, share: float | None
) -> None:
    assert _share(before, after) == share


def test_the_last_minute_counts_while_the_job_runs() -> None:
    samples = {
        "algo-1": [
            Sample(0, 60, data={0: 1.0}),
            *(Sample(100 + 10 * n, 10, data={0: 0.1, 1: 9.0}) for n in range(3)),
        ],
        "algo-2": [Sample(100, 10)],
    }
    recent = data_shares(samples, is_running=True)
    assert recent == {0: pytest.approx(0.1), 1: 1.0}
    assert data_shares(samples, is_running=False)[0] == pytest.approx(63 / 90)
    assert mean_share(recent) == pytest.approx(0.55)
    assert mean_share({}) is None
