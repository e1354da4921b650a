"""What a rank and the runtime of its host know of each other, as files in the host's run folder.

Every rank imports this before its script: nothing heavy here, and paths are strings.
"""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


RANK_FILE = "cloudtrain/runtime/rank.py"
TORCHRUN_FILE = "cloudtrain/runtime/torchrun_agent.py"
"""Programs that run in the script's interpreter, relative to the folder that it imports cloudtrain from."""

LIBRARY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
"""The folder that this process imports cloudtrain from."""
RANK_PROGRAM = f"{LIBRARY}/{RANK_FILE}"
REMOTE_SHELL_PROGRAM = f"{LIBRARY}/cloudtrain/runtime/remote_shell.py"
PARENT_DEATH_PROGRAM = f"{LIBRARY}/cloudtrain/runtime/parent_death.py"
"""Programs are started by path: with ``-m``, a ``json.py`` in the user's working folder would shadow the module."""

SCRIPT_PYTHONPATH = "CLOUDTRAIN_PYTHONPATH"
"""The PYTHONPATH that the script is promised; set once what stands before the script is imported."""


def local_rank(environ: Mapping[str, str]) -> int:
    """This process among those of its host, whoever launched it."""
    return int(environ.get("LOCAL_RANK", "0"))


def pipe_path(folder: str, local: int) -> str:
    """The named pipe that the rank writes its output to."""
    return f"{folder}/rank-{local}.pipe"


def stacks_path(folder: str, local: int) -> str:
    """Where SIGQUIT makes the rank dump its Python stacks."""
    return f"{folder}/rank-{local}.stacks"


def heartbeat_path(folder: str, local: int) -> str:
    """The file whose time of modification is the rank's last sign of life."""
    return f"{folder}/rank-{local}.heartbeat"


def command_path(folder: str) -> str:
    """The working folder and the command of ranks that their launcher tells neither, separated by NUL."""
    return f"{folder}/command"


def stopping_path(folder: str) -> str:
    """Is there once the ranks were asked to stop: none is to be started any more."""
    return f"{folder}/stopping"


def spawn_address_path(folder: str) -> str:
    """Where the leader listens for mpirun's remote shell: ``address:port token``; on the host of rank 0."""
    return f"{folder}/spawn"


def write_code(folder: str, local: int, code: int) -> None:
    """Tell, beside a rank, how its process has ended just now: its exit code, negative for a signal."""
    temporary = f"{folder}/rank-{local}.code.{os.getpid()}"
    with open(temporary, "w") as file:
        file.write(f"{code} {time.time()}")
    os.replace(temporary, f"{folder}/rank-{local}.code")


def read_code(folder: str, local: int) -> tuple[int, float] | None:
    """What `write_code` told, and when, in seconds since the epoch."""
    try:
        with open(f"{folder}/rank-{local}.code") as file:
            code, ended = file.read().split()
    except FileNotFoundError:
        return None
    return int(code), float(ended)


class RankRecord:
    """A rank that lives, or, with an ``exit_code``, one whose script has ended.

    ``time`` is when the script ended, in seconds since the epoch; ``exception_type``, ``message`` and
    ``traceback`` say by which exception, if by one.
    """

    def __init__(
        self,
        pid: int,
        rank: int,
        exit_code: int | None = None,
        exception_type: str = "",
        message: str = "",
        traceback: str = "",
        time: float = 0.0,
    ) -> None:
        self.pid = pid
        self.rank = rank
        self.exit_code = exit_code
        self.exception_type = exception_type
        self.message = message
        self.traceback = traceback
        self.time = time

    def write(self, folder: str, local: int) -> None:
        if self.exception_type or self.message:
            import json

            text = json.dumps(vars(self))
        else:  # only numbers: no rank waits for the import of json
            exit_code = "null" if self.exit_code is None else self.exit_code
            text = (
                f'{{"pid": {self.pid}, "rank": {self.rank}, "exit_code": {exit_code}, "time": {self.time}}}'
            )
        temporary = f"{folder}/rank-{local}.{os.getpid()}"
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(temporary, f"{folder}/rank-{local}.json")

    @classmethod
    def read(cls, folder: str, local: int) -> RankRecord | None:
        """None where the rank has not come so far."""
        import json

        try:
            with open(f"{folder}/rank-{local}.json", encoding="utf-8") as file:
                return cls(**json.load(file))
        except FileNotFoundError:
            return None
