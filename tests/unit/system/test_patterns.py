"""`cloudtrain._system.patterns`: regular expressions that are compiled at their first use."""

from __future__ import annotations

import re

import pytest

from cloudtrain._system.patterns import pattern


def test_a_compiled_pattern_has_the_methods_of_a_pattern() -> None:
    word = pattern("[a-z]+", re.IGNORECASE)
    assert word.search("1 Ab 2")[0] == "Ab" and word.sub("-", "1 Ab 2") == "1 - 2"
    assert word.pattern == "[a-z]+" and word.flags & re.IGNORECASE


def test_nothing_is_compiled_before_the_first_use() -> None:
    wrong = pattern("(")
    with pytest.raises(re.error):
        wrong.search("")
