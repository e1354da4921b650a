"""The answer of one host to a request for the stacks of its ranks."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cloudtrain._dataclass import dataclass
from cloudtrain._system.patterns import pattern
from cloudtrain.contract import Paths
from cloudtrain.observe import inquiry
from cloudtrain.observe.stacks import LONGEST_STACK
from cloudtrain.runtime.diagnose.hangs import COLLECTIVE, STORAGE, is_native, place_of, site_of
from cloudtrain.runtime.diagnose.stacks import RankProcess, Taken, main_thread_text, take
from cloudtrain.runtime.diagnose.tracers import Frame, Tracer
from cloudtrain.runtime.run_folder import heartbeat_path

ANSWER_SECONDS = 1.0
"""How long a rank may take to report its current collectives before it is ended because it hangs."""
LONGEST_TEXT = 1 << 16
"""The most characters in the stacks of one host as text, divided among its ranks."""
LONGEST_WHERE = 200
LONGEST_STATE = 300

_PREFIX = pattern(r"^.*/(?:(?:site|dist)-packages|lib/python3[.\d]*)/")
"""The prefix of a path in a library, which is removed so that equal stacks do not differ between hosts."""


@dataclass(frozen=True)
class StackRequest:
    """A request as data, so that another thread can answer it."""

    id: str
    run: str
    """The run folder."""
    ranks: Sequence[RankProcess]
    ended: Mapping[int, int]
    """The exit codes of ranks that have ended."""
    code: str
    """The folder of the script."""
    programs: str
    """The folder of the script's interpreter, which may have a tracer."""
    seconds: float
    native: bool
    hangs: bool
    """Whether the ranks hang. If so, the failure report needs the stacks of all threads as text."""
    collectives: bool
    """Whether to query the ranks for their current collectives."""

    @classmethod
    def of(
        cls,
        message: Mapping[str, Any],
        paths: Paths,
        ranks: Sequence[RankProcess],
        ended: Mapping[int, int],
        python: str | None,
    ) -> StackRequest:
        """The request in a leader's message, for the ranks of this host.

        Args:
            python: the script's interpreter.
        """
        wanted = {name: message[name] for name in ("id", "seconds", "native", "hangs", "collectives")}
        programs = os.path.dirname(python or "")
        return cls(
            run=str(paths.run), ranks=ranks, ended=ended, code=str(paths.code), programs=programs, **wanted
        )

    def answer(self) -> dict[str, Any]:
        """The answer for the leader, as data for JSON."""
        beats = {process.rank: heartbeat_path(self.run, process.local) for process in self.ranks}
        deadline = time.monotonic() + (ANSWER_SECONDS if self.hangs else self.seconds)
        asked = [beat for beat in beats.values() if self.collectives and inquiry.ask(beat)]
        tracer = Tracer.find([self.programs])
        taken = take(self.run, self.ranks, self.seconds, tracer, native=self.native, all_threads=self.hangs)
        if self.native and tracer is None:
            for found in taken:
                found.state = (
                    found.state or "no native frames: neither py-spy nor pystack is installed on its host"
                )
        gone = [
            Taken(RankProcess(rank, 0, 0), state=f"has ended with exit code {code}")
            for rank, code in self.ended.items()
        ]
        answer: dict[str, Any] = {"id": self.id, "groups": to_groups([*taken, *gone], self.code)}
        while not all(map(inquiry.read_answer, asked)) and time.monotonic() < deadline:
            time.sleep(0.05)
        given = {rank: inquiry.read_answer(beat) for rank, beat in beats.items() if beat in asked}
        answers = {rank: one for rank, one in given.items() if one is not None}
        answer["collectives"] = [(rank, inquiry.items_of(one.groups)) for rank, one in answers.items()]
        if self.hangs:
            answer["text"] = stacks_text(taken, {rank: one.text for rank, one in answers.items()})
        return answer


def to_groups(taken: Iterable[Taken], code: str = "") -> list[dict[str, Any]]:
    """The ranks of one host, grouped by equal stacks. Files below ``code`` are relative to it."""
    groups: dict[tuple[str, str, tuple[Frame, ...]], list[int]] = {}
    for found in taken:
        key = (found.process.name, found.state, tuple(found.frames))
        groups.setdefault(key, []).append(found.process.rank)
    return [
        {"process": process, "state": state[:LONGEST_STATE], **_described(frames, code), "ranks": ranks}
        for (process, state, frames), ranks in groups.items()
    ]


def _described(frames: Sequence[Frame], code: str) -> dict[str, Any]:
    place = place_of([frame for frame in frames if not is_native(frame)])
    where = place.call if place.kind in (COLLECTIVE, STORAGE) else site_of(frames)
    text = "\n".join(str(frame._replace(file=_short(frame.file, code))) for frame in frames)
    if len(text) > LONGEST_STACK:
        text = f"{text[:LONGEST_STACK].rpartition(chr(10))[0]}\n…"
    return {"kind": place.kind, "where": where[:LONGEST_WHERE], "stack": text}


def _short(file: str, code: str) -> str:
    return file[len(code) + 1 :] if code and file.startswith(f"{code}/") else _PREFIX.sub("", file)


def stacks_text(taken: Sequence[Taken], collectives: Mapping[int, str]) -> str:
    """The stacks of all threads as text, by rank, for the report of a hang: see `hangs.places_in`.

    If the text of a rank is too long, it contains only the innermost calls of the main thread.
    """
    ranks = [one for one in taken if not one.process.name]
    most = max(LONGEST_TEXT // max(len(ranks), 1), LONGEST_STACK)
    parts = []
    for found in ranks:
        rank = found.process.rank
        parts.append(f"rank {rank}:\n{_text(found, most)}\n")
        if collectives.get(rank):
            parts.append(f"Collectives of rank {rank}:\n{collectives[rank][:most]}\n")
    return "\n".join(parts)


def _text(found: Taken, most: int) -> str:
    if len(found.text) > most:
        return f"{main_thread_text(found.text).strip(chr(10))[:most]}\n…"
    return found.text or f"(no Python stack: the rank {found.state})"
