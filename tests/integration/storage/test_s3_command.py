"""``cloudtrain s3``, each call in a separate process."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from command import cloudtrain

from cloudtrain.storage import open_store, state_home
from cloudtrain.testing import stop_s3


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    done = cloudtrain("s3", *arguments, cwd=Path.cwd())
    return subprocess.CompletedProcess(arguments, done.code, done.out, done.err)


def run_json(*arguments: str) -> Any:
    done = run(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(autouse=True)
def _nothing_runs_on() -> Iterator[None]:
    yield
    run("stop")


def use(settings: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in settings.items():
        monkeypatch.setenv(name, value)


def test_a_day_with_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    started = run("start")
    assert started.returncode == 0, started.stderr
    assert "runs at http://127.0.0.1:" in started.stdout

    again = run("start")
    assert again.returncode == 0
    assert "already runs" in again.stdout

    assert run("make-bucket", "data").stdout == "s3://data\n"
    assert run("make-bucket", "data").returncode == 0
    assert run_json("ls", "--local-server")[0]["uri"] == "s3://data"  # without the variables
    settings = run_json("env")
    use(settings, monkeypatch)
    open_store("s3://data").write("key", b"kept")

    assert run("stop").stdout == "The S3 server has stopped.\n"
    assert run("stop").stdout == "No S3 server is running.\n"
    assert run("start").returncode == 0
    assert run_json("env") == settings
    assert open_store("s3://data").read("key") == b"kept"


def test_env_is_for_eval() -> None:
    run("start")
    printed = run("env").stdout
    shell = subprocess.run(
        ["sh", "-c", f"{printed}\nenv"],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": os.environ["PATH"]},
    )
    assert run_json("env").items() <= dict(line.split("=", 1) for line in shell.stdout.splitlines()).items()


def test_features_that_need_a_server_report_that_none_runs() -> None:
    for arguments in (["env"], ["env", "--json"], ["make-bucket", "data"]):
        done = run(*arguments)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == "Error: No S3 server is running.\n  Start one: cloudtrain s3 start\n"
    status = run("status", "--json")
    assert (status.returncode, json.loads(status.stdout)) == (1, {"running": False})


def test_two_simultaneous_starts_give_one_server() -> None:
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda _: run_json("start"), range(2)))
    assert sorted(answer["started"] for answer in answers) == [False, True]
    assert answers[0]["pid"] == answers[1]["pid"] == run_json("status")["pid"]


def test_a_server_that_was_killed_is_not_running(monkeypatch: pytest.MonkeyPatch) -> None:
    first = run_json("start")
    run("make-bucket", "data")
    settings = run_json("env")
    use(settings, monkeypatch)
    open_store("s3://data").write("key", b"kept")
    os.kill(first["pid"], signal.SIGKILL)

    assert run("status").returncode == 1
    assert run("env").returncode == 1
    second = run_json("start")
    assert second["started"]
    assert second["pid"] != first["pid"]
    assert run_json("env") == settings
    assert open_store("s3://data").read("key") == b"kept"


def test_a_state_from_before_a_reboot_is_harmless() -> None:
    """The process id in the state now belongs to another program, which is left alone."""
    run("start")
    run("stop")
    with subprocess.Popen(["sleep", "60"]) as bystander:
        folder = state_home() / "s3"
        state = json.loads((folder / "server.json").read_text())
        (folder / "server.json").write_text(json.dumps({**state, "pid": bystander.pid}))
        (folder / "alive").write_text(f"{bystander.pid} {os.uname().nodename}")
        assert run("status").returncode == 1
        assert run("stop").stdout == "No S3 server is running.\n"
        assert bystander.poll() is None
        assert run_json("start")["started"]
        assert run("stop").stdout == "The S3 server has stopped.\n"
        assert bystander.poll() is None
        bystander.kill()


def test_a_server_that_hangs_can_be_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    pid = run_json("start")["pid"]
    os.kill(pid, signal.SIGSTOP)
    status = run("status")
    assert status.returncode == 1
    assert (
        status.stderr == f"Error: the S3 server (process {pid}) does not respond\n  Run: cloudtrain s3 stop\n"
    )
    monkeypatch.setattr("cloudtrain.testing.daemon.STOP_TIMEOUT", 1.0)
    assert stop_s3()
    assert run("status").stdout == "No S3 server is running.\n"


def test_keys_are_for_the_user_only() -> None:
    run("start")
    secret = run_json("env")["AWS_SECRET_ACCESS_KEY"]
    holders = [
        path for path in (state_home() / "s3").iterdir() if path.is_file() and secret in path.read_text()
    ]
    assert {path.name for path in holders} == {"server.json", "weed-s3.json"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in holders} == {0o600}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["start", "--port", "{taken}"], "port {taken} on 127.0.0.1 is in use"),
        (["start", "--port", "0"], "0 is not in the range"),
        (["start", "--dir", "{file}"], "is a file"),
        (["start", "--dir", "/proc/no"], "/proc/no"),
    ],
)
def test_bad_input_is_one_error_and_starts_nothing(arguments: list[str], says: str, tmp_path: Path) -> None:
    import socket

    (tmp_path / "file").touch()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        words = {"taken": taken.getsockname()[1], "file": tmp_path / "file"}
        done = run(*(argument.format(**words) for argument in arguments))
    assert done.returncode in (1, 2)
    assert says.format(**words) in done.stderr
    assert "Traceback" not in done.stderr
    assert run("status").returncode == 1


def test_a_chosen_folder_is_kept(tmp_path: Path) -> None:
    assert run_json("start", "--dir", str(tmp_path / "own"))["data"] == str(tmp_path / "own")
    run("stop")
    assert run_json("start")["data"] == str(tmp_path / "own")
