"""The batch script of a job: readable, and ready to be submitted again by hand."""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from cloudtrain.platforms.batch.remote_path import quoted


class Line(Protocol):
    """A directive of a scheduler."""

    @property
    def comment(self) -> str:
        """Why it is there; empty if it needs no explanation."""
        ...

    def to_line(self) -> str: ...


@dataclass(frozen=True)
class Script:
    """The parts of a batch script.

    Attributes:
        job_name: the job that it runs.
        directives: in order.
        setup: lines of the user before the job: modules, and the prologue.
        command: runs the job. The path of the program may contain variables and ``~/``, which the node expands.
        submit: the command that submits it by hand, in its folder.
        title_last: whether the directives precede all comments: Cobalt ends its search at the first other line.
        title: the first comment, if it is not the script of one job.
        epilogue: lines of the user after the job, which may read its exit code from ``$status``.
    """

    job_name: str
    directives: Sequence[Line]
    setup: Sequence[str]
    command: Sequence[str]
    epilogue: Sequence[str] = field(default=())
    title: str = ""
    submit: str = "sbatch job.sh"
    title_last: bool = False

    def to_text(self) -> str:
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        yield "#!/bin/bash"
        title = (
            self.title
            or f"# The job {self.job_name} of cloudtrain. To submit it again by hand: {self.submit}"
        )
        yield from [] if self.title_last else [title]
        for directive in self.directives:
            if directive.comment:
                yield f"# {directive.comment}"
            yield directive.to_line()
        yield from [title] if self.title_last else []
        yield ""
        yield "trap '' USR1  # a notice that comes before the job has begun does not end it"
        yield from self.setup
        yield from _runtime_check(self.command[1])
        command = f"{quoted(self.command[0])} {shlex.join(self.command[1:])}"
        if not self.epilogue:
            yield f"exec {command}"
            return
        yield from with_epilogue(command, self.epilogue)


def _runtime_check(runtime: str) -> Iterator[str]:
    """Ends the script if the runtime, which all jobs start, does not have the hash that is the name of its folder."""
    path, digest = shlex.quote(runtime), posixpath.basename(posixpath.dirname(runtime))
    yield f'[ "$(sha256sum < {path} | head -c 64)" = {digest} ] || {{'
    yield f'echo {path} "is missing or was changed: remove it, and submit the job again" >&2; exit 1; }}'


def with_epilogue(command: str, epilogue: Iterable[str]) -> Iterator[str]:
    """Lines of bash that run ``command``, pass signals on to it, then run ``epilogue``, and exit as the command did."""
    yield "trap 'kill -TERM \"${step:-$!}\"' TERM  # bash would wait for the step before it handles a signal"
    yield "trap 'kill -USR1 \"${step:-$!}\"' USR1"
    yield f"{command} &"
    yield "step=$!"
    yield 'wait "$step"; status=$?'
    yield 'while kill -0 "$step" 2>/dev/null; do wait "$step"; status=$?; done'
    yield from epilogue
    yield 'exit "$status"'
