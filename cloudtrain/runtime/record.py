"""What a rank and the runtime of its host know of each other, as files in the host's run folder."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path


def local_rank(environ: Mapping[str, str]) -> int:
    """This process among those of its host, whoever launched it."""
    return int(environ.get("LOCAL_RANK", environ.get("OMPI_COMM_WORLD_LOCAL_RANK", "0")))


def pipe_path(folder: Path, local: int) -> Path:
    """The named pipe that the rank writes its output to."""
    return folder / f"rank-{local}.pipe"


def stacks_path(folder: Path, local: int) -> Path:
    """Where SIGQUIT makes the rank dump its Python stacks."""
    return folder / f"rank-{local}.stacks"


def heartbeat_path(folder: Path, local: int) -> Path:
    """The file whose time of modification is the rank's last sign of life."""
    return folder / f"rank-{local}.heartbeat"


@dataclass(frozen=True)
class RankRecord:
    """A rank that lives, or, with an ``exit_code``, one whose script has ended."""

    pid: int
    rank: int
    exit_code: int | None = None
    exception_type: str = ""
    message: str = ""
    traceback: str = ""
    time: float = 0.0
    """When the script ended, in seconds since the epoch."""

    def write(self, folder: Path, local: int) -> None:
        path = folder / f"rank-{local}.json"
        temporary = path.with_suffix(f".{os.getpid()}")
        temporary.write_text(json.dumps(asdict(self)), encoding="utf-8", errors="backslashreplace")
        temporary.replace(path)

    @classmethod
    def read(cls, folder: Path, local: int) -> RankRecord | None:
        """None where the rank has not come so far."""
        try:
            return cls(**json.loads((folder / f"rank-{local}.json").read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
