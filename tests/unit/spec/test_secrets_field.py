"""The field ``secrets``: names that are checked, values that nothing shows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cloudtrain import Estimator
from cloudtrain._secrets.hiding import StreamHider, ValueHider
from cloudtrain.errors import InvalidJob
from cloudtrain.platforms.local import LocalPlatform
from cloudtrain.spec import TrainingJob
from cloudtrain.spec.secrets import secret_values
from cloudtrain.testing import FakePlatform

VALUE = "s3cr3t/value+1"


def refused(**fields: object) -> InvalidJob:
    with pytest.raises(InvalidJob) as caught:
        TrainingJob.from_dict({"entry_point": "train.py", **fields})
    return caught.value


@pytest.mark.parametrize(
    ("secrets", "message"),
    [
        (["A=" + VALUE], r"secrets\[0\]: A=\.\.\. has a value"),
        (["x y=" + VALUE], r"secrets\[0\]: text with '=' has a value"),
        (["OK", "not a name"], r"secrets\[1\]: 'not a name' is not a valid variable name"),
        (["hf" + "_" + "aB1" * 11 + "z"], r"secrets\[0\]: is a secret itself"),
        (["CLOUDTRAIN_JOB_NAME"], "reserved for cloudtrain"),
        (["A", "A"], "A is listed twice"),
        ({"A": VALUE}, "secrets: expected a list, got a mapping"),
        (VALUE, "secrets: expected a list, got"),
    ],
)
def test_mistakes_are_named_and_values_are_not_shown(secrets: object, message: str) -> None:
    error = refused(secrets=secrets)
    assert VALUE not in str(error) and "aB1" not in str(error)
    with pytest.raises(InvalidJob, match=message):
        raise error


def test_a_variable_is_not_given_twice() -> None:
    assert "in environment too" in refused(secrets=["A"], environment={"A": "b"}).message


@pytest.mark.parametrize(("environ", "problem"), [({}, "A is not set"), ({"A": ""}, "A is empty")])
def test_a_missing_variable_is_an_error(environ: dict[str, str], problem: str) -> None:
    with pytest.raises(InvalidJob, match=problem) as caught:
        secret_values(["A"], environ)
    assert "export A" in caught.value.hint


def test_only_the_platform_gets_the_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text("")
    monkeypatch.setenv("MY_VARIABLE", VALUE)
    for platform in (FakePlatform(), LocalPlatform()):
        estimator = Estimator(str(tmp_path / "train.py"), secrets=["MY_VARIABLE"], platform=platform)
        submission = estimator.prepare()
        assert submission.request.secrets == {"MY_VARIABLE": VALUE}
        assert submission.request.body["environment"] == {"MY_VARIABLE": "***"}
        assert VALUE not in submission.request.to_json() + repr(submission) + submission.job.to_json()
    monkeypatch.delenv("MY_VARIABLE")
    with pytest.raises(InvalidJob, match="MY_VARIABLE is not set"):
        estimator.prepare()


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 13, 1000])
def test_values_are_hidden_in_a_stream_however_it_is_cut(size: int) -> None:
    hider = ValueHider([VALUE, VALUE + "-longer", "abcabd", "abc"])
    text = f"a {VALUE} b\n{VALUE}-longer s3cr3 abcabcabd abc s3cr3t%2Fvalue%2B1 s3c".encode()
    stream = StreamHider(hider)
    pieces = [stream.feed(text[start : start + size]) for start in range(0, len(text), size)]
    shown = b"".join([*pieces, stream.flush()])
    assert shown == b"a *** b\n*** s3cr3 abc*** abc *** s3c"
    assert stream.flush() == b""


def test_a_line_is_not_held_back() -> None:
    stream = StreamHider(ValueHider([VALUE]))
    assert stream.feed(b"a line\n") == b"a line\n"
    assert stream.feed(b"s3cr") == b""
    assert stream.feed(b"et\n") == b"s3cret\n"


def test_without_secrets_nothing_changes() -> None:
    stream = StreamHider(ValueHider(["abc", ""]))
    assert stream.feed(b"abc") == b"abc"
    assert not ValueHider([]) and ValueHider([]).hide_all({"a": ["b", 1, None]}) == {"a": ["b", 1, None]}


def test_a_value_is_hidden_in_json_and_in_a_printed_dict() -> None:
    for value in ('qu"ote\\é1', "-----BEGIN-----\nline 1\n-----END-----", 'it\'s "both"'):
        shown = f"{json.dumps([value])} {json.dumps(value, ensure_ascii=False)} { {'token': value} }"
        hidden = ValueHider([value]).hide(shown.encode()).decode()
        assert hidden.count("***") == 3 and "1" not in hidden and "both" not in hidden
