"""Diagnoses why a rank or a launcher failed, and reports the class of the failure and a hint."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from cloudtrain._system.patterns import pattern
from cloudtrain._system.signals import LINUX, SIGHUP, SIGKILL, linux_number
from cloudtrain.contract import FailureClass, FailureReport
from cloudtrain.contract.failure import without_user_code
from cloudtrain.errors import CloudtrainError, NotFound
from cloudtrain.observe import steady
from cloudtrain.runtime.diagnose.first_cause import COLLECTIVE, LOST_PARTNER, MOST_RANKS
from cloudtrain.runtime.diagnose.hints.table import UNKNOWN, Failure, JobFacts
from cloudtrain.runtime.diagnose.rank_exit import RankExit
from cloudtrain.runtime.sampling import xids

_OF_TORCH = ("DistError", "DistBackendError", "DistNetworkError", "DistStoreError")
"""Exceptions of ``torch.distributed``."""

_OF_GPUS = pattern(r"cuda(?!:\d)|cudnn|cublas|nccl|nvidia|nvml|\bgpus?\b", re.IGNORECASE)
"""Messages that the fault of a GPU may explain. Excludes ``cuda:0``, the name of a device in other messages."""

_MISTAKES = (
    "ArgumentError",
    "AssertionError",
    "AttributeError",
    "IndexError",
    "KeyError",
    "NameError",
    "NotImplementedError",
    "TypeError",
    "UnboundLocalError",
    "ValueError",
)
"""Exceptions of mistakes in scripts, even if their messages mention GPUs."""

_OF_SCRIPTS = (
    FailureClass.SYNTAX_ERROR,
    FailureClass.IMPORT_ERROR,
    FailureClass.MISSING_DATA,
    FailureClass.DISK_FULL,
    FailureClass.OUT_OF_MEMORY,
)
"""Classes of failures that a faulty GPU cannot cause."""

_CRASHES = ("SIGSEGV", "SIGBUS", "SIGILL", "SIGABRT", "SIGFPE")

_MEMORY = pattern(r"out of memory|cannot allocate memory|DefaultCPUAllocator|std::bad_alloc", re.IGNORECASE)
_TIMEOUT = pattern(r"timed? ?out", re.IGNORECASE)
_OF_RANKS = pattern(
    r"nccl|gloo|collective|process group|clients? joined|client socket|rendezvous|barrier|\bstore\b|\branks?\b",
    re.IGNORECASE,
)
"""Messages about other ranks. Timeouts without one of these are of servers and of downloads."""
_NO_SPACE = pattern(r"No space left on device|Disk quota exceeded", re.IGNORECASE)
_EXCEPTION = pattern(
    r"^(?P<type>[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Warning))(?:: (?P<message>.*))?$"
)

_RANK_PREFIX = pattern(r"^\[rank\d+\]: ?")
"""The prefix that torch adds to each line of a traceback once its process group exists."""

_FRAME = pattern(r'^  File "(.+)", line (\d+), in .*\n    (\S.*)$', re.MULTILINE)

LONGEST_MESSAGE = 300

_NATIVE = pattern(
    r"what\(\):|ProcessGroupNCCL|NCCL WARN|\bncclRemoteError\b|^(?:\[rank\d+\]: ?)?Cuda failure |Duplicate GPU detected"
    r"|^F\d{4} |: F \S+\.cc:\d+\]|Unexpected bus error encountered in worker|NVRM: Xid"
)
"""Lines that native code (C++ exceptions, NCCL's watchdog, TensorFlow) prints before it ends a rank by a signal."""

_NATIVE_PREFIX = pattern(
    r"^.*?(?:what\(\):\s+|\.(?:cpp|cc):\d+\]\s+|NCCL WARN\s+)(?:\[[^\]]*\bRank \d+\]\s+)*"
    r"(?:[\w ]*watchdog thread terminated with exception:\s+)?(?:\[Rank \d+\]\s+)?"
)

LAST_LINES = 5
"""The number of last lines in which to search for the message of a script that ended itself."""
LONGEST_LAST_LINE = 200
"""The most characters of the last line in a message. A progress bar, or binary output, can be one long line."""

HINTS = {
    FailureClass.SYNTAX_ERROR: "Fix the syntax error in the line shown.",
    FailureClass.OUT_OF_MEMORY: "Use a smaller batch size, or an instance type with more memory.",
    FailureClass.MISSING_DATA: "Check the channels given to fit() against the paths that the script opens.",
    FailureClass.DISK_FULL: "Use a larger volume_size, or write less data.",
    FailureClass.COLLECTIVE_TIMEOUT: "A rank did not join a collective: compare the last log lines of all ranks.",
}


def diagnose(
    rank_exit: RankExit, host: str, *, memory_kills: int = 0, gpu_faults: str = "", facts: JobFacts = UNKNOWN
) -> FailureReport:
    """The report of a rank that failed.

    Args:
        memory_kills: the number of processes on this host that the out-of-memory killer ended since the launch.
        gpu_faults: the faults of GPUs since the launch, as lines of the kernel's log: see `machine_faults`. As they may
            be of other jobs' GPUs, or harmless, they explain only failures that a GPU can cause.
        facts: facts of the job that hints may use.
    """
    killed_by = linux_number(-rank_exit.exit_code) if rank_exit.exit_code < 0 else None
    exit_code = rank_exit.exit_code if killed_by is None else 128 + killed_by
    exception_type, message, traceback = _exception(rank_exit)
    if exception_type and rank_exit.record and LINUX.get(killed_by or 0) in _CRASHES:
        killed_by = None  # the script had failed before it crashed in its exit
    if killed_by is not None:
        kind, hint = _by_signal(killed_by, memory_kills)
        exception_type, message = None, ""
    else:
        kind, hint = _with_hint(_by_exception(exception_type, message), rank_exit, facts)
        if exception_type is None and not message and rank_exit.log_tail:
            last = rank_exit.log_tail[-1]
            more = "..." if len(last) > LONGEST_LAST_LINE else ""
            message = f"its last line: {last[:LONGEST_LAST_LINE]}{more}"
    # a shell reports a signal as an exit code
    if exception_type is None and LINUX.get(killed_by or rank_exit.exit_code - 128) in _CRASHES:
        kind, hint, message = _by_native_error(rank_exit, facts) or (kind, hint, message)
    ended_by = exception_type or LINUX.get(killed_by or rank_exit.exit_code - 128)
    text = message if exception_type else "\n".join(rank_exit.log_tail)
    if gpu_faults and kind not in _OF_SCRIPTS and _may_follow_from_gpu(ended_by, text):
        of_programs = f"{hint} {xids.of_programs(gpu_faults)}".strip()
        kind, hint, message = _by_hint(gpu_faults, rank_exit, facts) or (kind, of_programs, message)
    return FailureReport(
        failure_class=kind,
        message=message,
        hint=hint,
        rank=rank_exit.rank,
        host=host,
        exit_code=exit_code,
        signal=killed_by,
        exception_type=exception_type,
        traceback=traceback,
        log_tail=rank_exit.log_tail,
        phase="train",
        time=(rank_exit.record.time if rank_exit.record else 0) or rank_exit.time,
    )


def diagnose_agent(
    program: str, exit_code: int, scripts_started: bool, log_tail: tuple[str, ...], host: str
) -> FailureReport:
    """The report of a failed mpirun or daemon of mpirun, which does not name a rank.

    Args:
        exit_code: negative for a signal.
        scripts_started: whether any rank had reached its script.
        log_tail: the last lines of the output of mpirun itself.
    """
    how = "failed" if scripts_started else "did not start the ranks"
    text = " ".join(line.strip() for line in _last_block(log_tail))
    return FailureReport(
        FailureClass.USER_ERROR if scripts_started else FailureClass.PLATFORM,
        f"{program} {how}" + (f": {text}" if text else ""),
        ""
        if scripts_started
        else "See its own messages below. Check custom_mpi_options: mpirun may reject one of them.",
        host=host,
        exit_code=128 + linux_number(-exit_code) if exit_code < 0 else exit_code or 1,
        log_tail=log_tail,
        phase="train" if scripts_started else "launch",
        time=steady.now(),
    )


def diagnose_command(
    program: str,
    exit_code: int,
    unstarted: Sequence[int],
    left: Sequence[int],
    scripts_started: bool,
    log_tail: tuple[str, ...],
    host: str,
    *,
    memory_kills: int = 0,
) -> FailureReport:
    """The report of another project's launcher that failed although none of its ranks has. It does not name a rank.

    Args:
        exit_code: negative for a signal.
        unstarted: the ranks of this host that the launcher has not started.
        left: the ranks that were running when the launcher ended.
        scripts_started: whether any rank had reached its script.
        log_tail: the last lines of the launcher's output.
        memory_kills: see `diagnose`.
    """
    what = "failed" if exit_code else "ended"
    hint = "See its own messages below, and check its options."
    if unstarted:
        what = f"{what} without starting {_ranks(unstarted)}"
        if not exit_code:
            hint = "Check its options for the number of processes: {processes_per_host} on a host, {world_size} in all."
    elif left:
        what = f"{what} before {_ranks(left)} had ended"
        if not exit_code:
            hint = "The command must run until its ranks have ended: let it wait for them, in the foreground."
    phase = "train" if scripts_started else "launch"
    subject = f"{program}, which distribution.agent starts,"
    if exit_code < 0:
        return _of_killed_program(subject, exit_code, log_tail, host, phase, memory_kills)
    return _of_program(f"{subject} {what}", hint, exit_code, log_tail, host, phase)


def _ranks(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:MOST_RANKS])) + ("..." if len(ranks) > MOST_RANKS else "")
    return f"rank{'s' * (len(ranks) > 1)} {shown}"


