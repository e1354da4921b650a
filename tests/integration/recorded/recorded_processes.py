"""The jobs of recorded schedulers: real processes of this machine, one for each node, with the node's name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

STATE = Path(os.environ["RECORDED_STATE"])
NODES = ["127.0.0.2", "127.0.0.3"]


def start(script: Path, environ: Mapping[str, str]) -> int:
    """Run a batch script as its scheduler does. Returns the number of its process."""
    names = ("HOME", "PATH", "RECORDED", "RECORDED_STATE")
    kept = {name: os.environ[name] for name in names if name in os.environ}
    with open(STATE / "printed", "ab") as output:
        process = subprocess.Popen(
            [script.absolute()], env={**kept, **environ}, cwd=kept["HOME"], stdin=subprocess.DEVNULL, stdout=output,
            stderr=output, start_new_session=True,
        )  # fmt: skip
    return process.pid


def start_on(node: str, command: Sequence[str], environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Run a command on a node, without input."""
    return subprocess.Popen(
        ["unshare", "-u", "sh", "-c", 'hostname "$0" && exec "$@"', node, *command],
        env=environ, stdin=subprocess.DEVNULL, cwd="/",
    )  # fmt: skip


def keep(job: Mapping[str, Any]) -> None:
    (STATE / "job").write_text(json.dumps(job))


def kept_job() -> Any:
    return json.loads((STATE / "job").read_text()) if (STATE / "job").exists() else None


def is_running(job: Mapping[str, Any] | None) -> bool:
    try:
        return bool(job and job["pid"]) and (
            Path(f"/proc/{job['pid']}/stat").read_text().rpartition(")")[2].split()[0] != "Z"  # type: ignore[index]
        )
    except OSError:
        return False


def main(*commands: Callable[[list[str]], int]) -> None:
    """Run the command under whose name this program is linked."""
    name = Path(sys.argv[0]).name
    sys.exit(next(command for command in commands if command.__name__ == name)(sys.argv[1:]))
