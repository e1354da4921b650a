"""The price of a job, frozen when it is submitted, and the caps that are kept by its time."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from cloudtrain.contract import Settings
from cloudtrain.contract.request_body import read_terms
from cloudtrain.cost import Cost, Price, PriceRow, Where
from cloudtrain.cost.so_far import cost_of
from cloudtrain.cost.terms import (
    Nodes,
    check_projection,
    nodes_of,
    projection,
    projection_of_sweep,
    shortest,
    terms_of,
    terms_text,
    with_terms,
)
from cloudtrain.errors import InvalidJob, PlatformError
from cloudtrain.platforms.supervised.main import _terms_now
from cloudtrain.runtime.limits import Limits
from cloudtrain.runtime.supervisor.caps import limit_of, price_of, spent, terms_of_attempt
from cloudtrain.spec import CostTerms, TrainingJob
from cloudtrain.submission import prepare

SLURM = Where("slurm")


def row(amount: float, unit: Any, currency: str = "EUR", **where: str) -> PriceRow:
    return PriceRow(Where("slurm", **where), Price(amount, unit, currency, f"table of {unit}", "2026-10-01"))


@pytest.mark.parametrize(
    ("rows", "groups", "per_hour"),
    [
        ([row(3, "node_hour")], [Nodes(SLURM, 4)], 12.0),
        ([row(2, "gpu_hour")], [Nodes(SLURM, 4, gpus=8)], 64.0),
        ([row(2, "gpu_hour")], [Nodes(SLURM, 4)], None),
        ([row(2, "gpu_hour")], [Nodes(SLURM, 4, gpus=0)], None),
        ([row(0.5, "cpu_hour")], [Nodes(SLURM, 1, cpus=16)], 8.0),
        ([], [Nodes(SLURM, 4)], None),
        ([row(3, "node_hour")], [], None),
        (
            [row(3, "node_hour", node_type="a"), row(5, "node_hour", node_type="b")],
            [Nodes(Where("slurm", node_type="a"), 2), Nodes(Where("slurm", node_type="b"), 1)],
            11.0,
        ),
        (
            [row(3, "node_hour", node_type="a")],
            [Nodes(Where("slurm", node_type="a"), 2), Nodes(Where("slurm", node_type="b"), 1)],
            None,
        ),
        (
            [row(3, "node_hour", node_type="a"), row(5, "node_hour", "USD", node_type="b")],
            [Nodes(Where("slurm", node_type="a"), 2), Nodes(Where("slurm", node_type="b"), 1)],
            None,
        ),
    ],
)
def test_an_hour_costs_what_all_nodes_cost_or_is_unknown(
    rows: list[PriceRow], groups: list[Nodes], per_hour: float | None
) -> None:
    assert terms_of([rows], groups).per_hour == per_hour


@pytest.mark.parametrize(
    ("platform", "fields", "expected"),
    [
        (
            "slurm",
            {"instance_count": 3, "platform_options": {"profile": "alps", "partition": "a100", "gpus": 4}},
            Nodes(Where("slurm", cluster="alps", partition="a100"), 3, 4),
        ),
        ("slurm", {"instance_count": 2, "spare_hosts": 1}, Nodes(SLURM, 3)),
        ("slurm", {"platform_options": {"gres": ["lustre", "gpu:h100:8"]}}, Nodes(SLURM, 1, 8)),
        (
            "kubernetes",
            {"platform_options": {"context": "prod", "namespace": "ml", "gpus": 2}, "instance_type": "h100"},
            Nodes(Where("kubernetes", cluster="prod", partition="ml", node_type="h100"), 1, 2),
        ),
        ("hosts", {"platform_options": {"gpus": "all"}}, Nodes(Where("hosts"), 1)),
    ],
)
def test_the_nodes_of_a_job(platform: str, fields: dict[str, Any], expected: Nodes) -> None:
    assert nodes_of(TrainingJob.from_dict({"entry_point": "a.py", **fields}), platform) == [expected]


def test_all_hosts_on_this_machine_are_this_machine() -> None:
    [nodes] = nodes_of(TrainingJob.from_dict({"entry_point": "a.py", "instance_count": 4}), "local")
    assert nodes.count == 1
    assert nodes.cpus


@pytest.fixture
def prices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "config.yaml"
    monkeypatch.setenv("CLOUDTRAIN_CONFIG", str(path))
    path.write_text("prices: {currency: EUR, rows: [{platform: slurm, gpu_hour: 2}]}")
    return path


def capped(platform: str = "slurm", **fields: Any) -> CostTerms | None:
    job = TrainingJob.from_dict({"entry_point": "a.py", "instance_count": 2, **fields})
    return with_terms(job, SimpleNamespace(name=platform, aws=SimpleNamespace(region="r"))).cost_terms


ALERT = [{"webhook": "$URL", "cost_above": 5}]
GPUS = {"platform_options": {"gpus": 4}}


@pytest.mark.usefixtures("prices")
def test_the_nearest_cap_decides() -> None:
    terms = capped(max_cost=32, **GPUS)
    assert terms is not None
    assert (terms.per_hour, terms.gpus, terms.cap, terms.cap_seconds) == (
        16.0,
        8,
        "max_cost of 32 EUR",
        7200.0,
    )
    terms = capped(max_cost=32, max_gpu_hours=8, **GPUS)
    assert terms is not None
    assert (terms.cap, terms.cap_seconds) == ("max_gpu_hours of 8", 3600.0)
    terms = capped(**GPUS)
    assert terms is not None
    assert (terms.cap, shortest(None, terms), shortest(60, terms)) == ("", None, 60)
    for grace, reserve in ((120.0, 120.0), (0.0, 0.0)):
        terms = capped(max_cost=32, stop_grace=grace, **GPUS)
        assert terms is not None
        assert (terms.reserve, shortest(None, terms)) == (reserve, 7200 - reserve)
    terms = capped(max_cost=0.32, **GPUS)
    assert terms is not None
    assert (terms.cap_seconds, terms.reserve) == (72.0, 7.2)
    assert capped("hosts") is None


@pytest.mark.usefixtures("prices")
def test_a_notice_of_the_cost_needs_a_price_from_a_table_or_its_own() -> None:
    assert capped("slurm", notify=ALERT, **GPUS)
    assert capped("hosts", notify=[{**ALERT[0], "price_per_hour": 2}]) is None


@pytest.mark.usefixtures("prices")
@pytest.mark.parametrize(
    ("platform", "fields", "message", "hint"),
    [
        ("hosts", {"max_cost": 5}, "there is no price for hosts", "platform: hosts, node_hour"),
        ("slurm", {"max_cost": 5}, "there is no price for slurm", "prices"),
        ("hosts", {"notify": ALERT}, r"notify\[0\]\.cost_above: there is no price for hosts", "prices"),
        ("slurm", {"max_gpu_hours": 5}, "number of GPUs .* not known", "platform_options.gpus"),
        ("slurm", {"max_cost": 0.1, **GPUS}, "0.1 EUR pays for 22.5 s", "at least 60 s"),
        ("spool", {"max_cost": 5}, "the platform spool keeps no caps", "max_run"),
        ("spool", {"max_gpu_hours": 5}, "the platform spool keeps no caps", "max_run"),
        ("slurm", {"cost_terms": {"per_hour": 1}}, "cloudtrain sets it", "max_cost"),
    ],
)
def test_a_cap_that_cannot_be_kept_is_refused(
    platform: str, fields: dict[str, Any], message: str, hint: str
) -> None:
    with pytest.raises(InvalidJob, match=message) as raised:
        capped(platform, **fields)
    assert hint in str(raised.value.hint)


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), "much"])
@pytest.mark.parametrize("field", ["max_cost", "max_gpu_hours"])
def test_a_cap_is_a_number_above_0(field: str, value: Any) -> None:
    with pytest.raises(InvalidJob, match=f"^{field}: "):
        TrainingJob.from_dict({"entry_point": "a.py", field: value})


def sagemaker(**fields: Any) -> dict[str, Any]:
    arn = "arn:aws:iam::123456789012:role/Train"
    places = {"output_path": "s3://bucket/out", "code_location": "s3://bucket/code"}
    base = {
        "entry_point": "train.py",
        "image_uri": "python:3.12",
        "role": arn,
        "instance_type": "ml.g5.xlarge",
    }
    body = prepare({"platform": "sagemaker", "job_name": "job", **base, **places, **fields}).request.body
    return dict(body)


def test_on_sagemaker_a_cap_is_the_maximum_runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    (tmp_path / "train.py").write_text("")
    body = sagemaker(max_cost=1.408, instance_count=2)
    assert body["StoppingCondition"]["MaxRuntimeInSeconds"] == 1800 - 120
    terms = json.loads(Settings.from_environ(body["Environment"]).cost_terms)
    assert (terms["per_hour"], terms["date"], terms["cap"]) == (2.816, "2026-09-24", "max_cost of 1.408 USD")
    assert sagemaker(max_cost=9999)["StoppingCondition"]["MaxRuntimeInSeconds"] == 86400, "never longer"
    assert sagemaker(max_cost=9999, max_run=60)["StoppingCondition"]["MaxRuntimeInSeconds"] == 60
    with pytest.raises(
        InvalidJob, match=r"max_cost: there is no price for ml.p5.48xlarge in us-east-1"
    ) as raised:
        sagemaker(max_cost=1, instance_type="ml.p5.48xlarge")
    assert "cloudtrain prices refresh" in str(raised.value.hint)
    two = [{"instance_type": "ml.g5.xlarge"}, {"instance_type": "ml.g5.2xlarge"}]
    with pytest.raises(
        InvalidJob, match=r"max_cost: there is no price for the types of instance_preferences"
    ):
        sagemaker(max_cost=1, instance_type=None, instance_preferences=two)


BODY = {
    "max_run": 100,
    "cost_terms": {
        "per_hour": 36.0,
        "currency": "EUR",
        "gpus": 8,
        "cap": "max_cost of 0.5 EUR",
        "cap_seconds": 50.0,
    },
}


def test_the_limit_that_is_reached_first_gives_the_reason() -> None:
    assert limit_of(BODY) == (50.0, "the max_cost of 0.5 EUR is reached")
    assert limit_of({**BODY, "max_run": 10}) == (10.0, "max_run of 10 s is over")
    assert limit_of({}) == (float("inf"), "")
    reserved = {**BODY["cost_terms"], "reserve": 5.0}  # type: ignore[dict-item]
    assert limit_of({"cost_terms": reserved}) == (45.0, "the max_cost of 0.5 EUR is reached")
    assert spent({"cost_terms": reserved}, 49.0) == ": it cost 0.49 EUR, 0.1089 GPU-hours"
    assert spent(BODY, 52.0) == ": it cost 0.52 EUR, 0.1156 GPU-hours, 2.0 s after the cap"
    assert spent({"max_run": 3}, 52.0) == ""


def test_an_unknown_price_gives_no_cost() -> None:
    assert cost_of(BODY, 50) == Cost(0.5, "EUR", cap="max_cost of 0.5 EUR")
    assert cost_of({"cost_terms": {"gpus": 8}}, 50) is None
    assert cost_of({}, 50) is None
    for damaged in ("3", float("nan"), float("inf"), -1, 0, 1e300, True, [3]):
        assert cost_of({"cost_terms": {"per_hour": damaged}}, 50) is None
        assert price_of({"cost_terms": {"per_hour": damaged}}) == {}
    assert cost_of({"cost_terms": [1]}, 50) is None
    assert price_of({"cost_terms": {"gpus": 8}}) == price_of({}) == {}


def test_in_a_pod_the_leader_keeps_the_cap() -> None:
    settings = Settings(max_run=50.0, cost_terms=json.dumps(BODY["cost_terms"]))
    now = 0.0
    limits = Limits(settings, "", lambda: now)
    limits.begin()
    now = 49.0
    assert limits.report() is None
    now = 50.0
    report = limits.report()
    assert report is not None
    assert report.message == "the max_cost of 0.5 EUR is reached"
    assert report.hint.startswith("Raise the cap")
    shorter = Limits(Settings(max_run=20.0, cost_terms=settings.cost_terms), "", lambda: now)
    shorter.begin()
    now = 70.0
    report = shorter.report()
    assert report is not None
    assert report.message == "max_run of 20 s is over"


TERMS = {**BODY["cost_terms"], "max_cost": 0.5, "later": [{"since": "2027-01-01", "per_hour": 72.0}]}  # type: ignore[dict-item]


def test_an_attempt_takes_the_price_of_its_start() -> None:
    assert terms_of_attempt(TERMS, TERMS, 10.0, "2026-12-31") is TERMS
    second = terms_of_attempt(TERMS, TERMS, 10.0, "2027-01-01")
    assert (second["per_hour"], second["paid"], second["paid_for"]) == (72.0, pytest.approx(0.1), 10.0)
    assert second["cap_seconds"] == 30.0, "0.4 EUR are left, and pay for half the time"
    assert cost_of({"cost_terms": second}, 20.0) == Cost(pytest.approx(0.3), "EUR", cap="max_cost of 0.5 EUR")
    assert limit_of({"cost_terms": second}) == (30.0, "the max_cost of 0.5 EUR is reached")
    reserved = terms_of_attempt({**TERMS, "reserve": 5.0}, TERMS, 10.0, "2027-01-01")
    assert reserved["reserve"] == 2.0, "a tenth of what is left"
    assert terms_of_attempt(second, second, 20.0, "2027-01-01") is second, "its price is that of the day"
    edited = {**second, "per_hour": 36.0, "source": "a new contract", "later": ()}
    third = terms_of_attempt(second, edited, 20.0, "2027-01-02")
    assert (third["per_hour"], third["source"], third["cap_seconds"]) == (36.0, "a new contract", 40.0)
    assert cost_of({"cost_terms": third}, 40.0) == Cost(
        pytest.approx(0.5), "EUR", "a new contract", cap="max_cost of 0.5 EUR"
    )
    dear = terms_of_attempt(TERMS, {**TERMS, "per_hour": 3600.0}, 60.0, "2026-12-01")
    assert dear["cap_seconds"] == 60.0, "it is over the cap: nothing is left"


@pytest.mark.parametrize(
    "table",
    [
        {**TERMS, "per_hour": None},
        {**TERMS, "currency": "USD"},
        {**TERMS, "per_hour": float("nan")},
        {**TERMS, "later": 3},
        {**TERMS, "later": [{"since": "2026-01-01", "per_hour": -1}, {"per_hour": "x"}, 4]},
    ],
)
def test_a_price_that_has_gone_stays_what_it_was(table: dict[str, Any]) -> None:
    assert terms_of_attempt(TERMS, table, 10.0, "2026-12-01") is TERMS
    unknown = {"gpus": 8}
    assert terms_of_attempt(unknown, TERMS, 10.0, "2027-01-01") is unknown, "its first attempts have no price"


def test_without_the_package_that_reads_the_table_a_price_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was removed, or replaced by another version, while the job ran: the supervisor must not end."""
    monkeypatch.setitem(sys.modules, "cloudtrain.cost.terms", None)
    with pytest.raises(PlatformError, match="cloudtrain was removed or changed while the job ran"):
        _terms_now(TERMS, "2026-12-01")
    monkeypatch.undo()
    with pytest.raises(PlatformError, match="changed while the job ran"):
        _terms_now({**TERMS, "nodes": [{"where": {"a field of another version": ""}}]}, "2026-12-01")


