"""``cloudtrain preempt`` and ``cloudtrain checkpoints`` as users run them."""

from __future__ import annotations

import time
from pathlib import Path

from command import cloudtrain

TRAINS = """
import os, time
from cloudtrain import environment
from cloudtrain.checkpoint import Checkpointer

checkpointer = Checkpointer(every=1000)
checkpoint = checkpointer.restore()
first = checkpoint.step + 1 if checkpoint else 1
print("first step", first, flush=True)
for step in range(first, first + 1000):
    checkpointer.maybe_save(step, {"step": step}, {"loss": 1 / step})
    environment.exit_if_preempted()
    if checkpoint and step > first + 3 and os.path.exists("{go}"):
        break
    time.sleep(0.05)
"""


def test_a_job_is_preempted_and_its_checkpoints_are_managed(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINS.replace("{go}", str(tmp_path / "go")))
    assert cloudtrain("submit", "train.py", "--name", "trip", "--no-wait", cwd=tmp_path).code == 0
    deadline = time.monotonic() + 120
    while "first step 1\n" not in cloudtrain("logs", "trip", cwd=tmp_path).out:
        assert time.monotonic() < deadline
    preempted = cloudtrain("preempt", "trip", "--json", cwd=tmp_path)
    assert preempted.json["status"] == "Running"
    (tmp_path / "go").touch()
    assert cloudtrain("wait", "trip", cwd=tmp_path).code == 0
    logs = cloudtrain("logs", "trip", cwd=tmp_path).out
    assert "preempted; restarting, preemption 1 of 10" in logs
    ended = cloudtrain("preempt", "trip", cwd=tmp_path)
    assert (ended.code, "is Completed: there is nothing" in ended.err) == (1, True)

    [listed] = cloudtrain("checkpoints", "list", "trip", "--json", cwd=tmp_path).json
    assert f"first step {listed['step'] + 1}\n" in logs
    assert listed["job"] == "trip"
    verified = cloudtrain("checkpoints", "verify", "trip", cwd=tmp_path)
    assert (verified.code, "every byte is as it was saved" in verified.out) == (0, True)
    assert cloudtrain("checkpoints", "download", "trip", "--to", "copy", cwd=tmp_path).code == 0
    [tree] = (tmp_path / "copy").rglob("tree.json")
    tree.write_text("{}")
    damaged = cloudtrain("checkpoints", "verify", "copy", cwd=tmp_path)
    assert (damaged.code, "tree.json has 2 bytes, not" in damaged.out) == (1, True)
    unknown = cloudtrain("checkpoints", "list", "nosuch", cwd=tmp_path)
    assert (unknown.code, unknown.err.count("\n")) == (1, 2)
    assert "there is no job or folder nosuch" in unknown.err
