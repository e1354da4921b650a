"""The damaged documents themselves: they are many, they differ, and they are the same in every run."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from itertools import islice
from random import Random

import fuzzing
import pytest

from cloudtrain.errors import InvalidJob

VALID = {
    "name": "job",
    "hosts": ["algo-1", "algo-2"],
    "settings": {"stop_grace": 120.0, "channels": [["a", "b"]]},
}


def test_the_documents_differ_and_are_the_same_in_every_run() -> None:
    first, second = (list(islice(fuzzing.damaged_documents([VALID], Random("seed")), 500)) for _ in range(2))
    assert first == second
    assert len(set(first)) > 300


def test_most_documents_are_damaged_in_meaning_only() -> None:
    parsed = 0
    for document in islice(fuzzing.damaged_documents([VALID], Random("seed")), 500):
        with suppress(ValueError, RecursionError):
            parsed += isinstance(json.loads(document), dict)
    assert parsed > 250


def test_a_traceback_is_found_and_names_the_document() -> None:
    documents = fuzzing.damaged_documents([VALID], Random("seed"))
    with pytest.raises(AssertionError, match=r"CLOUDTRAIN_SEED=\w+ request document \d+: b'"):
        fuzzing.check(
            "request", documents, lambda data: json.loads(data)["settings"]["stop_grace"], ValueError
        )


def test_a_hang_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzzing, "SECONDS", 0.01)
    with pytest.raises(pytest.fail.Exception, match="took"):
        fuzzing.check("request", iter([b"x"]), lambda _: time.sleep(0.1))


def test_an_error_without_advice_is_found() -> None:
    def read(_document: bytes) -> None:
        raise InvalidJob("bad")

    with pytest.raises(AssertionError):
        fuzzing.check("request", iter([b"x"]), read)