def test_a_cap_without_its_time_is_damage() -> None:
    with pytest.raises(ValueError, match=r"cost_terms\.cap_seconds is missing"):
        read_terms({"per_hour": 1.0, "cap": "max_cost of 5 EUR"})


def test_the_hours_of_gpus_that_are_left_do_not_depend_on_the_price() -> None:
    terms = {**TERMS, "max_gpu_hours": 8 * 20 / 3600}
    second = terms_of_attempt(terms, terms, 10.0, "2027-01-01")
    assert (second["cap"], second["cap_seconds"]) == ("max_gpu_hours of 0.0444444", 20.0)


def test_a_job_with_one_price_has_that_of_its_start() -> None:
    before, after = 1798761599.0, 1798761600.0  # around 2027-01-01, 0:00 UTC
    found = [cost_of({"cost_terms": TERMS}, 100.0, start) for start in (before, after)]
    assert [cost and cost.amount for cost in found] == [pytest.approx(1.0), pytest.approx(2.0)]


DATED = """
prices:
  currency: EUR
  rows:
    - {platform: PLATFORM, node_hour: 2}
    - {platform: PLATFORM, node_hour: 3, since: 2026-11-01}
    - {platform: PLATFORM, node_hour: 6, since: 2027-01-01}
    - {platform: PLATFORM, node_hour: 4, since: 2028-01-01}
"""


