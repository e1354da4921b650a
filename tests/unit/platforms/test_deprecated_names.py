"""Names of `cloudtrain.platforms` that work for one more version."""

from __future__ import annotations

import pytest

from cloudtrain import platforms
from cloudtrain.platforms.checks import CheckStatus, Finding


@pytest.mark.parametrize(
    ("old", "new"),
    [("Account", "AccountStorage"), ("Outcome", "CheckStatus"), ("telling", "print_states")],
)
def test_a_deprecated_name_warns(old: str, new: str) -> None:
    with pytest.warns(DeprecationWarning, match=new):
        found = getattr(platforms, old)
    assert found is getattr(platforms, new)


def test_the_status_of_a_finding_was_its_outcome() -> None:
    with pytest.warns(DeprecationWarning, match=r"Finding\.status"):
        assert Finding(CheckStatus.OK, "fine").outcome == CheckStatus.OK


def test_the_status_of_a_finding_may_be_given_as_its_outcome() -> None:
    with pytest.warns(DeprecationWarning, match=r"Finding\(status=...\)"):
        found = Finding(outcome=CheckStatus.FAILED, what="broken", hint="fix it")
    assert found == Finding(CheckStatus.FAILED, "broken", "fix it")
    with pytest.raises(TypeError, match="both"):
        Finding(CheckStatus.OK, "fine", outcome=CheckStatus.OK)
    with pytest.raises(TypeError, match="needs status and what"):
        Finding(what="fine")
