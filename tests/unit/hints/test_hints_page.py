"""The page of hints is the table, and every hint fits its own example."""

from __future__ import annotations

import string

import pytest
from hints_page import PAGE, rendered

from cloudtrain.runtime.diagnose.hints.known import SUBJECTS
from cloudtrain.runtime.diagnose.hints.table import Hint

HINTS = [hint for hints in SUBJECTS.values() for hint in hints]
FACTS = {
    "channels",
    "below_source",
    "next_to_source",
    "absent_channel",
    "found_in",
    "own_file",
    "own_package",
    "foreign",
    "top",
    "xid_meaning",
    "xid_action",
}


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == rendered(), "run: python tests/unit/hints/hints_page.py"


@pytest.mark.parametrize("hint", HINTS, ids=lambda hint: hint.example[:60])
def test_every_placeholder_is_a_group_or_a_fact(hint: Hint) -> None:
    groups = {name for name in FACTS | hint.placeholders if f"(?P<{name}>" in hint.pattern}
    assert hint.placeholders <= FACTS | groups
    assert [name for _, name, *_ in string.Formatter().parse(hint.text)]
