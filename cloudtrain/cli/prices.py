"""``cloudtrain prices``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cloudtrain.cli._options import complete_platform, json_option
from cloudtrain.cli._output import echo_json, notify, print_table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cloudtrain.cost import PriceRow


@click.group("prices", invoke_without_command=True)
@click.option(
    "--platform", metavar="NAME", shell_complete=complete_platform, help="Only the prices of one platform."
)
@click.option("--type", "node_type", metavar="TYPE", help="Only the prices of one instance or node type.")
@json_option
@click.pass_context
def command(context: click.Context, platform: str | None, node_type: str | None, as_json: bool) -> None:
    """List the prices that are known here.

    They are those below prices in your config file, your copy of AWS's Price List, and cloudtrain's own table. If
    several apply to a job, the first in this order does.

    \b
    Examples:
      cloudtrain prices --type ml.g5.xlarge
      cloudtrain prices refresh --region eu-west-1
    """
    if context.invoked_subcommand:
        return
    from cloudtrain.cost import known_prices
    from cloudtrain.cost.known import config_rows, today

    found: dict[object, PriceRow] = {}
    coming = [row for row in config_rows() if row.since > today()]
    for row in (row for table in (*known_prices(), coming) for row in table):
        if platform in (None, row.where.platform) and node_type in (None, row.where.node_type):
            found.setdefault((row.where, row in coming and row.since), row)
    _show(found.values(), as_json)
    if not found:
        notify("Note", "No price is known. Add a table of your prices: docs/guides/cost.md")


@command.command("refresh")
@click.option("--region", metavar="NAME", help="An AWS region; yours by default.")
@json_option
def refresh(region: str | None, as_json: bool) -> None:
    """Copy the prices of SageMaker training from AWS's Price List to this machine."""
    from cloudtrain.aws.aws import Aws
    from cloudtrain.cost.price_list import refresh as copy_prices
    from cloudtrain.errors import PlatformError

    session = None
    if region:
        import boto3

        session = boto3.Session(region_name=region)
    aws = Aws(session)
    rows = copy_prices(aws)
    if not rows:
        raise PlatformError(
            f"the Price List has no price of SageMaker training in {aws.region}",
            hint="Check the name of the region.",
        )
    _show(rows, as_json)


def _show(rows: Iterable[PriceRow], as_json: bool) -> None:
    rows = sorted(rows, key=lambda row: (str(row.where), row.price.amount))
    if as_json:
        echo_json([row.to_dict() for row in rows])
    elif rows:
        headings = (
            "PLATFORM",
            "REGION/CLUSTER",
            "PARTITION",
            "TYPE",
            "PRICE",
            "PER",
            "SPOT",
            "SINCE",
            "DATE",
            "SOURCE",
        )
        print_table(headings, map(_cells, rows), right=("PRICE",))


def _cells(row: PriceRow) -> tuple[str, ...]:
    where, price = row.where, row.price
    spot = f"{price.spot[0]:.4g} to {price.spot[1]:.4g}" if price.spot else ""
    amount = f"{price.amount:.4f} {price.currency}"
    place = where.platform, where.region or where.cluster, where.partition, where.node_type
    return (*place, amount, price.unit.replace("_", " "), spot, row.since, price.date, price.source)
