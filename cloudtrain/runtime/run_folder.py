"""Files in a host's run folder, through which its ranks and its runtime exchange data.

Every rank imports this before its script. For a fast start, this module imports little, and paths are strings.
"""

from __future__ import annotations

import contextlib
import os

from cloudtrain.observe import steady

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


RANK_FILE = "cloudtrain/runtime/rank.py"
TORCHRUN_FILE = "cloudtrain/runtime/launchers/torchrun_agent.py"
PARAMETER_SERVER_FILE = "cloudtrain/runtime/launchers/parameter_server.py"
"""Programs that run in the script's interpreter, relative to the folder that it imports cloudtrain from."""

LIBRARY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
"""The folder that this process imports cloudtrain from."""
RANK_PROGRAM = f"{LIBRARY}/{RANK_FILE}"
REMOTE_SHELL_PROGRAM = f"{LIBRARY}/cloudtrain/runtime/launchers/remote_shell.py"
PARENT_DEATH_PROGRAM = f"{LIBRARY}/cloudtrain/runtime/parent_death.py"
"""Programs started by path. With ``-m``, a ``json.py`` in the user's working folder would shadow the module."""

RUN_RUNTIME = (
    "import sys; del sys.path[0]; sys.path.append(sys.argv[1]); import runpy;"
    " runpy.run_module('cloudtrain.runtime', run_name='__main__')"
)
"""Runs the runtime as ``python -m`` does, but imports cloudtrain from a given folder instead of PYTHONPATH."""

SCRIPT_PYTHONPATH = "CLOUDTRAIN_PYTHONPATH"
"""The variable with the script's PYTHONPATH, which takes effect after the imports of the rank program."""


PROGRAMS = "bin"
"""The folder of `LaunchPlan.programs` in the run folder."""

SPARES = 2
"""The number of spare files for the record of a rank, which is written when the rank starts and when it ends."""
SPARE_SIZE = 16 * 1024
"""The size of a spare file, in bytes."""
LONGEST_TEXT = 1200
"""The most characters of a text in a spare file. JSON may write 6 bytes for each."""

LARGEST_RECORD = 16 << 20
"""The most bytes that are read from the record of a rank, because the message of an exception can be long."""

LARGEST_CODE = 2**32
"""Exit codes are smaller on every system."""

STORED_COMMAND = "@"
"""The argument of a rank whose arguments are in the run folder."""
AGENT_COMMAND = "@agent"
"""The argument of a rank that another project's launcher starts, and whose arguments are in the run folder."""


def rank(environ: Mapping[str, str]) -> int:
    """The rank of this process, which the runtime or its launcher started."""
    return int(environ.get("CLOUDTRAIN_RANK") or environ.get("RANK", "0"))


def local_rank(environ: Mapping[str, str]) -> int:
    """The local rank of this process, which the runtime or its launcher started."""
    return int(environ.get("CLOUDTRAIN_LOCAL_RANK") or environ.get("LOCAL_RANK", "0"))


def pipe_path(folder: str, local: int) -> str:
    """The named pipe to which the rank writes its output."""
    return f"{folder}/rank-{local}.pipe"


def stack_signal(*, all_threads: bool = False) -> int:
    """The signal that makes a rank dump the Python stack of its main thread, or of all threads.

    The latter may crash a rank whose threads are running, because their frames change during the dump. On Linux, no
    script has a handler for these signals.
    """
    import signal

    if hasattr(signal, "SIGRTMAX"):
        return signal.SIGRTMAX - (8 if all_threads else 9)
    return signal.SIGQUIT if all_threads else getattr(signal, "SIGINFO", signal.SIGQUIT)


def stacks_path(folder: str, local: int) -> str:
    """The file to which the rank and the processes that it forks dump their Python stacks on `stack_signal`."""
    return f"{folder}/rank-{local}.stacks"


def record_path(folder: str, local: int) -> str:
    """The file with the rank's `RankRecord`."""
    return f"{folder}/rank-{local}.json"


def heartbeat_path(folder: str, local: int) -> str:
    """The file with the rank's last heartbeat: see `cloudtrain.observe.heartbeat`."""
    return f"{folder}/rank-{local}.heartbeat"


def input_path(folder: str) -> str:
    """The socket over which rank 0 receives the standard input of ``cloudtrain run``."""
    return f"{folder}/input"


def write_command(folder: str, cwd: str, arguments: Iterable[str], local: int | None = None) -> None:
    """Store the working folder and the arguments of the ranks of a host, for launchers that would change them.

    Args:
        local: the local rank, if only one rank has these arguments.
    """
    with open(f"{folder}/command" if local is None else f"{folder}/rank-{local}.command", "wb") as file:
        file.write(os.fsencode("\0".join([cwd, *arguments])))


def read_command(folder: str, local: int | None = None) -> tuple[str, list[str]]:
    """The working folder and the arguments, unchanged even if they contain line ends or bytes that are not text."""
    own = f"{folder}/rank-{local}.command"
    with open(own if os.path.exists(own) else f"{folder}/command", "rb") as file:
        cwd, *arguments = os.fsdecode(file.read()).split("\0")
    return cwd, arguments


