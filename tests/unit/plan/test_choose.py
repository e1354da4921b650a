"""A plan chooses between its options, and is honest about what it does not know."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest

from cloudtrain._display.planned import money, notes, prediction_text, rows
from cloudtrain.contract import JobStatus
from cloudtrain.errors import InvalidJob
from cloudtrain.history.predictions import keep, prediction
from cloudtrain.plan.choose import Plan, option_for
from cloudtrain.plan.estimate import Offer, Range, Training, estimate
from cloudtrain.plan.hardware import gpu_name, hardware, instance_types
from cloudtrain.plan.inputs import counts, make_plan, positive, seconds_from_now, wishes_from
from cloudtrain.plan.record import read_plan, write_plan
from cloudtrain.platforms import JobDescription
from cloudtrain.spec import TrainingJob

A100 = hardware("ml.p4d.24xlarge")
assert A100
TRAINING = Training(100_000, 0.42, 8, A100, Range.exactly(1.4e9))


def offer(gpus: int, price: float | None = 30.0, **fields: object) -> Offer:
    range_ = None if price is None else Range.exactly(price)
    return replace(Offer(gpus // 8, gpus, A100, "ml.p4d.24xlarge", price=range_), **fields)  # type: ignore[arg-type]


def plan(*offers: Offer, **fields: object) -> Plan:
    return replace(Plan([estimate(TRAINING, each) for each in offers]), **fields)  # type: ignore[arg-type]


def test_the_measured_number_of_gpus_takes_as_long_as_it_was_measured() -> None:
    found = estimate(TRAINING, offer(8))
    assert [*found.step] == pytest.approx([0.42] * 3)
    assert found.seconds.expected == pytest.approx(42_000, rel=0.01)
    assert found.seconds.low <= found.seconds.expected < found.seconds.high
    assert found.cost and found.cost.expected == pytest.approx(found.seconds.expected / 3600 * 30, rel=0.01)


def test_more_gpus_are_faster_and_cost_more() -> None:
    few, many = estimate(TRAINING, offer(8)), estimate(TRAINING, offer(512))
    assert many.steps == 1563  # of 1562.5
    assert many.seconds.expected < few.seconds.expected / 40
    assert few.cost and many.cost and many.cost.expected > few.cost.expected
    found = plan(offer(8), offer(64), offer(512))
    assert (found.cheapest, found.fastest) == (found.estimates[0], found.estimates[2])


def test_a_batch_of_the_same_size_makes_steps_shorter_instead_of_fewer() -> None:
    strong = estimate(replace(TRAINING, strong=True), offer(64))
    assert strong.steps == 100_000
    assert 0.42 / 8 < strong.step.expected < 0.42 / 4


def test_the_deadline_must_hold_even_if_all_goes_badly() -> None:
    found = plan(offer(8), offer(64), deadline=43_000.0)
    assert found.estimates[0].seconds.expected < 43_000 < found.estimates[0].seconds.high
    assert found.cheapest_by_deadline == found.estimates[1]
    assert plan(offer(8), deadline=60.0).cheapest_by_deadline is None
    assert [line[:2] for line in rows(plan(offer(8), deadline=60.0))][-1] == (
        "cheapest by the deadline", "none of the options",
    )  # fmt: skip


def test_an_unknown_price_stays_unknown_and_is_never_the_cheapest() -> None:
    found = plan(offer(8, None), offer(16))
    assert found.estimates[0].cost is None
    assert found.cheapest == found.estimates[1]
    assert plan(offer(64, None), offer(8, None)).cheapest == estimate(TRAINING, offer(8, None))
    assert found.to_dict()["options"][0]["cost"] is None


def test_amounts_in_different_currencies_are_not_compared() -> None:
    found = plan(offer(8, 20.0, currency="USD"), offer(16, 30.0, currency="EUR"), offer(64, None))
    assert found.cheapest == found.estimates[1]
    assert [each.to_dict()["currency"] for each in found.estimates] == ["USD", "EUR", None]


def test_a_plan_needs_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a plan has opened a connection")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    found = make_plan(
        job(instance_type="ml.p4d.24xlarge"), "sagemaker", wishes_from({"steps": 1000, "step_seconds": 0.4})
    )
    assert found.cheapest and found.cheapest.offer.spot and found.cheapest.offer.source


def test_the_budget_leaves_out_what_costs_more_or_has_no_price() -> None:
    cheap = estimate(TRAINING, offer(8))
    assert cheap.cost
    found = plan(offer(8), offer(512), offer(64, None), budget=cheap.cost.expected + 1)
    assert found.affordable == [cheap]
    found.check_budget()


@pytest.mark.parametrize(
    ("offers", "message"),
    [([offer(8)], "does not pay for the first step"), ([offer(8, None)], "no price is known")],
)
def test_a_budget_that_cannot_be_planned_with_is_refused(offers: list[Offer], message: str) -> None:
    with pytest.raises(InvalidJob, match=message):
        plan(*offers, budget=0.0001).check_budget()


def test_another_gpu_is_between_the_ratios_of_arithmetic_and_bandwidth() -> None:
    h100 = hardware("ml.p5.48xlarge")
    assert h100
    found = estimate(replace(TRAINING, gradients=Range.exactly(0)), Offer(1, 8, h100))
    assert 0.42 * 312 / 989 * 0.99 <= found.step.low < found.step.high <= 0.42 * 1555 / 3350 * 1.01


def test_preemptions_make_spot_longer() -> None:
    spot = estimate(TRAINING, offer(512, spot=True))
    assert spot.seconds.expected > estimate(TRAINING, offer(512)).seconds.expected
    assert "preemptions" in spot.limit


NOW = datetime(2026, 11, 28, 12, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90m", 5400), ("24h", 86400), ("1.5d", 129600), ("10 s", 10), ("2026-11-28T13:00:00+00:00", 3600)],
)
def test_deadlines(text: str, seconds: float) -> None:
    assert seconds_from_now(text, NOW) == seconds


@pytest.mark.parametrize("text", ["-3h", "0h", "2026-11-28T11:59:00+00:00", "tomorrow", "", "24", "nan h"])
def test_a_deadline_in_the_past_or_without_meaning_is_refused(text: str) -> None:
    with pytest.raises(InvalidJob, match="--deadline"):
        seconds_from_now(text, NOW)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 0.0, -1.0])
def test_numbers_that_make_no_sense_are_refused(value: float) -> None:
    with pytest.raises(InvalidJob, match="finite number above 0"):
        wishes_from({"step_seconds": value})
    with pytest.raises(InvalidJob):
        positive("--budget", value)


@pytest.mark.parametrize("text", ["0", "8,", "8,x", "-8", "1e3", "99999999"])
def test_counts_of_gpus_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(InvalidJob, match="--gpus"):
        counts("--gpus", text)
    assert counts("--gpus", "64, 8,8") == (8, 64)


def job(**fields: object) -> TrainingJob:
    return TrainingJob.from_dict({"entry_point": "train.py", **fields})


@pytest.mark.parametrize(
    ("options", "fields", "message"),
    [
        ({"step_seconds": 1.0}, {}, "how many steps"),
        ({"steps": 10}, {}, "the time of a step"),
        ({"steps": 10, "step_seconds": 1.0}, {"instance_type": "ml.nosuch.large"}, "ml.nosuch.large"),
        (
            {"steps": 10, "step_seconds": 1.0, "gpus": "12"},
            {"instance_type": "ml.p4d.24xlarge"},
            "multiple of 8",
        ),
        (
            {"steps": 10, "step_seconds": 1.0, "instance_types": ["ml.p5.48xlarge"]},
            {"instance_type": "a100-node"},
            "how much faster",
        ),
    ],
)
def test_what_is_missing_is_named(
    options: dict[str, object], fields: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidJob) as raised:
        make_plan(job(**fields), "local", wishes_from(options))
    assert message in str(raised.value)


@pytest.mark.parametrize(
    "options",
    [{"steps": int("9" * 400)}, {"gpus": "9" * 5000}, {"parameters": 1e308}, {"step_seconds": 1e-300}],
)
def test_impossible_numbers_of_wishes_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(InvalidJob, match="expected") as raised:
        wishes_from(options)
    assert len(str(raised.value)) < 500


def test_a_gpu_hour_is_paid_for_the_gpus_that_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("prices: {rows: [{platform: slurm, gpu_hour: 2.0}]}")
    monkeypatch.setenv("CLOUDTRAIN_CONFIG", str(config))
    wishes = wishes_from({"steps": 3600, "step_seconds": 1.0, "measured_on": 2, "gpus": "2"})
    found = make_plan(job(instance_type="ml.p4d.24xlarge"), "slurm", wishes).estimates[0]
    assert found.cost and found.offer.gpus == 2
    assert found.cost.expected == pytest.approx(found.seconds.expected / 3600 * 2 * 2.0, rel=0.01)


def test_what_is_given_is_not_assumed() -> None:
    given = {"steps": 100, "step_seconds": 0.5, "parameters": 1e6, "network": 100.0, "restart_seconds": 5.0}
    bare = make_plan(job(hyperparameters={"max_steps": 50}), "local", wishes_from({"step_seconds": 0.5}))
    full = make_plan(job(), "local", wishes_from(given))
    assert bare.estimates[0].steps == 50
    assert [each.offer.hosts for each in bare.estimates] == [1, 2, 4, 8]
    for word in ("--network", "--parameters", "a restart takes"):
        assert any(word in text for text in bare.assumed) and not any(word in text for text in full.assumed)
    assert any("no price is known for local" in text for text in full.assumed)
    assert next(iter(notes(full))).startswith("measured  0.5 s a step on 1 GPU (given)")


def test_gpus_by_their_names_in_any_case() -> None:
    assert gpu_name("h100") == "H100"
    assert "ml.p5.48xlarge" in instance_types("H100")
    with pytest.raises(InvalidJob, match="unknown GPU 'H10'") as raised:
        gpu_name("H10")
    assert "H100" in raised.value.hint


def test_a_saved_plan_has_one_option_for_the_hosts_of_a_job(tmp_path: Path) -> None:
    write_plan(str(tmp_path / "plan.json"), plan(offer(8), offer(64)))
    found = read_plan(str(tmp_path / "plan.json"))
    assert option_for(found, "ml.p4d.24xlarge", 8, False)["gpus"] == 64
    for kind, hosts, spot in (("ml.p4d.24xlarge", 2, False), (None, 1, False), ("ml.p4d.24xlarge", 1, True)):
        with pytest.raises(InvalidJob, match="the plan has no option for"):
            option_for(found, kind, hosts, spot)


@pytest.mark.parametrize("text", ["", "[]", '{"options": 1}', '{"cloudtrain_plan": 1, "options": [1]}'])
def test_a_file_that_is_not_a_plan_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(InvalidJob, match="not a plan"):
        option_for(read_plan(str(tmp_path / "plan.json")), None, 1, False)


def ended(status: JobStatus = JobStatus.COMPLETED, seconds: float = 40_000) -> JobDescription:
    return JobDescription("train-1", "local", status, 0.0, started_at=10.0, ended_at=10.0 + seconds)


def test_the_error_of_a_plan_is_kept_with_the_job() -> None:
    assert prediction(ended(), None) is None
    option = plan(offer(8)).to_dict()["options"][0]
    keep("train-1", "local", option)
    found = prediction(ended(), 400.0, "USD")
    assert found and found.error == pytest.approx(option["seconds"]["expected"] / 40_000 - 1)
    assert "% longer than it took; " in prediction_text(found)
    assert "% less than it cost" in prediction_text(found)
    failed = prediction(ended(JobStatus.FAILED), 400.0, "USD")
    assert failed and failed.error is None and "than" not in prediction_text(failed)
    euros = prediction(ended(), 400.0, "EUR")
    assert euros and euros.cost_error is None
    assert prediction(replace(ended(), platform="slurm"), None) is None


DAMAGED = '{"seconds": {"low": 1, "expected": %s, "high": 2}, "cost": null, "currency": null}'


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        '{"seconds": {}, "cost": null, "currency": null}',
        DAMAGED % "Infinity",
        DAMAGED % ("9" * 400),
    ],
)
def test_a_damaged_plan_is_as_none(text: str) -> None:
    keep("train-1", "local", json.loads(text or "1"))
    assert prediction(ended(), None) is None


def test_a_small_cost_is_not_shown_as_nothing() -> None:
    assert money(Range(0.00139, 0.00144, 0.00171), "EUR") == "0.0014 (0.0014 to 0.0017) EUR"
    assert money(Range(29.51, 163.89, 1312.88), "USD") == "$163.89 (29.51 to 1,312.88)"
