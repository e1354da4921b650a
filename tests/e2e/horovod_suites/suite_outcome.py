"""The outcome that the ranks of a suite recorded, and how it compares with the list."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from suite_list import Part


@dataclass
class Outcome:
    """The tests of all ranks together: one that failed on one rank failed."""

    ranks: int = 0
    passed: set[str] = field(default_factory=set)
    skipped: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    unfinished: dict[int, str] = field(default_factory=dict)
    """The ranks that did not end their tests, with the last test that each began."""

    @property
    def counts(self) -> str:
        return f"{len(self.passed)} passed, {len(self.failed)} failed, {len(self.skipped)} skipped"


def read_outcome(folder: Path) -> Outcome:
    """Read the records of all ranks. A record that was cut off ends at its last whole line."""
    outcome = Outcome()
    for path in sorted(folder.glob("rank-*.jsonl")):
        outcome.ranks += 1
        _read_rank(outcome, int(path.stem.removeprefix("rank-")), path)
    outcome.passed -= outcome.failed.keys()
    for test in outcome.passed | outcome.failed.keys():
        outcome.skipped.pop(test, None)
    return outcome


def _read_rank(outcome: Outcome, rank: int, path: Path) -> None:
    last, finished = "no test", False
    passed: Counter[str] = Counter()
    skipped: dict[str, str] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            break
        last = event.get("started", last)
        finished = finished or "finished" in event
        if event.get("outcome") == "passed":
            passed[event["test"]] += 1
        elif event.get("outcome") == "skipped":
            skipped[event["test"]] = event["reason"]
        elif event.get("outcome") == "failed":
            outcome.failed.setdefault(event["test"], f"rank {rank}: {event['reason']}")
    for test in [test for test in skipped if passed[test] == 1]:
        del passed[test]  # pytest reports a test as passed although its subtests were all skipped
    outcome.passed |= passed.keys()
    outcome.skipped.update(skipped)
    if not finished:
        outcome.unfinished[rank] = last


def compare(part: Part, outcome: Outcome) -> list[str]:
    """The differences from the list, one line each."""
    lines = []
    if outcome.ranks != part.ranks:
        lines.append(f"{outcome.ranks} of {part.ranks} ranks began")
    where = Counter(outcome.unfinished.values())
    lines += [f"{count} of {part.ranks} ranks did not end {test}" for test, count in where.items()]
    for test, reason in outcome.failed.items():
        if test not in part.fails:
            lines.append(f"{test} failed: {reason}")
    lines += [f"{test} did not fail" for test in part.fails if test not in outcome.failed]
    for word, found, listed in (
        ("passed", len(outcome.passed), part.passed),
        ("skipped", len(outcome.skipped), part.skipped),
    ):
        if found != listed:
            lines.append(f"{found} {word}, listed: {listed}")
    return lines
