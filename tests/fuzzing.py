"""Damages valid documents at random, and reads them: a reader may only succeed, or raise the error that it documents.

`./scripts/test` reads 5,000 damaged documents in all, always the same. The soak reads 100,000. ``CLOUDTRAIN_SEED``
draws others, ``CLOUDTRAIN_FUZZ`` sets their number. A failure prints the seed, and the number and text of the document.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from random import Random
from typing import Any

import pytest

from cloudtrain.errors import CloudtrainError

FORMATS = {
    "request": 2, "record": 3, "index": 1, "report": 3, "reason": 1, "events": 3, "rank-record": 1, "notice": 1,
    "hyperparameters": 2, "resourceconfig": 2, "inputdataconfig": 2, "manifest": 3, "tree": 3,
    "merge": 2, "messages": 1, "folder": 3, "ending": 1,
    "yaml": 4, "job-file": 4, "archive": 3, "source": 2, "notebook": 2,
}  # fmt: skip
"""Every format that is read, with its share of the documents."""

TOTAL = int(os.environ.get("CLOUDTRAIN_FUZZ") or 5_000)
SEED = os.environ.get("CLOUDTRAIN_SEED") or "13"
SECONDS = 2.0
"""A document that takes longer, also when it is read again, counts as a hang."""

DEEP = 100_000
"""The levels of the deepest documents."""
LONG = 70_000
"""The characters of long texts: more than the 64 KiB that are read of what a job writes."""

STRANGE: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, -(2**64), 10**400, 0.5, -0.0, 1e308, 5e-324),
    *(float("nan"), float("inf"), float("-inf")),
    *(
        "",
        " ",
        "a",
        "\0",
        "\n",
        "..",
        "../..",
        "/etc/passwd",
        "a/../../b",
        "C:\\x",
        "*",
        "null",
        "NaN",
        "9" * 5000,
    ),
    *(
        "\x1b]0;owned\x07",
        "\x1b[2J",
        "\x9b31m",
        "\u202e",
        "\u2028",
        "\ufeff",
        "\ud800",
        "\udcff",
        "é",
        "x" * LONG,
    ),
    *([], {}, [None], [[]], {"": None}, {"a": {"b": []}}, [0] * 1000, {"__proto__": 1}, {"\ud800": "\udfff"}),
)
"""Values that replace others."""

_BYTES = (
    b"\0",
    b"\xff",
    b"\xfe\xff",
    b"\xed\xa0\x80",
    b"\xc0\xaf",
    b"\x1b[31m",
    b"\n",
    b'"',
    b"\\",
    b"{",
    b"]",
    b",,",
)

Seal = Callable[[Any], Any]
Dump = Callable[[Any], bytes]


def count(format_: str) -> int:
    """The number of damaged documents of a format."""
    return max(1, TOTAL * FORMATS[format_] // sum(FORMATS.values()))


def random(format_: str) -> Random:
    """The source of all choices for a format."""
    return Random(f"{SEED}/{format_}")


def dump_json(value: Any, *, ascii_only: bool = False) -> bytes:
    return json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")


def damaged_values(valid: Sequence[Any], choose: Random) -> Iterator[Any]:
    """Values made of ``valid`` ones, without end: with parts removed, exchanged, repeated, renamed, or replaced."""
    while True:
        value = deepcopy(choose.choice(valid))
        for _ in range(choose.choice((1, 1, 1, 2, 4))):
            value = _damaged(value, choose)
        yield value


def damaged_bytes(data: bytes, choose: Random) -> bytes:
    """``data`` with a few bytes cut, changed, repeated or added."""
    for _ in range(choose.choice((1, 1, 2, 5))):
        at, end = sorted(choose.randrange(len(data) + 1) for _ in range(2))
        data = choose.choice(
            (
                lambda at=at, data=data: data[:at],
                lambda at=at, data=data: data[at:],
                lambda at=at, end=end, data=data: data[:at] + data[end:],
                lambda at=at, end=end, data=data: data[:end] + data[at : at + 4096] + data[end:],
                lambda at=at, data=data: data[:at] + choose.choice(_BYTES) + data[at:],
                lambda at=at, data=data: data[:at] + choose.choice(_BYTES) + data[at + 1 :],
                lambda at=at, data=data: data[:at] + bytes([choose.randrange(256)]) + data[at + 1 :],
            )
        )()
    return data


def damaged_documents(
    valid: Sequence[Any], choose: Random, seal: Seal = lambda value: value, dump: Dump = dump_json
) -> Iterator[bytes]:
    """Documents made of ``valid`` values, without end.

    Args:
        seal: completes a damaged value, such as with a digest that makes it look intact.
        dump: writes a value as a document.
    """
    for value in damaged_values(valid, choose):
        kind = choose.random()
        if kind < 0.6:
            yield dump(seal(value))
        elif kind < 0.65:
            yield json.dumps(value, ensure_ascii=True, indent=choose.choice((None, 1))).encode()
        elif kind < 0.9:
            yield damaged_bytes(dump(choose.choice(valid)), choose)
        elif kind < 0.98:
            yield _repeated_key(dump(choose.choice(valid)), choose)
        else:
            yield _hostile(dump(choose.choice(valid)), choose)


def check(
    format_: str,
    documents: Iterator[Any],
    read: Callable[[Any], object],
    allowed: type[Exception] | tuple[type[Exception], ...] = CloudtrainError,
    *,
    advised: bool = True,
) -> None:
    """Read as many of the documents as the format's share is.

    Fails on an exception that is not ``allowed``, on a CloudtrainError whose message has several lines, and on a
    document that takes longer than `SECONDS`.

    Args:
        advised: also fail on a CloudtrainError without a hint. False where a caller adds it.
    """
    for number in range(count(format_)):
        document = next(documents)
        seconds = _read(format_, number, document, read, allowed, advised=advised)
        if seconds > SECONDS:  # the machine may have been busy
            seconds = _read(format_, number, document, read, allowed, advised=advised)
        if seconds > SECONDS:
            pytest.fail(f"{_which(format_, number, document)} took {seconds:.1f} s")


def _read(
    format_: str, number: int, document: Any, read: Callable[[Any], object], allowed: Any, *, advised: bool
) -> float:
    began = time.monotonic()
    try:
        read(document)
    except allowed as error:
        if isinstance(error, CloudtrainError):
            assert error.message and "\n" not in error.message, _which(format_, number, document)
            assert error.hint or not advised, _which(format_, number, document)
    except BaseException as error:  # also the end of the test's time
        raise AssertionError(f"{_which(format_, number, document)}: {error!r}"[:2000]) from error
    return time.monotonic() - began


def _which(format_: str, number: int, document: Any) -> str:
    return f"CLOUDTRAIN_SEED={SEED} {format_} document {number}: {repr(document)[:1000]}"


def _damaged(value: Any, choose: Random) -> Any:
    """``value`` with one change somewhere."""
    if not isinstance(value, (dict, list)) or not value or choose.random() < 0.03:
        return (
            deepcopy(choose.choice(STRANGE)) if choose.random() < 0.9 else _nested(choose.choice((20, 150)))
        )
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    key = choose.choice(keys)
    child = value[key]
    if isinstance(child, (dict, list)) and child and choose.random() < 0.6:
        value[key] = _damaged(child, choose)
        return value
    what = choose.random()
    if what < 0.55:
        value[key] = _damaged(None, choose)
    elif what < 0.65:
        value[key] = [child] if choose.random() < 0.5 else {"value": child}
    elif what < 0.75:
        del value[key]
    elif what < 0.85:
        other = choose.choice(keys)
        value[key], value[other] = value[other], value[key]
    elif isinstance(value, dict):
        value[choose.choice(("", "\0", "x", "sha256", "$tuple", "$dict", f"{key}_", "\ud800"))] = deepcopy(
            child
        )
    else:
        value.insert(choose.randrange(len(value) + 1), deepcopy(child))
    return value


def _nested(depth: int) -> Any:
    value: Any = None
    for level in range(depth):
        value = [value] if level % 2 else {"a": value}
    return value


def _repeated_key(data: bytes, choose: Random) -> bytes:
    """``data`` with a key that it has, or another one, at a place where an object begins."""
    begin = data.find(b"{", choose.randrange(max(1, len(data)))) + 1
    end = data.find(b'"', begin + 1) + 1
    key = data[begin:end] if data[begin : begin + 1] == b'"' and end else b'"x"'
    value = json.dumps(choose.choice(STRANGE)).encode()
    return data[:begin] + key + b": " + value + b", " + data[begin:]


def _hostile(data: bytes, choose: Random) -> bytes:
    return choose.choice(
        (
            b"",
            b"\n",
            b"\0" * 100,
            data + data,
            b"\xef\xbb\xbf" + data,
            data.decode("utf-8", "replace").encode("utf-16"),
            b"[" * DEEP,
            b'{"a":' * DEEP,
            b"[" * DEEP + b"]" * DEEP,
            b" " * LONG + data,
            data + b" " * LONG,
            b"1" + b"0" * LONG,
            b'"' + b"a" * (1 << 20) + b'"',
            bytes(choose.randrange(256) for _ in range(200)),
        )
    )
