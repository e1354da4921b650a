"""Runs the user's script in every rank, and records how the script ended.

    python .../cloudtrain/runtime/rank.py train.py --epochs 5      a script
    python .../cloudtrain/runtime/rank.py -m package.train         a module
    python .../cloudtrain/runtime/rank.py -- ./train.sh --epochs 5 any executable
    python .../cloudtrain/runtime/rank.py @                        arguments from the run folder (under torchrun)
    python .../cloudtrain/runtime/rank.py @agent                   the same (under another project's launcher)
    python .../cloudtrain/runtime/rank.py                          the same (under mpirun)

With every launcher, the rank writes to its own pipe, dies with its parent, records its state (`RankRecord`), and dumps
its Python stacks on `stack_signal` and SIGQUIT. The script itself runs as under plain ``python``.
"""

from __future__ import annotations

import errno
import os
import sys

from cloudtrain.observe import steady
from cloudtrain.observe.heartbeat import VARIABLE as HEARTBEAT
from cloudtrain.runtime.after_import import AfterImport
from cloudtrain.runtime.parent_death import RUNTIME_PID, be_traceable, die_with_runtime, execute
from cloudtrain.runtime.run_folder import (
    AGENT_COMMAND,
    SCRIPT_PYTHONPATH,
    STORED_COMMAND,
    RankRecord,
    heartbeat_path,
    local_rank,
    pipe_path,
    rank,
    read_command,
    read_variables,
    stack_signal,
    stacks_path,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType, TracebackType

assert sys.platform != "win32", "jobs run on Linux and macOS"

EXEC = "--"
MODULE = "-m"


def main(arguments: list[str]) -> None:
    die_with_runtime()
    be_traceable()
    folder = os.environ.get("CLOUDTRAIN_RUN_DIR")
    if folder and not arguments:
        from cloudtrain.runtime.launchers.attached_rank import attach_to_mpi

        arguments = attach_to_mpi(folder, os.environ)
    elif folder and AGENT_COMMAND in arguments:
        from cloudtrain.runtime.launchers.attached_rank import attach_to_agent

        added = [argument for argument in arguments if argument != AGENT_COMMAND]
        arguments = attach_to_agent(folder, os.environ, added)
    elif folder and arguments == [STORED_COMMAND]:
        arguments = read_command(folder)[1]
    if folder:
        _attach(folder)
        for name, value in read_variables(folder, local_rank(os.environ)).items():
            os.environ.setdefault(name, value)
        if rank(os.environ) == 0 and os.environ.get("WORLD_SIZE", "1") != "1":
            from cloudtrain.runtime.launchers.world_checks import warn_of_worlds_of_one

            warn_of_worlds_of_one()
    if "TF_CONFIG" in os.environ and folder:
        from cloudtrain.runtime.launchers.listening_ports import keep_on_loopback

        keep_on_loopback(os.environ)
    os.environ.pop(RUNTIME_PID, None)  # the script may start another runtime
    script_path = os.environ.pop(SCRIPT_PYTHONPATH, None)
    if script_path is not None:
        os.environ["PYTHONPATH"] = script_path
        sys.path[1:1] = script_path.split(os.pathsep)[:1]  # the code folder; the rest is on the path already
    kind, *rest = arguments
    if kind == EXEC:
        _exec(rest)
    elif kind == MODULE:
        _run(lambda: _module(rest))
    else:
        _run(lambda: _script(arguments))


def _attach(folder: str) -> None:
    """Connect this process to the runtime of its host: pipe, input, heartbeat, record."""
    local = local_rank(os.environ)
    os.environ[HEARTBEAT] = heartbeat_path(folder, local)
    pipe = pipe_path(folder, local)
    if os.path.exists(pipe):
        descriptor = _open_pipe(pipe)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        os.close(descriptor)
    from cloudtrain.runtime.standard_input import take

    take(folder, rank(os.environ))
    RankRecord(pid=os.getpid(), rank=rank(os.environ)).write(folder, local)


def _open_pipe(pipe: str) -> int:
    """Open ``pipe``, which the runtime reads. If it has no reader, the runtime has ended, so end too."""
    try:
        descriptor = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        os._exit(1)
    os.set_blocking(descriptor, True)
    return descriptor


def _exec(command: list[str]) -> None:
    try:
        execute(command)
    except OSError as error:
        sys.stderr.write(f"{command[0]} cannot be executed: {error.strerror}\n")
        sys.exit(127 if isinstance(error, FileNotFoundError) else 126)


def _script(arguments: list[str]) -> None:
    """Run ``arguments[0]`` as ``python`` does: as ``__main__``, with its folder first on the path."""
    from importlib.machinery import SourceFileLoader

    # ``__file__`` is absolute, as in Python 3.9, so it stays valid if the script changes the working folder
    path = os.path.join(os.getcwd(), arguments[0])
    sys.argv[:] = arguments
    sys.path[0:1] = [os.path.dirname(os.path.abspath(path))]
    main_module = type(sys)("__main__")
    loader = SourceFileLoader("__main__", path)
    main_module.__dict__.update(__file__=path, __builtins__=__builtins__, __loader__=loader)
    sys.modules["__main__"] = main_module
    with open(path, "rb") as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    exec(code, main_module.__dict__)


def _module(arguments: list[str]) -> None:
    import runpy

    sys.argv[:] = arguments
    sys.path[0:1] = [os.getcwd()]
    runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)