def diagnose_server(exit_code: int, log_tail: tuple[str, ...], host: str) -> FailureReport:
    """The report of a parameter server that ended before the ranks.

    Args:
        exit_code: negative for a signal.
        log_tail: the last lines of its output.
    """
    if exit_code < 0:
        return _of_killed_program("the parameter server", exit_code, log_tail, host, "train", memory_kills=0)
    hint = "It runs TensorFlow with the job's Python: see its own messages below."
    return _of_program("the parameter server failed", hint, exit_code or 1, log_tail, host, "train")


def _of_program(
    what: str, hint: str, exit_code: int, log_tail: tuple[str, ...], host: str, phase: str
) -> FailureReport:
    """The report of a program that is not a rank. If it failed, its last line is the reason."""
    last = next((line.strip() for line in reversed(log_tail) if line.strip()), "")[:LONGEST_LAST_LINE]
    return FailureReport(
        FailureClass.USER_ERROR,
        what + (f": {last}" if exit_code and last else ""),
        hint,
        host=host,
        exit_code=128 + linux_number(-exit_code) if exit_code < 0 else exit_code or 1,
        log_tail=log_tail,
        phase=phase,
        time=steady.now(),
    )


def _of_killed_program(
    subject: str, exit_code: int, log_tail: tuple[str, ...], host: str, phase: str, memory_kills: int
) -> FailureReport:
    """The report of a program that is not a rank and was ended by a signal."""
    killed_by = linux_number(-exit_code)
    kind, hint = _by_signal(killed_by, memory_kills)
    message = f"{subject} was killed by {LINUX.get(killed_by, killed_by)}"
    return replace(
        _of_program(message, hint, exit_code, log_tail, host, phase), failure_class=kind, message=message
    )


