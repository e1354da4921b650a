"""A report survives a round trip through the 1,024 characters of a FailureReason."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from cloudtrain.contract import FailureClass, FailureReport

LIMIT = 1024

word = st.from_regex(r"[A-Za-z][A-Za-z0-9_-]{0,12}", fullmatch=True)
identifier = st.from_regex(r"[^\W\d]\w{0,12}", fullmatch=True)
line = st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]), max_size=200).map(str.strip)
classes = st.sampled_from([kind for kind in FailureClass if kind != FailureClass.HANG])
rank = st.integers(0, 4095)


def _reports() -> st.SearchStrategy[FailureReport]:
    common = {"message": line, "hint": line, "host": st.none() | word}
    raised = st.builds(
        FailureReport,
        classes,
        rank=rank,
        exception_type=identifier,
        traceback=st.text(max_size=2000),
        **common,
    )
    killed = st.builds(
        lambda number, **fields: FailureReport(**fields, signal=number, exit_code=128 + number),
        st.integers(1, 64),
        failure_class=classes,
        rank=rank,
        **common,
    )
    exited = st.builds(
        FailureReport,
        classes,
        rank=rank,
        exit_code=st.integers(1, 255),
        log_tail=st.lists(line, max_size=20).map(tuple),
        **common,
    )
    hangs = st.builds(FailureReport, st.just(FailureClass.HANG), rank=st.none() | rank, **common)
    other = st.builds(FailureReport, classes, phase=st.none() | word, **common)
    return raised | killed | exited | hangs | other


@settings(deadline=None)
@given(_reports())
def test_a_report_that_fits_is_restored(report: FailureReport) -> None:
    text = report.reason()
    assert len(text) <= LIMIT
    back = FailureReport.from_reason(text)
    assert back is not None
    for field in ("failure_class", "rank", "host", "exit_code", "signal", "exception_type", "phase"):
        assert getattr(back, field) == getattr(report, field), field
    assert back.message == report.message
    assert back.hint == report.hint
    assert back.reason() == text


def test_a_long_message_leaves_space_for_the_class_and_the_hint() -> None:
    report = FailureReport(FailureClass.STORAGE, "x" * 3000, "do this", host="algo-2", phase="fetch")
    back = FailureReport.from_reason(report.reason())
    assert back is not None
    assert len(report.reason()) == LIMIT
    assert (back.failure_class, back.hint, back.host) == (FailureClass.STORAGE, "do this", "algo-2")
    assert back.message.endswith("x…")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "AlgorithmError: exit code: 1",
        "rank 1 raised ValueError: bad",
        "rank 1 raised ValueError: bad [no-such-class]",
        "ExecuteUserScriptError:\nExitCode 1",
    ],
)
def test_other_texts_are_not_reports(text: str) -> None:
    assert FailureReport.from_reason(text) is None


@pytest.mark.parametrize("prefix", ["", "TypeError: "])
def test_the_summary_of_an_error_under_tf_function_names_its_cause(prefix: str) -> None:
    message = f"in user code:\n\n    File \"train.py\", line 5, in f  *\n        x + 'a'\n\n    {prefix}no such sum\n"
    report = FailureReport(FailureClass.USER_ERROR, message, rank=0, exception_type="TypeError")
    assert report.summary() == "rank 0 raised TypeError: no such sum"
