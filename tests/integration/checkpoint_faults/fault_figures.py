"""Judges what killed trainings leave behind: which saves must be restored, which may be, and the totals."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Figures:
    """The totals of all rounds."""

    kills: Counter[str] = field(default_factory=Counter)
    storage: Counter[str] = field(default_factory=Counter)
    durable: int = 0
    """Saves that the trainings recorded as durable."""
    failed: Counter[str] = field(default_factory=Counter)
    """Failed saves and refused restores, by error."""
    lost: list[str] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    """Other violations."""

    def __str__(self) -> str:
        return "\n".join(
            [
                f"kills {self.kills.total()}, lost {len(self.lost)}, torn {len(self.torn)}",
                f"  killed: {counts(self.kills)}",
                f"  storage: {counts(self.storage)}",
                f"  durable saves: {self.durable}; errors: {counts(self.failed)}",
                *(f"  LOST {text}" for text in self.lost),
                *(f"  TORN {text}" for text in self.torn),
                *(f"  WRONG {text}" for text in self.wrong),
            ]
        )


def counts(counter: Counter[str]) -> str:
    """Such as ``rank 0 12, group 9``."""
    return ", ".join(f"{name} {count}" for name, count in counter.most_common()) or "none"


class Judge:
    """Compares the trainings' journals with the checkpoints found after each kill."""

    def __init__(self) -> None:
        self.figures = Figures()
        self._durable = 0
        self._begun = 0

    def read(self, journal: str, where: str) -> None:
        for line in journal.splitlines():
            event, step_text, *text = line.split(" ", 2)
            step = int(step_text)
            if event == "begun":
                self._begun = max(self._begun, step)
            elif event == "durable":
                self._durable = max(self._durable, step)
                self.figures.durable += 1
            elif event in ("failed", "refused"):
                self.figures.failed[f"{event}: {text[0].split(':')[0]}"] += 1
                if "Unreachable" not in text[0].split(":")[0]:
                    self.figures.wrong.append(f"{where}: {line}")
            elif event == "restored":
                self._restored(step, text == ["torn"], where)

    def found(self, found: dict[str, Any], where: str) -> None:
        self.figures.lost += [f"{where}: {text}" for text in found["lost"]]
        self.figures.torn += [f"{where}: step {step}" for step in found["torn"]]
        self._restored(found["step"] or 0, False, where)

    def _restored(self, step: int, torn: bool, where: str) -> None:
        if step < self._durable:
            self.figures.lost.append(f"{where}: step {self._durable} was durable, step {step} is the latest")
            self._durable = step
        if step > self._begun:
            self.figures.wrong.append(f"{where}: step {step} is the latest, of {self._begun} begun")
        if torn:
            self.figures.torn.append(f"{where}: step {step}")
