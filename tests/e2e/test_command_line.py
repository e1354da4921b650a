"""The command line, from submit to download. Each command is a separate process."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command import CLOUDTRAIN, cloudtrain

GOOD = """
import os, sys
from cloudtrain import environment
print("argv", sys.argv[1:])
print("acc=0.5" if environment.rank() == 0 else "other")
open(os.environ["SM_MODEL_DIR"] + "/weights", "w").write("w")
"""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(GOOD)
    (tmp_path / "fails.py").write_text("import sys; print('going'); sys.exit(7)")
    (tmp_path / "sleeps.py").write_text("import time; print('on', flush=True); time.sleep(60)")
    (tmp_path / "job.yaml").write_text(
        "entry_point: train.py\nsource_dir: .\ninstance_count: 2\nhyperparameters: {lr: 1e-3, epochs: 9}\n"
        "metric_definitions: [{Name: acc, Regex: 'acc=([0-9.]+)'}]\n"
    )
    return tmp_path


def test_a_script_from_submit_to_download(here: Path) -> None:
    done = cloudtrain(
        "submit", "train.py", "--processes-per-host", "2", "--name", "first", "--", "--lr", "0.1", cwd=here
    )
    assert done.code == 0, done.err
    assert sorted(done.out.splitlines()) == [
        "[rank 0] acc=0.5", "[rank 0] argv ['--lr', '0.1']", "[rank 1] argv ['--lr', '0.1']", "[rank 1] other",
    ]  # fmt: skip
    assert "Completed" in done.err
    assert "cloudtrain logs first" in done.err
    assert "first" in cloudtrain("list", cwd=here).out
    assert cloudtrain("describe", "first", "--json", cwd=here).json["status"] == "Completed"
    assert cloudtrain("logs", "first", "--rank", "1", cwd=here).out.splitlines() == [
        "[rank 1] argv ['--lr', '0.1']",
        "[rank 1] other",
    ]
    assert cloudtrain("wait", "first", cwd=here).code == 0
    assert cloudtrain("download", "first", "--to", "got", cwd=here).out == "got/model.tar.gz\n"
    assert (here / "got" / "model.tar.gz").exists()


def test_a_job_file_with_changes(here: Path) -> None:
    done = cloudtrain(
        "submit", "job.yaml", "--json", "--set", "hyperparameters.lr=2", "--set", "instance_count=1",
        "--", "--epochs", "5",
        cwd=here,
    )  # fmt: skip
    assert done.code == 0, done.err
    assert (done.json["status"], done.json["metrics"]) == ("Completed", {"acc": 0.5})
    logs = cloudtrain("logs", done.json["name"], "--json", cwd=here).out.splitlines()
    assert logs[0] == """{"rank": 0, "line": "argv ['--epochs', '9', '--lr', '2', '--epochs', '5']"}"""


def test_a_dry_run_prints_the_request_and_starts_nothing(here: Path) -> None:
    done = cloudtrain("submit", "job.yaml", "--dry-run", cwd=here)
    assert done.json["host_count"] == 2
    assert done.json["hyperparameters"]["lr"] == "0.001"
    assert cloudtrain("list", "--json", cwd=here).json == []


def test_the_exit_status_is_that_of_the_job(here: Path) -> None:
    done = cloudtrain("submit", "fails.py", cwd=here)
    assert done.code == 7
    assert "rank 0 on algo-1 exited with code 7" in done.err
    failed = cloudtrain("submit", "fails.py", "--json", cwd=here)
    assert (failed.code, failed.json["failure"]["exit_code"]) == (7, 7)
    assert cloudtrain("wait", failed.json["name"], cwd=here).code == 7


def test_without_waiting_then_stopped(here: Path) -> None:
    name = cloudtrain("submit", "sleeps.py", "--no-wait", cwd=here).out.strip()
    stopped = cloudtrain("stop", name, "--json", cwd=here)
    assert (stopped.code, stopped.json["status"]) == (0, "Stopped")
    assert cloudtrain("wait", name, cwd=here).code == 143


@pytest.mark.parametrize("command", ["submit", "logs"])
def test_ctrl_c_leaves_the_job_running(here: Path, command: str) -> None:
    name = "detached"
    if command == "submit":
        arguments = ["submit", "sleeps.py", "--name", name]
    else:
        cloudtrain("submit", "sleeps.py", "--name", name, "--no-wait", cwd=here)
        arguments = ["logs", "-f", name]
    with subprocess.Popen(
        [CLOUDTRAIN, *arguments], cwd=here, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as client:
        assert client.stdout
        assert client.stderr
        assert client.stdout.readline() == "[rank 0] on\n"
        client.send_signal(signal.SIGINT)
        assert client.wait(60) == 130
        said = client.stderr.read()
    assert f"cloudtrain wait {name}" in said
    assert "Traceback" not in said
    assert cloudtrain("describe", name, "--json", cwd=here).json["status"] == "Running"
    assert cloudtrain("stop", name, cwd=here).out == f"{name}: Stopped\n"


def test_on_a_terminal_ranks_are_coloured_and_phases_shown(here: Path) -> None:

    leader, follower = pty.openpty()
    with subprocess.Popen(
        [CLOUDTRAIN, "submit", "train.py", "--processes-per-host", "2"],
        cwd=here, stdin=follower, stdout=follower, stderr=follower, env={**os.environ, "TERM": "xterm-256color"},
    ) as client:  # fmt: skip
        os.close(follower)
        shown = b""
        with pytest.raises(OSError, match="Input/output error"):  # Linux's end of a terminal
            while True:
                shown += os.read(leader, 65536)
        assert client.wait(60) == 0
    os.close(leader)
    assert b"\x1b[36m[rank 0]" in shown
    assert b"\x1b[35m[rank 1]" in shown
    assert b"train" in shown


def test_a_reader_that_closes_the_pipe(here: Path) -> None:
    (here / "many.py").write_text("for i in range(100_000): print(i)")
    cloudtrain("submit", "many.py", "--name", "many", cwd=here)
    done = subprocess.run(
        f"{CLOUDTRAIN} logs many | head -1", shell=True, cwd=here, capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("[rank 0] 0\n", "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(here: Path, shell: str) -> None:
    assert "_CLOUDTRAIN_COMPLETE" in cloudtrain("completion", shell, cwd=here).out


@pytest.mark.parametrize(
    "command", ["", "submit", "list", "describe", "logs", "wait", "stop", "download", "s3", "completion"]
)
def test_help(here: Path, command: str) -> None:
    done = cloudtrain(*filter(None, [command, "--help"]), cwd=here)
    assert (done.code, done.out[:6]) == (0, "Usage:")


def test_help_and_import_load_nothing_heavy() -> None:
    heavy = {"boto3", "botocore", "rich", "msgspec", "yaml", "torch", "numpy", "pathspec", "sqlite3"}
    for code in ("import cloudtrain", "import cloudtrain.cli"):
        script = f"{code}; import sys; print(*sorted({heavy} & set(sys.modules)))"
        assert subprocess.check_output([sys.executable, "-c", script], text=True).strip() == ""


def test_logs_follow_ends_with_the_job(here: Path) -> None:
    (here / "slow.py").write_text("import time\nfor i in range(3): print(i, flush=True); time.sleep(0.3)")
    name = cloudtrain("submit", "slow.py", "--no-wait", cwd=here).out.strip()
    began = time.monotonic()
    assert cloudtrain("logs", "-f", name, cwd=here).out.splitlines() == [f"[rank 0] {i}" for i in range(3)]
    assert time.monotonic() - began < 60
