"""Why a job waits: a sentence, what to do about it, and whether it can go on by itself."""

from __future__ import annotations

import re
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
        """Whether it has lasted too long to go on by itself."""
        return self.patience is not None and self.since is not None and now - self.since > self.patience


_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_DECIMAL = {"m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_QUANTITY = re.compile(r"(?P<number>[+-]?\d+(?:\.\d+)?(?:e[+-]?\d+)?)(?P<unit>[KMGTPE]i|[mkMGTPE])?")
_BYTES = ("memory", "storage", "hugepages")


def parse_quantity(given: str) -> float | None:
    """The value of a quantity of the API: ``500m`` is 0.5, ``1Ki`` is 1024; None for any other text.

    >>> parse_quantity("1953125Ki")
    2000000000.0
    """
    match = _QUANTITY.fullmatch(given.strip())
    if match is None:
        return None
    unit = match["unit"] or ""
    return float(match["number"]) * _BINARY.get(unit, _DECIMAL.get(unit, 1.0))


def show_quantity(given: str, resource: str) -> str:
    """A quantity for people: bytes in GiB or MiB, anything else as a number.

    >>> show_quantity("1953125Ki", "memory"), show_quantity("500m", "cpu")
    ('1.9 GiB', '0.5')
    """
    value = parse_quantity(given)
    if value is None:
        return given
    if not any(word in resource for word in _BYTES):
        return f"{value:g}"
    unit, size = ("GiB", 2**30) if value >= 2**30 else ("MiB", 2**20)
    return f"{value / size:.1f}".removesuffix(".0") + f" {unit}"