@pytest.mark.parametrize(
    ("platform", "per_hour"), [("slurm", 6.0), ("kubernetes", 12.0), ("sagemaker", 12.0)]
)
def test_the_prices_of_days_to_come_go_with_the_job(
    prices: Path, monkeypatch: pytest.MonkeyPatch, platform: str, per_hour: float
) -> None:
    prices.write_text(DATED.replace("PLATFORM", platform))
    monkeypatch.setattr("cloudtrain.cost.known.today", lambda: "2026-11-29")
    monkeypatch.setattr("cloudtrain.cost.terms.today", lambda: "2026-11-29")
    terms = capped(platform, max_cost=12)
    assert terms is not None
    assert terms.per_hour == 6.0
    assert [(one["since"], one["per_hour"]) for one in terms.later] == [
        ("2027-01-01", 12.0),
        ("2028-01-01", 8.0),
    ]
    assert terms.cap_seconds == 12 / per_hour * 3600, (
        "where no attempt can shorten it, the highest price counts"
    )


@pytest.mark.parametrize(
    ("platform", "fields", "expected"),
    [
        (
            "slurm",
            {"max_cost": 12},
            "the job costs at most 12.00 EUR, in all attempts: 12.00 EUR an hour, max_cost of 12 EUR",
        ),
        (
            "slurm",
            {"max_run": 60},
            "the job costs at most 0.20 EUR, in all attempts: 12.00 EUR an hour, max_run of 60 s",
        ),
        ("slurm", {}, "the job costs 12.00 EUR an hour, and nothing limits that: set max_cost or max_run"),
        (
            "sagemaker",
            {},
            "the job costs at most 288.00 EUR, in all attempts: 12.00 EUR an hour, max_run of 86400 s",
        ),
        (
            "kubernetes",
            {"max_cost": 12},
            "the job costs at most 12.00 EUR, in all attempts: 12.00 EUR an hour, max_cost of 12 EUR",
        ),
    ],
)
def test_the_most_that_a_job_can_cost(
    prices: Path, monkeypatch: pytest.MonkeyPatch, platform: str, fields: dict[str, Any], expected: str
) -> None:
    prices.write_text(DATED.replace("PLATFORM", platform))
    monkeypatch.setattr("cloudtrain.cost.known.today", lambda: "2026-11-29")
    monkeypatch.setattr("cloudtrain.cost.terms.today", lambda: "2026-11-29")
    job = TrainingJob.from_dict({"entry_point": "a.py", "instance_count": 2, **fields})
    given = SimpleNamespace(name=platform, aws=SimpleNamespace(region="r"))
    assert projection(with_terms(job, given), platform) == expected
    assert projection(job, platform) == ""