def hostfile_path(folder: str) -> str:
    """The file with the hosts of the world and their numbers of ranks."""
    return f"{folder}/hostfile"


def write_variables(folder: str, local: int, variables: Mapping[str, str]) -> None:
    """Store the variables of a rank that its launcher does not set."""
    with open(f"{folder}/rank-{local}.env", "wb") as file:
        file.write(os.fsencode("\0".join(f"{name}={value}" for name, value in variables.items())))


def read_variables(folder: str, local: int) -> dict[str, str]:
    """The variables that `write_variables` has stored; none if it has stored none for this rank."""
    try:
        with open(f"{folder}/rank-{local}.env", "rb") as file:
            text = os.fsdecode(file.read())
    except FileNotFoundError:
        return {}
    return dict(entry.split("=", 1) for entry in text.split("\0") if entry)


def stopping_path(folder: str) -> str:
    """The file that exists once the ranks are being stopped, after which no rank may be started."""
    return f"{folder}/stopping"


def spawn_address_path(folder: str) -> str:
    """The file with the leader's ``address:port``, key and certificate for mpirun's remote shell, on mpirun's host."""
    return f"{folder}/spawn"


def write_code(folder: str, local: int, code: int) -> None:
    """Report the exit code of a rank that has just ended; negative for a signal."""
    _replace_file(f"{folder}/rank-{local}.code", f"{code} {steady.now()}")


def read_code(folder: str, local: int) -> tuple[int, float] | None:
    """The exit code that `write_code` reported, and its time in seconds since the epoch; None if there is none."""
    from cloudtrain._system.files import read_regular

    try:
        text, ended = read_regular(f"{folder}/rank-{local}.code", 100).split()
        code = int(text)
        return (code, float(ended)) if abs(code) <= LARGEST_CODE else None
    except (OSError, ValueError):
        return None


class RankRecord:
    """The state of a rank, with an ``exit_code`` once its script has ended.

    ``time`` is the end of the script in seconds since the epoch. ``exception_type``, ``message`` and ``traceback``
    describe the exception that ended it, if any. ``left_on_signal``: a signal handler ended the script with SystemExit.
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
        left_on_signal: bool = False,
    ) -> None:
        self.pid = pid
        self.rank = rank
        self.exit_code = exit_code
        self.exception_type = exception_type
        self.message = message
        self.traceback = traceback
        self.time = time
        self.left_on_signal = left_on_signal

    def write(self, folder: str, local: int) -> None:
        if self.exception_type or self.message or self.left_on_signal:
            import json

            text = json.dumps(vars(self))
        else:  # only numbers; this avoids the import of json at the start of every rank
            exit_code = "null" if self.exit_code is None else self.exit_code
            text = (
                f'{{"pid": {self.pid}, "rank": {self.rank}, "exit_code": {exit_code}, "time": {self.time}}}'
            )
        _replace_file(record_path(folder, local), text, self._shorter)

    def _shorter(self) -> str:
        """The record as JSON, without the beginnings of long texts."""
        import json

        short = {"message": self.message[-LONGEST_TEXT:], "traceback": self.traceback[-LONGEST_TEXT:]}
        return json.dumps({**vars(self), **short})

    @classmethod
    def read(cls, folder: str, local: int) -> RankRecord | None:
        """The record; None if the rank has not written one yet, or if its script has replaced it.

        Raises OSError if the file system fails.
        """
        from cloudtrain._system.files import read_regular
        from cloudtrain._system.retries import is_transient
        from cloudtrain.contract.documents import Fields, parse_json

        try:
            given = Fields(parse_json(read_regular(record_path(folder, local), LARGEST_RECORD)))
            return cls(
                pid=given.integer("pid", least=1),
                rank=given.integer("rank"),
                exit_code=given.integer("exit_code", None, least=-LARGEST_CODE, most=LARGEST_CODE),
                exception_type=given.text("exception_type", ""),
                message=given.text("message", ""),
                traceback=given.text("traceback", ""),
                time=given.time("time", 0.0),
                left_on_signal=given.boolean("left_on_signal", False),
            )
        except (OSError, ValueError) as error:
            if is_transient(error):
                raise
            return None


def _replace_file(path: str, text: str, shorter: Callable[[], str] | None = None) -> None:
    """Like `cloudtrain.storage.atomic.replace_file`, but without its imports, which would delay every rank.

    On a full disk, ``shorter()``, or else ``text``, is written to a spare file. Without one, nothing is written, but
    the exit code of the rank still shows how it ended.
    """
    temporary = f"{path}.{os.getpid()}"
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        temporary = next(filter(os.path.exists, (f"{path}.spare-{number}" for number in range(SPARES))), "")
        if not temporary:
            return
        with open(temporary, "r+", encoding="utf-8") as file:  # its space is already allocated
            file.write(shorter() if shorter else text)
            file.truncate()
    os.replace(temporary, path)


def make_spares(folder: str, local: int) -> None:
    """Reserve space for the files about a rank, so that a full disk does not change how it ends. Raises OSError."""
    for name, count in (("json", SPARES), ("code", 1)):
        for number in range(count):
            with open(f"{folder}/rank-{local}.{name}.spare-{number}", "wb") as file:
                file.write(os.urandom(SPARE_SIZE))
