"""Whatever a job calls itself, its metrics and its errors: its card is the same page, and runs nothing."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from job_views import NOW, view
from parsed_html import parse

from cloudtrain._display.card import card, problem_card, table
from cloudtrain._display.facts import text
from cloudtrain._display.markup import Html, link
from cloudtrain.contract import FailureClass, FailureReport, JobStatus
from cloudtrain.observe.metric_series import Point
from cloudtrain.platforms import HostState, JobState

TAGS = {
    "", "a", "b", "circle", "code", "dd", "details", "div", "dl", "dt", "li", "p", "polyline", "pre", "progress",
    "span", "style", "summary", "svg", "table", "tbody", "td", "th", "thead", "title", "tr", "ul",
}  # fmt: skip
ATTRIBUTES = {
    "aria-hidden", "aria-label", "class", "cx", "cy", "height", "href", "max", "points", "r", "rel", "role", "scope",
    "tabindex", "target", "value", "viewbox", "width",
}  # fmt: skip

ATTACKS = [
    "<script>alert(1)</script>",
    "</style><script>alert(1)</script>",
    "</title></svg><img src=x onerror=alert(1)>",
    "\"' onmouseover=alert(1) x='\"",
    "javascript:alert(1)",
    "java\nscript:alert(1)",
    'https://example.org/" onclick=alert(1) a="',
    "https://user@[::1/<b>",
    "data:text/html,<script>alert(1)</script>",
    "&lt;script&gt;&#x3c;",
    "]]><!-- --><![CDATA[",
    "a\u202egnp.exe\x00\x1b]0;owned\x07\ud800\u2028",
    "x" * 100_000,
]


def everywhere(evil: str) -> Any:
    """A job that says this wherever it can say something."""
    failure = FailureReport(
        FailureClass.USER_ERROR, evil, evil, rank=1, host=evil, exception_type=evil, traceback=evil,
        log_tail=(evil, evil), stacks=evil, phase=evil,
    )  # fmt: skip
    return view(
        {evil: [Point(NOW, 1.0), Point(NOW, 2.0), Point(NOW, math.nan)]},
        name=evil, platform=evil, status=JobStatus.FAILED, failure=failure, reason=evil, phase=evil, phases={evil: 1.0},
        hosts=[HostState(evil, evil, evil, 1, 2)] * 9, metrics={evil: 1.0}, model_data=evil, output_data=evil,
        warnings=[evil], checkpoint_uri=evil, git_commit=evil, place=evil, details={evil: evil},
        states=[JobState(NOW, evil, evil), JobState(NOW, evil, evil)],
    )  # fmt: skip


def _check(html: Html) -> None:
    assert len(html) < 60_000
    assert not any(character in html for character in "\x00\x1b\x07\u202e\u2028\ud800")
    for element in parse(html).all():
        assert element.tag in TAGS
        assert set(element.attributes) <= ATTRIBUTES
        assert (element.attributes.get("href") or "https://").startswith(("https://", "http://"))


@pytest.mark.parametrize("evil", ATTACKS)
def test_an_attack_is_only_shown(evil: str) -> None:
    html = card(everywhere(evil), [(evil, evil)])
    _check(html)
    _check(problem_card(evil, evil, evil, evil))
    _check(table([everywhere(evil)] * 3, 10))
    assert [one.text for one in parse(html).all("style")] == [
        one.text for one in parse(card(view())).all("style")
    ]
    if evil.isprintable() and len(evil) < 50:
        assert parse(html).text.count(evil) > 10


@settings(deadline=None, max_examples=50)
@given(st.text())
def test_any_text_is_only_shown(evil: str) -> None:
    _check(card(everywhere(evil)))
    shown = text(everywhere(evil))
    assert shown.encode()
    assert "\x1b" not in shown


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.floats(), max_size=300),
    st.floats(),
    st.integers(0, 2**53),
    st.integers(0, 2**53),
    st.one_of(st.none(), st.integers(-(2**53), 2**53)),
)
def test_any_numbers_make_a_card(
    values: list[float], last: float, done: int, total: int, step: int | None
) -> None:
    series = {"loss": [Point(NOW, value) for value in values]}
    hosts = [HostState("algo-1", "fetch", done=done, total=total)]
    found = view(series, metrics={"loss": last}, phase="fetch", hosts=hosts, step=step)
    _check(card(found))
    text(found)


@pytest.mark.parametrize("uri", ["https://console.example.org/a?b=c&d=e#f", "http://localhost:8080/x"])
def test_an_address_of_a_web_page_is_a_link(uri: str) -> None:
    (anchor,) = parse(link(uri)).all("a")
    assert anchor.attributes["href"] == anchor.text == uri
    assert anchor.attributes["rel"] == "noopener noreferrer"


@pytest.mark.parametrize("uri", ["s3://bucket/key", "file:///tmp/x", "/tmp/x", *ATTACKS])
def test_anything_else_is_only_shown(uri: str) -> None:
    assert parse(link(uri)).all("a") == []