def fits(max_run: int | None, max_cost: float | None, platform: str = "slurm", **fields: Any) -> bool:
    """Whether two hosts of 6 EUR an hour may run for ``max_run`` s. See that a shorter time, as the hint says, may."""
    limits = {"max_run": max_run, "max_cost": max_cost, **fields}
    job = TrainingJob.from_dict(
        {"entry_point": "a.py", "instance_count": 2, **{k: v for k, v in limits.items() if v}}
    )
    job = with_terms(job, SimpleNamespace(name=platform, aws=SimpleNamespace(region="r")))
    try:
        check_projection(job, max_run, max_cost)
    except InvalidJob as error:
        longest = re.search(r"Set max_run to at most (\d+), or raise max_cost", str(error.hint))
        assert longest
        check_projection(job, int(longest[1]), max_cost)
        return False
    return True


def test_a_max_run_that_may_cost_more_than_max_cost_is_refused(prices: Path) -> None:
    prices.write_text("prices: {currency: EUR, rows: [{platform: slurm, node_hour: 6}]}")
    assert fits(3600, 12.0)
    assert not fits(3601, 12.0)
    assert fits(3600, None)
    assert fits(None, 12.0)
    assert fits(99999, 12.0, max_gpu_hours=8, **GPUS), "max_gpu_hours ends it before"
    assert not fits(99999, 11.0, max_gpu_hours=8, **GPUS)
    first = TrainingJob.from_dict({"entry_point": "a.py", "max_run": 7200})
    first = msgspec.structs.replace(first, cost_terms=CostTerms(12.0, "EUR"))
    with pytest.raises(InvalidJob) as raised:
        check_projection(first, 7200, 12.0, "the sweep's")
    assert raised.value.message == (
        "max_run: 7200 s of this job may cost 24.00 EUR, at 12.00 EUR an hour, which is more than the sweep's max_cost "
        "of 12.00 EUR"
    )
    with pytest.raises(InvalidJob, match=r"cost 12\.00333333 EUR, .* more than its max_cost of 12 EUR\n"):
        check_projection(first, 3601, 12.0)


