"""The runtime of a spare host, as a process: it prepares the host and waits, or reports why it cannot."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from cloudtrain.contract import FailureClass, FailureReport, Paths, Settings, encode_hyperparameters
from cloudtrain.observe import read_events


def start(base: Path, channel: Path) -> tuple[Paths, subprocess.Popen[bytes]]:
    paths = Paths(base)
    paths.make()
    documents = {
        "hyperparameters": encode_hyperparameters({"sagemaker_program": "train.py"}),
        "resourceconfig": {"current_host": "c", "hosts": ["a", "b", "c"], "network_interface_name": "lo"},
        "inputdataconfig": {"train": {"TrainingInputMode": "File", "S3DistributionType": "FullyReplicated"}},
    }
    for name, document in documents.items():
        (paths.input_config / f"{name}.json").write_text(json.dumps(document))
    settings = Settings(spare=True, channels=(("train", channel.as_uri()),))
    environment = {**os.environ, **settings.to_environ(), "SAGEMAKER_BASE_DIR": str(base)}
    return paths, subprocess.Popen([sys.executable, "-m", "cloudtrain.runtime"], env=environment)


def test_a_spare_host_prepares_itself_and_waits_until_it_is_ended(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/a.txt").write_text("data")
    paths, process = start(tmp_path / "base", tmp_path / "data")
    deadline = time.monotonic() + 60
    while not (paths.events.exists() and '"waits"' in paths.events.read_text()):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.05)
    assert (paths.channel("train") / "a.txt").read_text() == "data"
    assert {event["event"] for event in read_events(paths.events)} == {"spare"}, "no phases of the job"
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 143
    assert not paths.failure_report.exists()


def test_a_spare_host_without_its_data_reports_that(tmp_path: Path) -> None:
    paths, process = start(tmp_path / "base", tmp_path / "nowhere")
    assert process.wait(60) == 1
    report = FailureReport.from_json(paths.failure_report.read_text())
    assert (report.failure_class, report.host, report.phase) == (FailureClass.MISSING_DATA, "c", "fetch")
