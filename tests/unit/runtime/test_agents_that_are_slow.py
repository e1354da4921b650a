"""An agent, such as torchrun, that gets no processor for a while and reports the ends of its ranks late."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from cloudtrain.contract import RankSlot
from cloudtrain.runtime.launchers import agent_launches
from cloudtrain.runtime.launchers.agent_launches import AgentLaunch, CommandLaunch, TorchrunLaunch
from cloudtrain.runtime.launchers.launch import LaunchPlan
from cloudtrain.runtime.output import OutputMerger
from cloudtrain.runtime.run_folder import RankRecord, write_code


@pytest.mark.parametrize(
    ("kind", "recorded", "code"),
    [(TorchrunLaunch, 0, None), (TorchrunLaunch, 3, 3), (TorchrunLaunch, None, -9), (CommandLaunch, 0, 0)],
)
def test_a_rank_that_is_gone_after_its_success_was_not_killed(
    kind: type[AgentLaunch],
    recorded: int | None,
    code: int | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(agent_launches, "VANISHED_SECONDS", 0.0)
    plan = LaunchPlan(tuple(RankSlot.on_host(0, 1, 1)), ("sleep", "600"), {}, ({},), tmp_path, tmp_path)
    with open(tmp_path / "merged", "wb") as target:
        launch = kind(plan, OutputMerger(target.fileno(), tmp_path))
        launch.start()
        with subprocess.Popen(["true"]) as rank:
            pass
        RankRecord(rank.pid, 0, exit_code=recorded).write(str(tmp_path), 0)
        assert [one.exit_code for one in launch.poll()] == [code] * (code is not None)
        write_code(str(tmp_path), 0, 0)
        launch.poll()
        assert launch.exits[0].exit_code == (code or 0)
        launch.kill()
        launch.output.close()


@pytest.mark.parametrize(("command", "code"), [("exit 0", None), ("exit 3", 3), ("kill -9 $$", -9)])
def test_a_rank_that_its_agent_has_not_asked_for_left_its_exit_code(
    command: str, code: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as one that ends by `os._exit(0)`: it records nothing."""
    monkeypatch.setattr(agent_launches, "VANISHED_SECONDS", 0.0)
    plan = LaunchPlan(tuple(RankSlot.on_host(0, 1, 1)), ("sleep", "600"), {}, ({},), tmp_path, tmp_path)
    with open(tmp_path / "merged", "wb") as target:
        launch = TorchrunLaunch(plan, OutputMerger(target.fileno(), tmp_path))
        launch.start()
        with subprocess.Popen(["sh", "-c", command]) as rank:
            os.waitid(os.P_PID, rank.pid, os.WEXITED | os.WNOWAIT)  # it stays a zombie
            RankRecord(rank.pid, 0).write(str(tmp_path), 0)
            assert [one.exit_code for one in launch.poll()] == [code] * (code is not None)
        launch.kill()
        launch.output.close()
