"""Why a job waits: a sentence, what to do about it, and whether it can resolve itself."""

from __future__ import annotations

from dataclasses import dataclass

CONFIGURATION_SECONDS = 180.0
"""How long an error that does not heal by itself may last while a client waits: someone may repair it meanwhile."""
NETWORK_SECONDS = 1800.0
"""The same for an error that may heal, but usually does not."""


@dataclass(frozen=True)
class Why:
    """Why a job waits."""

    sentence: str
    advice: str = ""
    patience: float | None = None
    """Seconds after which a job that still waits for this is given up; None: never."""
    since: float | None = None
    """Since when, in seconds since the epoch, as far as it is known."""

    def __str__(self) -> str:
        return f"{self.sentence.rstrip('.')}. {self.advice}" if self.advice else self.sentence

    @property
    def is_error(self) -> bool:
        """Whether waiting alone may not help."""
        return self.patience is not None

    def is_hopeless(self, now: float) -> bool:
        """Whether it has lasted too long to resolve itself."""
        return self.patience is not None and self.since is not None and now - self.since > self.patience
