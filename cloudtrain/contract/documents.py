"""Reads JSON documents that may be damaged or hostile. Any error is a ValueError that names the place."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Callable, TypeVar

LARGEST_REPORT = 64 * 1024
"""The most bytes that are read of one document, or one line, that a job writes about itself."""

LARGEST_NUMBER = 2**53
"""The limit for counts, times and sizes in a document, up to which all numbers are exact in JSON."""

MOST_HOSTS = 10_000
"""The most hosts of a job, and the most ranks on one of them."""

LAST_TIME = 253_402_300_799
"""The end of the year 9999, in seconds since the epoch."""

Value = TypeVar("Value")


def parse_json(data: str | bytes) -> Any:
    """The value of a JSON document.

    Raises:
        ValueError: it is not UTF-8, not JSON, or nested too deeply.
    """
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    except ValueError as error:
        raise ValueError(f"it is not JSON: {error}") from None


class Fields:
    """The fields of a JSON object, by name and type. Every method raises ValueError if a field has another type.

    A field without a ``default`` is required; null counts as missing.
    """

    def __init__(self, record: object, where: str = "") -> None:
        """
        Args:
            where: the place of the object in its document, for messages.
        """
        if not isinstance(record, Mapping):
            raise ValueError(f"{where or 'it'} is not an object")
        self._record = record
        self._where = f"{where}." if where else ""

    def __contains__(self, name: str) -> bool:
        return self._record.get(name) is not None

    def names_among(self, known: Mapping[str, Any]) -> list[str]:
        """The names in ``known`` of fields that are not missing."""
        return [name for name, value in self._record.items() if value is not None and name in known]

    def text(self, name: str, *default: str | None) -> Any:
        return self._get(name, default, lambda value: isinstance(value, str), "a string")

    def number(self, name: str, *default: float | None, least: float = -LARGEST_NUMBER) -> Any:
        return self._get(name, default, lambda value: is_number(value) and value >= least, "a number")

    def any_number(self, name: str, *default: float | None) -> Any:
        """A number of any size, or NaN: a value that a script printed."""

        def fits(value: object) -> bool:
            return isinstance(value, float) or (isinstance(value, int) and is_number(value))

        return self._get(name, default, fits, "a number")

    def time(self, name: str, *default: float | None) -> Any:
        """Seconds since the epoch."""
        return self._get(name, default, lambda value: is_number(value) and 0 <= value <= LAST_TIME, "a time")

    def integer(self, name: str, *default: int | None, least: int = 0, most: int = LARGEST_NUMBER) -> Any:
        def fits(value: object) -> bool:
            return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most

        return self._get(name, default, fits, f"an integer from {least} on")

    def boolean(self, name: str, *default: bool | None) -> Any:
        return self._get(name, default, lambda value: isinstance(value, bool), "true or false")

    def texts(self, name: str, *default: Sequence[str]) -> tuple[str, ...]:
        """A list of strings."""
        return tuple(self._get(name, default, lambda value: is_list_of(str, value), "a list of strings"))

    def text_pairs(self, name: str, *default: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
        """A list of pairs of strings."""

        def fits(value: Any) -> bool:
            return is_list_of((list, tuple), value) and all(
                len(pair) == 2 and is_list_of(str, pair) for pair in value
            )

        return tuple(
            (key, item) for key, item in self._get(name, default, fits, "a list of pairs of strings")
        )

    def mapping(self, name: str, *default: Mapping[str, Any]) -> Any:
        return self._get(name, default, lambda value: isinstance(value, Mapping), "an object")

    def text_mapping(self, name: str, *default: Mapping[str, str]) -> Any:
        """An object whose values are strings."""

        def fits(value: object) -> bool:
            return isinstance(value, Mapping) and all(isinstance(item, str) for item in value.values())

        return self._get(name, default, fits, "an object whose values are strings")

    def items(self, name: str, *default: Sequence[Any]) -> Any:
        """A list of anything."""
        return self._get(name, default, lambda value: isinstance(value, (list, tuple)), "a list")

    def numbers(self, name: str) -> Any:
        """A list of numbers from 0 on, some of which may be null; empty if it is missing."""

        def fits(value: object) -> bool:
            return isinstance(value, (list, tuple)) and all(
                item is None or (is_number(item) and item >= 0) for item in value
            )

        return self._get(name, ((),), fits, "a list of numbers")

    def number_lists(self, name: str, *default: Any, length: int) -> Any:
        """An object whose values are lists of ``length`` numbers, of any size or NaN."""

        def fits(value: object) -> bool:
            return isinstance(value, Mapping) and all(
                is_list_of((int, float), item)
                and len(item) == length
                and all(isinstance(number, float) or is_number(number) for number in item)
                for item in value.values()
            )

        return self._get(name, default, fits, f"an object with {length} numbers in each value")

    def objects(self, name: str, *default: Sequence[Any]) -> list[Fields]:
        """A list of objects."""
        found = self.items(name, *default)
        return [Fields(item, f"{self._where}{name}[{index}]") for index, item in enumerate(found)]

    def fields(self, name: str) -> Fields:
        """An object."""
        return Fields(self._record.get(name), f"{self._where}{name}")

    def parsed(self, name: str, parse: Callable[[str], Value]) -> Value:
        """A string that ``parse``, such as an Enum, accepts."""
        text = self.text(name)
        try:
            return parse(text)
        except ValueError:
            raise ValueError(f"{self._where}{name} is not valid: {_short(text)}") from None

    def _get(self, name: str, default: tuple[Any, ...], fits: Callable[[Any], bool], what: str) -> Any:
        value = self._record.get(name)
        if value is None:
            if default:
                return default[0]
            raise ValueError(f"{self._where}{name} is missing")
        if not fits(value):
            raise ValueError(f"{self._where}{name} is not {what}: {_short(value)}")
        return value


def is_number(value: object) -> bool:
    """Whether ``value`` is a number, neither NaN nor huge."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return -LARGEST_NUMBER <= value <= LARGEST_NUMBER


def is_program_text(value: object) -> bool:
    """Whether ``value`` is a string that a program can receive as an argument or in a variable."""
    try:
        return isinstance(value, str) and b"\0" not in os.fsencode(value)
    except UnicodeEncodeError:
        return False


def is_count(value: object) -> bool:
    """Whether ``value`` is an integer from 0 on, and not huge."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST_NUMBER


def is_list_of(kind: type | tuple[type, ...], value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(item, kind) for item in value)


def _short(value: object) -> str:
    """The beginning of a value, for a message."""
    if isinstance(value, (Mapping, list, tuple)):
        return f"it has {len(value)} items"
    if isinstance(value, int) and not is_number(value):
        return "a huge number"
    return repr(value)[:60]
