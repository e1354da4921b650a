"""The hosts of a job in the summary of its events."""

from __future__ import annotations

import json

from cloudtrain.observe import Summary, summarize
from cloudtrain.observe.course import MOST_HOSTS
from cloudtrain.observe.summary import HostProgress


def _event(host: str, kind: str, **fields: object) -> dict[str, object]:
    return {"time": 1.8e9, "source": host, "event": kind, **fields}


def test_each_host_has_its_own_state() -> None:
    summary = summarize(
        [
            _event("supervisor", "attempt", attempt=0),
            _event("algo-1", "host", hosts=["algo-1", "algo-2", "algo-3"]),
            _event("algo-2", "host", hosts=["algo-1", "algo-2", "algo-3"]),
            _event("algo-3", "host", hosts=["algo-1", "algo-2", "algo-3"]),
            _event("algo-1", "phase", phase="fetch", state="began"),
            _event("algo-1", "progress", phase="fetch", done=5, total=20),
            _event("algo-1", "progress", phase="train", done=9, total=9),
            _event("algo-2", "phase", phase="train", state="began"),
            _event("algo-2", "outcome", status="Failed", exit_code=1),
            _event("supervisor", "phase", phase="upload", state="began"),
        ]
    )
    assert summary.hosts == {
        "algo-1": HostProgress("fetch", 5, 20),
        "algo-2": HostProgress("Failed"),
        "algo-3": HostProgress("start"),
    }
    assert Summary.from_dict(json.loads(json.dumps(summary.to_dict()))) == summary


def test_the_next_attempt_may_be_on_other_hosts() -> None:
    events = [_event("algo-1", "host"), _event("supervisor", "attempt", attempt=1), _event("algo-7", "host")]
    assert list(summarize(events).hosts) == ["algo-7"]


def test_the_last_step_is_reported() -> None:
    assert summarize([_event("algo-1", "step", step=7, stalled=0.0)]).steps.step == 7


def test_there_are_never_too_many_hosts() -> None:
    events = [
        _event(f"host-{number}", "phase", phase="train", state="began") for number in range(MOST_HOSTS + 9)
    ]
    assert len(summarize(events).hosts) == MOST_HOSTS
