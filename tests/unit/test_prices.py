"""Prices: the tables, their order, and the one that applies to a job."""

from __future__ import annotations

import json
import math
import re
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from click.testing import CliRunner

from cloudtrain.cli import cli
from cloudtrain.cost import Price, PriceRow, Where, find_price, known, known_prices
from cloudtrain.cost.known import config_prices, sagemaker_prices
from cloudtrain.errors import InvalidJob
from cloudtrain.platforms.registry import BUILT_IN, GROUP

TABLE = """
prices:
  currency: EUR
  date: 2026-10-01
  source: the contract
  rows:
    - {platform: slurm, gpu_hour: 2.0}
    - {platform: slurm, cluster: alps, gpu_hour: 1.5}
    - {platform: slurm, partition: a100, gpu_hour: 2.5}
    - {platform: slurm, partition: a100, node_type: h100, node_hour: 30}
    - {platform: local, cpu_hour: 0.05}
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "config.yaml"
    monkeypatch.setenv("CLOUDTRAIN_CONFIG", str(path))
    path.write_text(TABLE)
    return path


@pytest.mark.usefixtures("config")
@pytest.mark.parametrize(
    ("place", "amount"),
    [
        (Where("slurm"), 2.0),
        (Where("slurm", cluster="alps"), 1.5),
        (Where("slurm", cluster="alps", partition="a100"), 2.5),
        (Where("slurm", partition="a100", node_type="h100"), 30.0),
        (Where("slurm", partition="other", node_type="h100"), 2.0),
        (Where("hosts"), None),
    ],
)
def test_a_row_with_the_node_type_goes_before_the_partition_and_that_before_the_cluster(
    place: Where, amount: float | None
) -> None:
    price = find_price(known_prices(), place)
    assert (price and price.amount) == amount
    assert price is None or (price.currency, price.date, price.source) == (
        "EUR",
        "2026-10-01",
        "the contract",
    )


def test_the_first_table_with_a_price_decides() -> None:
    place = Where("sagemaker", region="us-east-1", node_type="ml.g5.xlarge")
    ours = [PriceRow(Where("sagemaker"), Price(0.7, "node_hour"))]
    assert find_price([ours, sagemaker_prices()], place) == Price(0.7, "node_hour")
    found = find_price([[], sagemaker_prices()], place)
    assert found is not None
    assert (found.amount, found.unit, found.currency, found.date) == (1.408, "node_hour", "USD", "2026-09-24")
    assert found.spot == (pytest.approx(0.1408), 1.408)


@pytest.mark.parametrize(
    "place",
    [
        Where("sagemaker", node_type="ml.g5.xlarge"),
        Where("sagemaker", region="eu-north-1", node_type="ml.g5.xlarge"),
        Where("sagemaker", region="us-east-1", node_type="g5.xlarge"),
        Where("sagemaker", region="us-east-1", node_type="ml.unheard.xlarge"),
    ],
)
def test_no_price_is_guessed_from_another_region_or_type(place: Where) -> None:
    assert find_price([sagemaker_prices()], place) is None


def test_every_price_of_the_package_has_a_source_and_a_date() -> None:
    rows = sagemaker_prices()
    assert len({row.where for row in rows}) == len(rows) > 20
    for row in rows:
        assert re.fullmatch(r"20\d\d-\d\d(-\d\d)?", row.price.date)
        assert row.price.source
        assert 0 < row.price.amount < 200
        assert math.isfinite(row.price.amount)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rows: [{platform: slurm, gpu_hour: .nan}]", r"prices\.rows\[0\]\.gpu_hour: .*nan"),
        ("rows: [{platform: slurm, gpu_hour: .inf}]", r"prices\.rows\[0\]\.gpu_hour: .*inf"),
        (
            "rows: [{platform: pbs, gpu_hour: 1}, {platform: lsf, node_hour: 0}]",
            r"rows\[1\]\.node_hour: .*got 0",
        ),
        ("rows: [{platform: slurm, cpu_hour: -1}]", r"rows\[0\]\.cpu_hour: .*got -1"),
        ("rows: [{platform: slurm, cpu_hour: cheap}]", r"rows\[0\]\.cpu_hour"),
        ("rows: [{platform: slurm, cpu_hour: 1.0e+300}]", r"rows\[0\]\.cpu_hour: .*to 1e\+09, got 1e\+300"),
        ("rows: [{platform: slurm, cpu_hour: 1.0e-300}]", r"rows\[0\]\.cpu_hour: .*got 1e-300"),
        ("rows: [{platform: slurm, cpu_hour: true}]", r"rows\[0\]\.cpu_hour: .*got true"),
        ("rows: {slurm: 2}", r"prices\.rows: expected a list"),
        ("date: 2026-13-45\n  rows: []", r"prices\.date: .*'2026-13-45'"),
        ("rows: [{platform: slurm}]", r"rows\[0\]: expected one of .*got none"),
        ("rows: [{platform: slurm, cpu_hour: 1, gpu_hour: 1}]", r"rows\[0\]: .*got gpu_hour and cpu_hour"),
        (
            "rows: [{platform: pbs, gpu_hour: 1}, {platform: pbs, gpu_hour: 2}]",
            r"rows\[1\]: has the same place",
        ),
        (
            "rows: [{platform: slrum, gpu_hour: 1}]",
            r"rows\[0\]\.platform: unknown platform 'slrum'",
        ),
        ("rows: [{platform: pbs, gpu_hour: 1, currency: USD}]", r"rows\[0\].*currency"),
        (
            "rows: [{platform: pbs, gpu_hour: 1, since: 2026-11}]",
            r"rows\[0\]\.since: expected a day, got '2026-11'",
        ),
        (
            "rows: [{platform: pbs, gpu_hour: 1, since: 2026-W40-1}]",
            r"rows\[0\]\.since: expected a day, got '2026-W40-1'",
        ),
        (
            "rows: [{platform: pbs, gpu_hour: 1, since: soon}]",
            r"rows\[0\]\.since: expected a day, got 'soon'",
        ),
        ("currency: euro\n  rows: []", r"prices\.currency: .*'euro'"),
        ("row: []", "prices"),
    ],
)
def test_a_row_that_is_wrong_is_named(config: Path, text: str, message: str) -> None:
    config.write_text(f"prices:\n  {text}\n")
    with pytest.raises(InvalidJob, match=message):
        config_prices()


def test_a_table_that_cannot_be_read_is_one_error(config: Path) -> None:
    config.unlink()
    config.symlink_to(config.parent)
    shown = CliRunner().invoke(cli, ["prices"])
    assert isinstance(shown.exception, InvalidJob)
    assert str(config) in str(shown.exception)


@pytest.mark.parametrize(
    ("unit", "counts", "expected"),
    [
        ("node_hour", (2, 16, 64), 4.0),
        ("gpu_hour", (2, 16, 64), 32.0),
        ("cpu_hour", (2, 16, 64), 128.0),
        ("gpu_hour", (2, None, None), None),
        ("gpu_hour", (2, 0, 4), None),
    ],
)
def test_the_price_of_an_hour_needs_the_number_of_its_unit(
    unit: str, counts: tuple[int, ...], expected: float
) -> None:
    assert Price(2.0, unit).per_hour(*counts) == expected  # type: ignore[arg-type]


@pytest.mark.usefixtures("config")
def test_the_command_lists_each_place_once_with_source_and_date() -> None:
    shown = CliRunner().invoke(cli, ["prices", "--platform", "slurm", "--json"])
    rows = json.loads(shown.stdout)
    assert len(rows) == 4
    assert rows[0] == {
        "platform": "slurm",
        "region": "",
        "cluster": "",
        "partition": "",
        "node_type": "",
        "amount": 2.0,
        "unit": "gpu_hour",
        "currency": "EUR",
        "source": "the contract",
        "date": "2026-10-01",
        "spot": None,
        "since": "",
    }
    text = CliRunner().invoke(cli, ["prices", "--type", "ml.p4d.24xlarge"]).stdout
    assert re.search(r"sagemaker +us-east-1 +ml\.p4d\.24xlarge +25\.2510 USD +node hour .*2026-07-27", text)


def test_rows_are_for_the_platforms_that_there_are(monkeypatch: pytest.MonkeyPatch, config: Path) -> None:
    assert set(known.PLATFORMS) == {*BUILT_IN}
    assert known.GROUP == GROUP
    config.write_text("prices: {rows: [{platform: spool, node_hour: 1}]}")
    with pytest.raises(InvalidJob) as raised:
        config_prices()
    assert str(raised.value.hint).startswith("Known: cobalt, container, hosts")
    point = EntryPoint("spool", "spool:Platform", GROUP)
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [point] if group == GROUP else [])
    [row] = config_prices()
    assert row.where.platform == "spool", "an installed package may add it"
