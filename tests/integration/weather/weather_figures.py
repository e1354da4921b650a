"""The totals of all rounds."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from fault_figures import counts


@dataclass
class Figures:
    faults: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    """How jobs ended, as they should have."""
    repeated_steps: int = 0
    """Steps that were trained again after a restart."""
    failed_saves: int = 0
    wrong: list[str] = field(default_factory=list)
    """Jobs that did not end as they should have."""
    lost: list[str] = field(default_factory=list)
    """Restored steps older than what was durable."""
    torn: list[str] = field(default_factory=list)
    """Restored states that are not those of their step."""
    leaked: list[str] = field(default_factory=list)
    """Processes and files that jobs left behind."""

    @property
    def violations(self) -> list[str]:
        return [
            f"{kind.upper()} {text}"
            for kind in ("wrong", "lost", "torn", "leaked")
            for text in getattr(self, kind)
        ]

    def __str__(self) -> str:
        return "\n".join(
            [
                f"{self.faults.total()} faults, {self.ends.total()} jobs: {len(self.wrong)} wrong ends, "
                f"{len(self.lost)} lost, {len(self.torn)} torn, {len(self.leaked)} leaked",
                f"  faults: {counts(self.faults)}",
                f"  ends: {counts(self.ends)}",
                f"  steps trained again: {self.repeated_steps}; saves that failed: {self.failed_saves}",
                *(f"  {text}" for text in self.violations),
            ]
        )
