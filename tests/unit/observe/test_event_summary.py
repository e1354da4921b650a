"""The cached summary of a job's events."""

from __future__ import annotations

import hashlib
import json

import pytest

from cloudtrain.runtime.supervisor.event_summary import EventSummary, from_cached, to_cached

EVENT = json.dumps({"kind": "attempt", "number": 0, "time": 1.0}).encode() + b"\n"


@pytest.mark.parametrize(
    "damage",
    [
        lambda summary: summary["meter"].update(added=1),
        lambda summary: summary.update(added=1),
        lambda summary: summary.pop("trends"),
        lambda summary: summary.update(hosts=[]),
    ],
    ids=["field-of-a-part", "field", "missing", "type"],
)
def test_the_summary_of_another_commit_is_replaced(damage) -> None:
    """Its version is the same; its fields may not be."""
    kept = EventSummary()
    whole = kept.update(lambda position: EVENT[position:]).to_dict()
    assert EventSummary.from_json(kept.to_json()).summary.to_dict() == whole
    values = from_cached(kept.to_json())
    assert values is not None
    damage(values["summary"])
    found = EventSummary.from_json(to_cached({"events": values["events"], "summary": values["summary"]}))
    assert found.summary.to_dict() == EventSummary().summary.to_dict()
    assert found.update(lambda position: EVENT[position:]).to_dict() == whole


@pytest.mark.parametrize("content", [b"[" * 200_000 + b"]" * 200_000, b"[1]", b"3", b"{}", b"{"])
def test_forged_values_with_their_hash_count_as_missing(content: bytes) -> None:
    assert from_cached(hashlib.sha256(content).hexdigest().encode() + b"\n" + content) is None