def diagnose_torchrun(rank_exit: RankExit, python: str, host: str) -> FailureReport | None:
    """The report of a torchrun that cannot start because ``python`` lacks torch; None for any other exit.

    The report excludes the output, because its traceback shows only cloudtrain and adds nothing to the message.
    """
    last = rank_exit.log_tail[-1] if rank_exit.log_tail else ""
    if rank_exit.record or not last.startswith("ModuleNotFoundError: No module named 'torch"):
        return None
    return FailureReport(
        FailureClass.IMPORT_ERROR,
        f"the launcher torchrun needs torch, which {python} does not have: no rank was started",
        "Add torch to requirements.txt, or use an interpreter or image that has it.",
        host=host,
        exit_code=rank_exit.exit_code or 1,
        phase="launch",
        time=rank_exit.time,
    )


def _last_block(lines: tuple[str, ...]) -> list[str]:
    """The last message of mpirun, which separates its messages by rules of dashes."""
    blocks: list[list[str]] = [[]]
    for line in lines:
        if line.startswith("-----"):
            blocks.append([])
        elif line.strip():
            blocks[-1].append(line)
    return next((block for block in reversed(blocks) if block), [])


def report_error(error: Exception, host: str, phase: str | None) -> FailureReport:
    """The report of an error in the runtime itself, which does not name a rank."""
    kind, hint = FailureClass.PLATFORM, ""
    message = f"{type(error).__name__}: {error}"
    if isinstance(error, CloudtrainError):
        message, hint = error.message, error.hint
    if isinstance(error, NotFound):
        kind = FailureClass.MISSING_DATA
    elif isinstance(error, OSError):
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) or bool(_NO_SPACE.search(message))
        kind = FailureClass.DISK_FULL if full else FailureClass.STORAGE
        hint = hint or (HINTS[kind] if full else "")
    return FailureReport(kind, message, hint, host=host, phase=phase, time=steady.now())