def test_a_max_run_of_the_config_file_gives_way_to_the_cap_of_a_job(prices: Path) -> None:
    """It is a default for all jobs. Where the cap is one as well, the file contradicts itself."""
    table = "prices: {currency: EUR, rows: [{platform: slurm, node_hour: 6}]}\nmax_run: 7200\n"
    prices.write_text(table)
    assert fits(7200, 12.0)
    assert not fits(7201, 12.0)
    prices.write_text(f"{table}max_cost: 12\n")
    assert not fits(7200, 12.0)
    assert fits(7200, 13.0)


def test_the_time_of_a_job_is_bounded() -> None:
    with pytest.raises(InvalidJob, match="max_run: expected a whole number"):
        TrainingJob.from_dict({"entry_point": "a.py", "max_run": 10**400})


QUEUED = [{"retry_strategy": 3}, {"retry_strategy": {"attempts": 2}, "preemption_configuration": 1}]


@pytest.mark.parametrize("options", QUEUED)
def test_each_attempt_in_a_queue_of_batch_has_its_own_time(prices: Path, options: dict[str, Any]) -> None:
    """It is a training job: together, they must not cost more than the cap."""
    prices.write_text("prices: {currency: EUR, rows: [{platform: sagemaker, node_hour: 6}]}")
    given: dict[str, Any] = {"platform_options": {"job_queue": "gpus", **options}}
    terms = capped("sagemaker", max_cost=12, **given)
    assert terms is not None
    assert terms.cap_seconds == 1200.0, "a third of the hour that 12 EUR pay for"
    assert fits(1200, 12.0, "sagemaker", **given)
    assert not fits(1201, 12.0, "sagemaker", **given)
    job = TrainingJob.from_dict({"entry_point": "a.py", "max_run": 600, **given})
    job = with_terms(job, SimpleNamespace(name="sagemaker", aws=SimpleNamespace(region="r")))
    assert projection(job, "sagemaker") == (
        "the job costs at most 3.00 EUR, in all attempts: 6.00 EUR an hour, 3 attempts with a max_run of 600 s"
    )


