"""Inquiries of the runtime about the collectives that a hanging rank is in.

The Python stacks of such a rank often end in a call that waits for a GPU. Its main thread executes no Python, but the
call lets other threads run. One of them waits for a byte in a named pipe, and answers with JSON in a file. Both are
next to the file of the rank's `heartbeat`.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Callable, NamedTuple

from cloudtrain._system.files import READ_REGULAR, read_regular
from cloudtrain._system.text import escape_text
from cloudtrain.contract.documents import Fields, is_count, parse_json
from cloudtrain.observe.heartbeat import VARIABLE

LARGEST = 1 << 17
"""Maximum bytes of an answer."""
LONGEST_TEXT = 1 << 13
LONGEST_CALL, LONGEST_GROUP = 120, 60
MOST_GROUPS = 48
"""The most process groups of a rank in an answer. Those in which it waits are first."""

_served: dict[str, list[Callable[[], Answer]]] = {}
"""The functions that answer at the pipes of this process, by the path of the heartbeat."""


class InGroup(NamedTuple):
    """The progress of a rank among the collectives of one process group."""

    entered: int = 0
    """The number of the last one that it has begun."""
    waits: int = 0
    """The number of the first one that is not complete; 0 if all are."""
    call: str = ""
    """The text for that one, such as ``gloo:all_reduce of Float[3]``."""


class Answer(NamedTuple):
    """The collectives that a rank is in."""

    text: str = ""
    """Lines for people."""
    groups: Mapping[str, InGroup] = {}
    """The progress by process group, for groups that have the same name on all ranks."""

    def to_json(self) -> str:
        """ASCII, and no longer than `LARGEST`."""
        return json.dumps({"text": self.text[:LONGEST_TEXT], "groups": items_of(self.groups)})

    @classmethod
    def of_json(cls, data: bytes) -> Answer:
        """The inverse of `to_json`. Raises ValueError for anything else."""
        given = Fields(parse_json(data))
        return cls(_printable(given.text("text"), LONGEST_TEXT), groups_of(given.items("groups")))


def items_of(groups: Mapping[str, InGroup]) -> list[tuple[str, int, int, str]]:
    """The groups of an `Answer` as data for JSON."""
    first = sorted(groups.items(), key=lambda group: not group[1].waits)[:MOST_GROUPS]
    return [(name[:LONGEST_GROUP], at.entered, at.waits, at.call[:LONGEST_CALL]) for name, at in first]


def groups_of(items: Sequence[Any]) -> dict[str, InGroup]:
    """The inverse of `items_of`, for JSON that a script may have forged. Raises ValueError or TypeError."""
    found = {}
    for item in items[:MOST_GROUPS]:
        if not isinstance(item, (list, tuple)) or len(item) != 4:
            raise ValueError("a process group is not a list of four values")
        name, entered, waits, call = item
        if not (isinstance(name, str) and isinstance(call, str) and is_count(entered) and is_count(waits)):
            raise ValueError("a process group has values of other types")
        found[_printable(name, LONGEST_GROUP)] = InGroup(entered, waits, _printable(call, LONGEST_CALL))
    return found


def _printable(text: str, longest: int) -> str:
    """The beginning of a text, without control characters and lone surrogates."""
    return escape_text(text[:longest])


def answer_with(answer: Callable[[], Answer]) -> None:
    """Answer every inquiry of the runtime with ``answer``, too, from a thread. Does nothing outside a job."""
    path = os.environ.get(VARIABLE)
    if path is None:
        return
    if path in _served:
        if answer not in _served[path]:
            _served[path].append(answer)
        return
    from cloudtrain._system.descriptors import open_named_pipe, set_blocking

    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(_pipe(path))  # left by an earlier attempt
        pipe = open_named_pipe(_pipe(path))
        set_blocking(pipe, True)
    except OSError:  # a full disk, or a file system without pipes: the report has the stacks only
        return
    _served[path] = [answer]
    threading.Thread(target=_serve, args=(pipe, path), name="cloudtrain-inquiry", daemon=True).start()


def ask(heartbeat_path: str) -> bool:
    """Query the rank with this heartbeat file. Returns whether it may answer."""
    with contextlib.suppress(OSError):
        os.unlink(_answer(heartbeat_path))
    try:
        pipe = os.open(_pipe(heartbeat_path), READ_REGULAR | os.O_WRONLY)
    except OSError:  # it has no collectives, or it has ended
        return False
    try:
        return stat.S_ISFIFO(os.fstat(pipe).st_mode) and os.write(pipe, b"?") == 1
    except OSError:
        return False
    finally:
        os.close(pipe)


def read_answer(heartbeat_path: str) -> Answer | None:
    """The rank's answer; None if there is none yet, or if it is not readable."""
    try:
        return Answer.of_json(read_regular(_answer(heartbeat_path), LARGEST))
    except (OSError, ValueError):
        return None


def _serve(pipe: int, path: str) -> None:
    while os.read(pipe, 1):
        answers = [_safely(describe) for describe in _served[path]]
        groups = {name: at for found in answers for name, at in found.groups.items()}
        text = "\n".join(found.text for found in answers if found.text)
        with contextlib.suppress(OSError):
            with open(f"{_answer(path)}.new", "w") as file:
                file.write(Answer(text, groups).to_json())
            os.replace(f"{_answer(path)}.new", _answer(path))


def _safely(answer: Callable[[], Answer]) -> Answer:
    try:
        return answer()
    except Exception as error:  # the rank may be in any state
        return Answer(f"{type(error).__name__}: {error}")


def _pipe(heartbeat_path: str) -> str:
    return f"{heartbeat_path}.asked"


def _answer(heartbeat_path: str) -> str:
    return f"{heartbeat_path}.answer"