def _exception(rank_exit: RankExit) -> tuple[str | None, str, str]:
    """Type, message and traceback of a rank's exception, from its record or else from its output."""
    record = rank_exit.record
    if record and record.exception_type == "SystemExit":
        return None, record.message, ""  # the traceback of exit("why") does not help
    if record and record.exception_type == "ProcessRaisedException":  # of torch.multiprocessing.spawn
        of_child = printed_exception(record.message.splitlines())
        if of_child:
            return of_child
    if record and record.exception_type:
        return record.exception_type, record.message or _last_code(record.traceback), record.traceback
    return printed_exception(rank_exit.log_tail) or (None, "", "")


def _last_code(traceback: str) -> str:
    """The line of code that raised an exception without a message, such as a plain ``assert``, and its place."""
    found = _FRAME.findall(traceback)
    return f"{found[-1][2]} ({found[-1][0].rpartition('/')[2]}, line {found[-1][1]})" if found else ""


def printed_exception(lines: Sequence[str]) -> tuple[str, str, str] | None:
    """Type, message and traceback of the last exception in ``lines``."""
    lines = _without_prefix(lines)
    starts = [number for number, line in enumerate(lines) if line.startswith("Traceback (most recent")]
    if starts:
        for number in range(starts[-1] + 1, len(lines)):
            match = _EXCEPTION.match(lines[number])
            if match:
                traceback = "\n".join(lines[starts[-1] : number + 1])
                return match["type"].rpartition(".")[2], match["message"] or _last_code(traceback), traceback
    return None


def _without_prefix(lines: Sequence[str]) -> list[str]:
    return [_RANK_PREFIX.sub("", line) for line in lines]


def _with_hint(kind: FailureClass, rank_exit: RankExit, facts: JobFacts) -> tuple[FailureClass, str]:
    """The class and the hint of a failure, from the table of hints or else the hint for ``kind``."""
    from cloudtrain.runtime.diagnose.hints.known import find_hint  # only now: most jobs do not fail

    exception_type, message, traceback = _exception(rank_exit)
    exception = ""
    if exception_type:
        printed = "\n".join(_without_prefix(rank_exit.log_tail)).rpartition(traceback)[2] if traceback else ""
        text = message if rank_exit.record else message + printed
        exception = f"{exception_type}: {without_user_code(exception_type, text)}"
    last_lines = "\n".join(rank_exit.log_tail[-LAST_LINES:])
    found = find_hint(Failure(rank_exit.exit_code, exception, traceback, last_lines), facts)
    if found is None or (found[0].failure_class == FailureClass.GPU_FAULT and exception_type in _MISTAKES):
        return kind, HINTS.get(kind, "")
    hint, text = found
    return hint.failure_class or kind, text


