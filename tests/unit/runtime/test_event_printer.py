"""The events of a host among its output."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cloudtrain.contract import Paths
from cloudtrain.observe import EventLog
from cloudtrain.observe.event_lines import parse_event_line
from cloudtrain.observe.events import MARK
from cloudtrain.runtime.event_printer import EventPrinter
from cloudtrain.runtime.host_config import HostConfig

SCRIPT = """
import json, os, pathlib
forged = json.dumps({"event": "metric", "name": "forged", "value": 1.0, "time": 1})
print("[cloudtrain:event] " + forged)
warning = {"event": "warning", "message": "the token is " + os.environ["TOKEN"]}
lines = [json.dumps({"event": "attempt", "attempt": 7}), json.dumps(warning), "not an event", "x" * 200_000]
pathlib.Path(os.environ["SM_OUTPUT_DIR"], "events.jsonl").open("a").write("\\n".join([*lines, ""]))
for step in range(3000):
    print("loss=%d" % step, "x" * 300)
"""


def events_in(text: str) -> list[dict[str, Any]]:
    parsed = [parse_event_line(line, "j-0") for line in text.splitlines()]
    return [event for event in parsed if event]


def test_a_job_prints_its_events_between_the_lines_of_its_ranks(tmp_path: Path) -> None:
    """And no others: not the values of secrets, nothing that a host cannot report, and no line of a script."""
    paths = Paths(tmp_path / "ml")
    paths.make()
    (paths.code / "train.py").write_text(SCRIPT)
    (paths.input_config / "hyperparameters.json").write_text(json.dumps({"sagemaker_program": "train.py"}))
    settings = {
        "CLOUDTRAIN_EVENT_LINES": "true",
        "CLOUDTRAIN_METRIC_DEFINITIONS": json.dumps([["loss", "loss=(.+?) "]]),
        "CLOUDTRAIN_HIDDEN_VARIABLES": "TOKEN",
        "TOKEN": 'a "secret" é',
    }
    done = subprocess.run(
        [sys.executable, "-m", "cloudtrain.runtime"],
        env={**os.environ, **settings, "SAGEMAKER_BASE_DIR": str(paths.base)},
        stdout=subprocess.PIPE,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0 and "secret" not in done.stdout
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.startswith("[rank 0] loss=")] == [
        f"[rank 0] loss={step} {'x' * 300}" for step in range(3000)
    ]
    assert sum("forged" in line for line in lines) == 1  # the line of the rank, with its prefix
    events = events_in(done.stdout)
    assert len(events) == sum(line.startswith(MARK) for line in lines)
    losses = [event["value"] for event in events if event.get("name") == "loss"]
    assert losses[-1] == 2999 and len(losses) < 20
    kinds = [event["event"] for event in events]
    assert kinds[0] == "host" and "outcome" in kinds[-2:]
    assert {"launch", "phase", "rank-ended"} <= set(kinds) and "attempt" not in kinds
    [warning] = [event["message"] for event in events if event["event"] == "warning"]
    assert warning == "the token is ***"


@pytest.mark.parametrize("place", ["pipe", "link", "folder", "nothing"])
def test_anything_in_place_of_the_file_is_ignored(tmp_path: Path, place: str) -> None:
    paths = Paths(tmp_path / "ml")
    paths.make()
    outside = tmp_path / "outside"
    outside.write_text('{"event": "warning", "message": "outside"}\n')
    ways = {"pipe": os.mkfifo, "link": lambda path: path.symlink_to(outside), "folder": Path.mkdir}
    if place in ways:
        ways[place](paths.events)
    config = HostConfig.read(paths, {})
    with open(tmp_path / "printed", "wb") as printed, EventPrinter(config, {}, printed.fileno()):
        pass
    assert (tmp_path / "printed").read_text() == ""


def test_what_is_recorded_last_is_printed(tmp_path: Path) -> None:
    paths = Paths(tmp_path / "ml")
    paths.make()
    config = HostConfig.read(paths, {})
    with open(tmp_path / "printed", "wb") as printed, EventPrinter(config, {}, printed.fileno()):
        log = EventLog(paths.events, "j-0")
        for value in range(1000):
            log.emit("metric", name="loss", value=float(value), rank=0)
        log.emit("outcome", status="Completed")
    events = events_in((tmp_path / "printed").read_text())
    assert {event["event"] for event in events} == {"metric", "outcome"}
    assert events[-1]["value"] == 999.0


def test_samples_of_other_hosts_are_left_to_their_own_logs(tmp_path: Path) -> None:
    """The leader has their events, too, where they send it their output: its line would name the leader."""
    paths = Paths(tmp_path / "ml")
    paths.make()
    config = HostConfig.read(paths, {})
    for host in (config.host.current, "another"):
        EventLog(paths.events, host).emit("sample", seconds=10.0, cpu=1.0)
        EventLog(paths.events, host).emit("warning", message=f"from {host}")
    with open(tmp_path / "out", "w+b") as file:
        with EventPrinter(config, {}, file.fileno()):
            pass
        events = events_in((tmp_path / "out").read_text())
    assert [event["event"] for event in events] == ["sample", "warning", "warning"]
