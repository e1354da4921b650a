"""A job in containers from macOS, as far as it can be played here, whose engine is behind a TCP port."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from engine_daemon import IMAGE, Engine
from systems.played import commands_on

SCRIPT = """
import os
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], flush=True)
open(f"{os.environ['SM_MODEL_DIR']}/{os.environ['RANK']}", "w").close()
"""


def test_a_job_over_a_remote_docker_host(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    submit = ["submit", "train.py", "--set", f"image_uri={IMAGE}", "--instance-count", "2"]
    with forwarded(engine.url.removeprefix("unix://")) as url:
        done, downloaded, cleaned = commands_on(
            "darwin",
            [*submit, "--processes-per-host", "1", "--name", "contained"],
            ["download", "contained"],
            ["clean"],
            cwd=tmp_path,
            environ={"DOCKER_HOST": url},
        )
    assert done.code == 0, done.err
    assert {"[rank 0] rank 0 of 2", "[rank 1] rank 1 of 2"} <= set(done.out.splitlines())
    assert (downloaded.code, cleaned.out) == (0, "nothing to remove\n")
    assert engine.leftovers() == []


@contextmanager
def forwarded(path: str) -> Iterator[str]:
    """The address of a TCP port that leads to a Unix socket, as an SSH tunnel does."""

    def serve() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            engine = socket.socket(socket.AF_UNIX)
            engine.connect(path)
            for pair in ((client, engine), (engine, client)):
                threading.Thread(target=copy, args=pair, daemon=True).start()

    def copy(source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(1 << 16):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            return

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        yield f"tcp://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