def _run(script: Callable[[], None]) -> None:
    """Run the script, and record how it ended before the process ends normally."""
    owner = os.getpid()
    _dump_stacks_on_signal()
    _watch_torch()
    warn = _watch_for_place()
    try:
        script()
        _ignore_stops()
        warn()
        _record_end(owner, 0)
    except SystemExit as error:
        # the code of exit() is 0, that of exit("why") is 1
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        on_signal = _is_in_handler(error.__traceback__)
        if code == 0:
            _ignore_stops()
            warn()
        message = error.code if isinstance(error.code, str) else ""
        caught = _caught(error) if code == 1 and not message and not on_signal else None
        if caught is not None:
            _record_exception(owner, code, caught)
        else:
            _record_end(owner, code & 0xFF, "SystemExit", message, left_on_signal=on_signal)
        raise
    except BaseException as error:
        code = 130 if isinstance(error, KeyboardInterrupt) else 1
        inner = _record_exception(owner, code, error)
        sys.last_type, sys.last_value, sys.last_traceback = type(error), error, inner  # as Python does
        if _follows_preemption(error):
            sys.stderr.write("[cloudtrain] this rank ends: another one has left because of the notice\n")
        else:
            sys.excepthook(type(error), error, inner)
        sys.exit(code)


def _watch_for_place() -> Callable[[], None]:
    """A function to call at the end of the script, which warns if one of several ranks never read its rank."""
    ranks = os.environ.get("WORLD_SIZE", "1")
    if ranks == "1" or rank(os.environ) != 0:
        return lambda: None
    from cloudtrain.runtime.launchers.world_checks import PlaceWatch

    return PlaceWatch(ranks).warn


def _caught(end: SystemExit) -> Exception | None:
    """The exception whose handler has called ``sys.exit(1)``, as Hydra's handler does; None if there is none."""
    cause, trace = end.__context__, end.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    handler = cause.__traceback__.tb_frame if cause is not None and cause.__traceback__ is not None else None
    return cause if isinstance(cause, Exception) and trace is not None and handler is trace.tb_frame else None


def _record_exception(owner: int, code: int, error: BaseException) -> TracebackType | None:
    """Remove the frames of this file from ``error``, and record it. Returns its traceback."""
    import traceback

    inner = error.__traceback__
    while inner is not None and inner.tb_frame.f_code.co_filename == __file__:
        inner = inner.tb_next
    error.__traceback__ = inner
    lines = traceback.format_exception(type(error), error, inner)
    _record_end(owner, code, type(error).__qualname__, str(error), "".join(lines))
    return inner


def _follows_preemption(error: BaseException) -> bool:
    """Whether the script lost another rank after a notice. In the log, its traceback would look like a failure."""
    from pathlib import Path

    from cloudtrain.contract import Notice
    from cloudtrain.runtime.diagnose.first_cause import is_lost_partner

    folder = os.environ.get("CLOUDTRAIN_RUN_DIR")
    return bool(folder and is_lost_partner(error) and Notice.read(Path(folder)))


def _ignore_stops() -> None:
    """Ignore a stop or a preemption that arrives while the interpreter ends, because the script has succeeded."""
    import signal

    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)


def _is_in_handler(trace: TracebackType | None) -> bool:
    """Whether a handler of a signal to end raised the exception."""
    import signal

    handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)]
    codes = [getattr(getattr(handler, "__func__", handler), "__code__", None) for handler in handlers]
    codes = [code for code in codes if code is not None]
    while trace is not None:
        if trace.tb_frame.f_code in codes:
            return True
        trace = trace.tb_next
    return False


def _record_end(
    owner: int,
    code: int,
    exception_type: str = "",
    message: str = "",
    traceback: str = "",
    *,
    left_on_signal: bool = False,
) -> None:
    folder = os.environ.get("CLOUDTRAIN_RUN_DIR")
    if folder and os.getpid() == owner:  # not in a child that the script forked
        RankRecord(
            pid=owner,
            rank=rank(os.environ),
            exit_code=code,
            exception_type=exception_type,
            message=_text(message),
            traceback=_text(traceback),
            time=steady.now(),
            left_on_signal=left_on_signal,
        ).write(folder, local_rank(os.environ))


def _text(text: str) -> str:
    """``text`` without the values of secrets, and with lone surrogates escaped, because they cannot be encoded."""
    names = os.environ.get("CLOUDTRAIN_HIDDEN_VARIABLES")
    if names:
        from cloudtrain._secrets.hiding import ValueHider  # only now: few jobs have secrets and fail

        text = ValueHider.of_variables(names.split(","), os.environ).hide_all(text)
    return text.encode("utf-8", "backslashreplace").decode()


def _watch_torch() -> None:
    """Once the script has imported torch, record waits for its ``DataLoader``, and collectives of process groups."""

    def watch_data(module: ModuleType) -> None:
        from cloudtrain.observe.data_wait import watch_loaders

        watch_loaders(module)

    def watch_collectives(module: ModuleType) -> None:
        from cloudtrain.observe.flight_recorder import watch_groups

        watch_groups(module)

    if HEARTBEAT in os.environ:
        sys.meta_path.insert(0, AfterImport("torch.utils.data.dataloader", watch_data))
        sys.meta_path.insert(0, AfterImport("torch.distributed.distributed_c10d", watch_collectives))


def _dump_stacks_on_signal() -> None:
    folder = os.environ.get("CLOUDTRAIN_RUN_DIR")
    if not folder:
        return
    import faulthandler
    import signal

    faulthandler.enable()
    try:
        # the file stays open for the life of the process, because a signal handler cannot open it
        stacks = open(stacks_path(folder, local_rank(os.environ)), "a")  # noqa: SIM115
    except OSError:  # a full disk
        return
    faulthandler.register(stack_signal(), file=stacks, all_threads=False)
    for number in {signal.SIGQUIT, stack_signal(all_threads=True)}:
        faulthandler.register(number, file=stacks, all_threads=True)


if __name__ == "__main__":
    main(sys.argv[1:])
