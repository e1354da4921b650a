"""Events of hosts, which the supervisor copies: as many as it reads, and a warning about the others."""

from __future__ import annotations

from pathlib import Path

from cloudtrain.observe import EventLog, read_events
from cloudtrain.runtime.supervisor.folder import JobFolder
from cloudtrain.runtime.supervisor.host_events import HostEvents


def test_events_beyond_the_limit_are_warned_about_once(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path)
    paths = folder.host("algo-1")
    paths.make()
    host = EventLog(paths.events, "algo-1", clock=lambda: 1.5)
    copied = HostEvents(folder, EventLog(folder.events, "supervisor"), uploads=True, most=10_000)
    for _ in range(2):
        for number in range(200):
            host.emit("metric", name="loss", value=number + 0.5, rank=0)
        copied.begin(["algo-1"])
        copied.finish()
        copied.finish()
        paths.events.unlink()
    events = read_events(folder.events)
    assert [event["message"] for event in events if event["event"] == "warning"] == 2 * [
        "algo-1 has recorded more than 10000 bytes of events: later ones, such as metrics, are not kept"
    ]
    values = [event["value"] for event in events if event["event"] == "metric"]
    assert values == 2 * [number + 0.5 for number in range(len(values) // 2)]
    assert 80 < len(values) // 2 < 110
