"""Amounts in Kubernetes' notation, as numbers and for people."""

from __future__ import annotations

import re
from fractions import Fraction

_QUANTITY = re.compile(
    r"(?P<number>[+-]?(?:\d+\.?\d*|\.\d+))(?:(?P<unit>[KMGTPE]i|[numkMGTPE])|[eE](?P<power>[+-]?\d{1,2}))?"
)
_SCALE = {
    "": Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    **{unit: Fraction(1000) ** power for power, unit in enumerate("kMGTPE", 1)},
    **{f"{unit}i": Fraction(1024) ** power for power, unit in enumerate("KMGTPE", 1)},
}
LONGEST = 40
"""Characters of a quantity: any number of so many is a float."""
_BYTES = ("memory", "storage", "hugepages")


def parse_quantity(given: object) -> Fraction | None:
    """The value of a quantity of the API: ``500m`` is 1/2, ``1Ki`` is 1024; None for any other text.

    >>> parse_quantity("1953125Ki")
    Fraction(2000000000, 1)
    """
    text = str(given).strip()
    match = _QUANTITY.fullmatch(text)
    if match is None or len(text) > LONGEST:
        return None
    scale = Fraction(10) ** int(match["power"]) if match["power"] else _SCALE[match["unit"] or ""]
    return Fraction(match["number"]) * scale


def show_quantity(value: Fraction, resource: str) -> str:
    """An amount for people: bytes in GiB or MiB, anything else as a number.

    >>> show_quantity(Fraction(2000000000), "memory"), show_quantity(Fraction(1, 2), "cpu")
    ('1.9 GiB', '0.5')
    """
    if not any(word in resource for word in _BYTES):
        return f"{float(value):.6g}"
    unit, size = ("GiB", 2**30) if abs(value) >= 2**30 else ("MiB", 2**20)
    return f"{float(value / size):.1f}".removesuffix(".0") + f" {unit}"