@pytest.mark.parametrize(
    ("limits", "max_cost", "expected"),
    [
        ({"max_run": 60}, None, "at most 4.00 EUR: 20 trials of at most 0.20 EUR, at 12.00 EUR an hour for each that "
         "runs"),
        ({"max_run": 60}, 3.0, "at most 3.00 EUR: its max_cost, at 12.00 EUR an hour for each that runs"),
        ({}, 3.0, "at most 3.00 EUR: its max_cost, at 12.00 EUR an hour for each that runs"),
        ({}, None, "each trial costs 12.00 EUR an hour, and nothing limits that: set max_cost or max_run"),
    ],
)  # fmt: skip
def test_the_most_that_a_sweep_can_cost(
    limits: dict[str, Any], max_cost: float | None, expected: str
) -> None:
    first = TrainingJob.from_dict({"entry_point": "a.py", **limits})
    assert projection_of_sweep(first, "slurm", 20, max_cost) == ""
    first = msgspec.structs.replace(first, cost_terms=CostTerms(12.0, "EUR"))
    assert projection_of_sweep(first, "slurm", 20, max_cost).endswith(expected)


def test_the_terms_fit_into_a_variable_of_sagemaker() -> None:
    """The prices of the latest days are left out first."""
    later = tuple({"since": f"2027-01-{day:02}", "per_hour": day + 0.5} for day in range(1, 29))
    text = terms_text(CostTerms(1.5, "EUR", "x" * 600, later=later, cap="max_cost of 5 EUR", cap_seconds=60))
    assert len(text) <= 512
    found = json.loads(text)
    assert found["later"] == list(later[: len(found["later"])]) != []
    assert (found["per_hour"], found["cap_seconds"]) == (1.5, 60)
