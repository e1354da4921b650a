"""The list of tests that only the soak runs names tests that exist, and that CI runs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import variants

PATH = "integration/local/test_one.py"
VARIANT, SHOWN = (SimpleNamespace(path=variants.TESTS / PATH, name=f"test_it[{one}]") for one in "ab")


@pytest.fixture(autouse=True)
def _one_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(variants, "SHOWN_BY", {PATH: {"test_it[a]": "test_it[b]"}})


def check(items: list[Any], in_soak: list[Any], needy: list[Any]) -> None:
    variants.check(items, in_soak, needy)


def test_an_entry_leaves_its_test_to_the_soak() -> None:
    check([VARIANT, SHOWN], [VARIANT], [])
    variant: Any = VARIANT
    shown: Any = SHOWN
    assert (variants.is_variant(variant), variants.is_variant(shown)) == (True, False)


@pytest.mark.parametrize(
    ("items", "in_soak", "needy", "why"),
    [
        ([SHOWN], [], [], "there is no test test_it.a. in integration/local/test_one.py"),
        ([VARIANT], [VARIANT], [], "CI does not run test_it.b., which shows test_it.a."),
        ([VARIANT, SHOWN], [VARIANT, SHOWN], [], "CI does not run test_it.b., which shows test_it.a."),
        ([VARIANT, SHOWN], [VARIANT], [SHOWN], "test_it.b. is left out where test_it.a. is not"),
    ],
)
def test_an_entry_that_loses_something_is_refused(
    items: list[Any], in_soak: list[Any], needy: list[Any], why: str
) -> None:
    with pytest.raises(pytest.UsageError, match=why):
        check(items, in_soak, needy)