def _by_native_error(rank_exit: RankExit, facts: JobFacts) -> tuple[FailureClass, str, str] | None:
    """Class, hint and message of a crash for which native code printed the reason into the rank's output."""
    error = _native_error(rank_exit.output or "\n".join(rank_exit.log_tail))
    found = _by_hint(error, rank_exit, facts)
    if found is None and _MEMORY.search(error):
        kind = FailureClass.OUT_OF_MEMORY
        return kind, HINTS[kind], _message_of(error, _MEMORY.search)
    return found


def _native_error(output: str) -> str:
    """The lines of ``output`` in which native code gives the reason for its failure; empty if there are none."""
    return "\n".join(line for line in output.splitlines() if _NATIVE.search(line))


def _message_of(error: str, matches: Callable[[str], object]) -> str:
    """The first line of ``error`` that ``matches``, without the prefix before the message."""
    for line in error.splitlines():
        if matches(line):
            shorter = _NATIVE_PREFIX.sub("", line)
            return (shorter if matches(shorter) else line.strip())[:LONGEST_MESSAGE]
    return ""


def _by_hint(error: str, rank_exit: RankExit, facts: JobFacts) -> tuple[FailureClass, str, str] | None:
    """Class, hint and message of the first hint for ``error`` that names a class."""
    from cloudtrain.runtime.diagnose.hints.known import find_hint  # only now: most jobs do not fail

    found = find_hint(Failure(rank_exit.exit_code, error), facts) if error else None
    if found is None or found[0].failure_class is None:
        return None
    return found[0].failure_class, found[1], _message_of(error, re.compile(found[0].pattern).search)


def _may_follow_from_gpu(ended_by: str | None, text: str) -> bool:
    """Whether a faulty GPU can have this effect: a signal, the loss of another rank, or a message about GPUs."""
    if ended_by is not None and ended_by.startswith("SIG"):
        return True
    if ended_by in _MISTAKES:
        return False
    lost = ended_by is not None and (ended_by in LOST_PARTNER or bool(COLLECTIVE.search(text)))
    return lost or bool(_OF_GPUS.search(text))


def _by_exception(exception_type: str | None, message: str) -> FailureClass:
    if _NO_SPACE.search(message):
        return FailureClass.DISK_FULL
    if _MEMORY.search(message) or (exception_type or "").endswith("MemoryError"):  # NumPy has its own
        return FailureClass.OUT_OF_MEMORY
    if exception_type in ("SyntaxError", "IndentationError", "TabError"):
        return FailureClass.SYNTAX_ERROR
    if exception_type in ("ModuleNotFoundError", "ImportError"):
        return FailureClass.IMPORT_ERROR
    if exception_type in ("FileNotFoundError", "NotFound"):
        return FailureClass.MISSING_DATA
    if exception_type == "CollectiveError":
        return FailureClass.COLLECTIVE_TIMEOUT
    of_ranks = exception_type in ("RuntimeError", *_OF_TORCH) or bool(_OF_RANKS.search(message))
    if exception_type and of_ranks and _TIMEOUT.search(message):
        return FailureClass.COLLECTIVE_TIMEOUT
    return FailureClass.USER_ERROR


def _by_signal(number: int, memory_kills: int) -> tuple[FailureClass, str]:
    if number == SIGKILL and memory_kills:
        return FailureClass.OUT_OF_MEMORY, HINTS[FailureClass.OUT_OF_MEMORY]
    if number == SIGKILL:
        return (
            FailureClass.KILLED,
            "A user, the platform, or the kernel for lack of memory sent the signal. If memory may be the cause, "
            "choose hosts with more of it, or a smaller batch.",
        )
    if LINUX.get(number) in _CRASHES:
        return (
            FailureClass.KILLED,
            "Native code crashed. The rank's log contains the Python stack at that moment.",
        )
    if number == SIGHUP:
        return (
            FailureClass.KILLED,
            "SIGHUP means that a terminal or session was closed: start programs that outlive one with setsid or nohup.",
        )
    return FailureClass.KILLED, ""
