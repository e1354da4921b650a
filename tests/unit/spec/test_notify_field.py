"""The field ``notify``: rules that are checked, and secrets that no request has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cloudtrain import Estimator
from cloudtrain.errors import InvalidJob
from cloudtrain.runtime.notifications.notification import Notification
from cloudtrain.runtime.notifications.outbox import is_wanted
from cloudtrain.runtime.notifications.rules import Rule
from cloudtrain.spec import TrainingJob
from cloudtrain.submission import Submission, prepare

VALUE = "https://hooks.slack.com/services/T0/" + "B0" * 10


def refused(**rule: Any) -> InvalidJob:
    with pytest.raises(InvalidJob) as caught:
        TrainingJob.from_dict({"entry_point": "train.py", "notify": [rule]})
    assert VALUE not in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({}, r"notify\[0\]: expected one of command, webhook, slack, email, got none"),
        ({"slack": "$A", "command": ["x"]}, "got command and slack"),
        ({"slack": VALUE}, r"notify\[0\].slack: is a secret, and has to be the name of a variable"),
        ({"webhook": "https://ann:" + "pa55w0rd" + "@example.org"}, "the URL has a secret in it"),
        ({"webhook": "example.org/hook"}, "is not a URL of http or https"),
        ({"webhook": "$A", "secret": "plain"}, "secret: is a secret"),
        ({"webhook": "$A", "smtp": "mail:25"}, "smtp: belongs to email, not to webhook"),
        ({"email": ["a@b.org"], "smtp": "mail:smtps"}, "smtp: mail:smtps is not a mail server and its port"),
        ({"email": ["a@b.org"], "smtp": "::1"}, "smtp: ::1 is not a mail server and its port"),
        ({"email": "a@example.org", "password": "sesame"}, "password: is a secret"),
        ({"slack": "$A", "on": ["fails"]}, r"on\[0\]: expected completed, cost, failed"),
        ({"slack": "$A", "cost_above": float("nan")}, "cost_above"),
        ({"slack": "$A", "cost_above": float("inf"), "price_per_hour": 1}, "cost_above"),
        ({"slack": "$A", "on": "cost"}, "needs cost_above"),
        ({"slack": "$CLOUDTRAIN_JOB_NAME"}, "reserved for cloudtrain"),
        ({"slak": "$A"}, "unknown field 'notify\\[0\\].slak'"),
    ],
)
def test_mistakes_are_named_and_values_are_not_shown(rule: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidJob, match=message):
        raise refused(**rule)


def prepared(platform: str, tmp_path: Path, **fields: Any) -> Submission:
    (tmp_path / "train.py").write_text("")
    more = {"kubernetes": {"image_uri": "python:3.12", "platform_options": {"discard_outputs": True}}}
    more["sagemaker"] = {
        "image_uri": "python:3.12",
        "instance_type": "ml.m5.xlarge",
        "role": "arn:aws:iam::123456789012:role/Train",
        "output_path": "s3://bucket/out",
        "code_location": "s3://bucket/code",
    }
    script = str(tmp_path / "train.py")
    return prepare({"entry_point": script, "platform": platform, **more.get(platform, {}), **fields})


RULES = [{"on": "failed", "slack": "${HOOK}"}, {"webhook": "http://127.0.0.1/$PART"}]


@pytest.mark.parametrize("platform", ["local", "kubernetes"])
def test_values_are_in_no_request(platform: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK", VALUE)
    monkeypatch.setenv("PART", "p4rt-of-url")
    submission = prepared(platform, tmp_path, notify=RULES)
    assert submission.request.secrets == {"HOOK": VALUE, "PART": "p4rt-of-url"}
    text = submission.request.to_json() + repr(submission) + submission.job.to_json()
    assert VALUE not in text and "p4rt-of-url" not in text and "${HOOK}" in text
    monkeypatch.delenv("PART")
    with pytest.raises(InvalidJob, match="the variable PART is not set"):
        prepared(platform, tmp_path, notify=RULES)


def test_pods_get_the_variables_from_their_secret_and_ranks_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HOOK", "PART"):
        monkeypatch.setenv(name, "value")
    request = prepared("kubernetes", tmp_path, notify=RULES, job_name="noisy", secrets=["PART"]).request
    [container] = request.body["objects"][0]["spec"]["template"]["spec"]["containers"]
    env = {entry["name"]: entry for entry in container["env"]}
    for name in ("HOOK", "PART"):
        assert env[name] == {"name": name, "valueFrom": {"secretKeyRef": {"name": "noisy", "key": name}}}
    assert env["CLOUDTRAIN_DROPPED_VARIABLES"]["value"] == "HOOK"
    assert [rule.kind for rule in map(Rule.from_dict, json.loads(env["CLOUDTRAIN_NOTIFY"]["value"]))] == [
        "slack",
        "webhook",
    ]


def test_sagemaker_sends_nothing_and_gets_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    submission = prepared("sagemaker", tmp_path, notify=[{"slack": "$NOT_SET"}])
    assert submission.request.secrets == {} and "NOT_SET" not in submission.request.to_json()
    assert any("cloudtrain notify JOB --wait" in warning for warning in submission.warnings)


def test_a_default_of_the_user_applies_and_a_job_replaces_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("notify: {slack: $HOOK}\n")
    monkeypatch.setenv("CLOUDTRAIN_CONFIG", str(config))
    monkeypatch.setenv("HOOK", VALUE)
    assert prepared("local", tmp_path).request.body["notify"] == [{"slack": "$HOOK"}]
    own = Estimator(str(tmp_path / "train.py"), platform="local", notify=[{"command": ["true"]}]).prepare()
    assert own.request.body["notify"] == [{"command": ["true"]}] and own.request.secrets == {}


@pytest.mark.parametrize(
    ("rule", "event", "kind", "wanted"),
    [
        ({}, "failed", None, True),
        ({}, "cost", None, False),
        ({"on": ["hanging"]}, "failed", "hang", True),
        ({"on": ["hanging"]}, "failed", "user-error", False),
        ({"on": ["failed"]}, "hanging", "hang", False),
        ({"on": ["completed"]}, "failed", None, False),
    ],
)
def test_which_events_a_rule_is_about(
    rule: dict[str, Any], event: str, kind: str | None, wanted: bool
) -> None:
    notification = Notification("a/end", event, "a", "local", 0, 1.0, failure_class=kind)
    assert is_wanted(Rule.from_dict({"command": ["x"], **rule}), notification) == wanted
