"""``cloudtrain sagemaker``."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cloudtrain.cli._options import json_option
from cloudtrain.cli._output import echo_json, print_table

if TYPE_CHECKING:
    from cloudtrain.platforms.sagemaker.offerings import Offering, Segment

HEADINGS = ("OFFERING", "INSTANCES", "ZONE", "START", "END", "HOURS", "PER HOUR", "PER INSTANCE", "UPFRONT")


@click.group("sagemaker")
def command() -> None:
    """Come from the SageMaker SDK, and look at Amazon SageMaker's offers.

    \b
    Examples:
      cloudtrain sagemaker migrate notebook.ipynb
      cloudtrain sagemaker offerings --instance-type ml.p5.48xlarge --instance-count 2 --hours 48
    """


def _moment(text: str) -> datetime:
    """A date or a time in ISO 8601, of this machine's time zone unless it names another. Raises BadParameter."""
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone()
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a time such as 2026-12-01 or 2026-12-01T08:00") from None


@command.command()
@click.option("--instance-type", metavar="TYPE", help="Instances to reserve, for example ml.p5.48xlarge.")
@click.option(
    "--instance-count", type=click.IntRange(1), metavar="N", help="Number of instances.  [default: 1]"
)
@click.option("--ultraserver-type", metavar="TYPE", help="UltraServers to reserve, instead of instances.")
@click.option("--ultraserver-count", type=click.IntRange(1), metavar="N", help="Number of UltraServers.")
@click.option("--hours", type=click.IntRange(1), metavar="N", help="Duration of the plan.")
@click.option(
    "--start-after", type=_moment, metavar="TIME", help="Earliest start: 2026-12-01, 2026-12-01T08:00."
)
@click.option("--end-before", type=_moment, metavar="TIME", help="Latest end.")
@click.option(
    "--target", default="training-job", show_default=True, metavar="NAME", help="What is to use the plan."
)
@click.option("--region", metavar="REGION", help="Region to search.  [default: from your AWS settings]")
@json_option
def offerings(
    instance_type: str | None,
    instance_count: int | None,
    ultraserver_type: str | None,
    ultraserver_count: int | None,
    hours: int | None,
    start_after: datetime | None,
    end_before: datetime | None,
    target: str,
    region: str | None,
    as_json: bool,
) -> None:
    """List the training plans that AWS offers: instances reserved for some days. Reserves nothing.

    The cheapest are first. UPFRONT is the price of the whole plan, PER HOUR that of an hour of all instances, PER
    INSTANCE that of an hour of one.
    """
    from cloudtrain.platforms.sagemaker import SageMakerPlatform
    from cloudtrain.platforms.sagemaker.offerings import TARGETS, search_offerings

    if target not in TARGETS:
        raise click.BadParameter(f"{target!r} is not one of {', '.join(TARGETS)}", param_hint="--target")
    if instance_type and not instance_type.startswith("ml."):
        raise click.BadParameter(
            f"{instance_type!r}: SageMaker's types start with ml.", param_hint="--instance-type"
        )
    if instance_count and not instance_type:
        raise click.UsageError("--instance-count needs --instance-type.")
    if ultraserver_count and not ultraserver_type:
        raise click.UsageError("--ultraserver-count needs --ultraserver-type.")
    if start_after and end_before and start_after >= end_before:
        raise click.UsageError("--end-before is not after --start-after.")
    wanted = {
        "InstanceType": instance_type,
        "InstanceCount": instance_count or (1 if instance_type else None),
        "UltraServerType": ultraserver_type,
        "UltraServerCount": ultraserver_count,
        "DurationHours": hours,
        "StartTimeAfter": start_after,
        "EndTimeBefore": end_before,
        "TargetResources": [target],
    }
    given = {name: value for name, value in wanted.items() if value is not None}
    found = search_offerings(SageMakerPlatform().aws, given, region)
    if as_json:
        echo_json([offering.to_dict() for offering in found])
    elif found:
        _show(found)
    else:
        click.echo(
            "AWS has no such offering now. Search for fewer instances, other times or hours, or another region.",
            err=True,
        )


@command.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Print the changed lines; write nothing.")
def migrate(files: tuple[Path, ...], dry_run: bool) -> None:
    """Change the import lines of the SageMaker SDK in each FILE, a script or notebook, to cloudtrain's.

    Nothing else changes. A second run changes nothing. All files are read before the first is written.
    """
    from cloudtrain._sdk.imports import change_file
    from cloudtrain.storage.atomic import replace_file

    changes = [(path, change_file(path)) for path in files]
    for path, change in changes:
        if dry_run:
            for before, after in change.lines:
                click.echo(f"{path}:\n- {before}\n+ {after}")
        elif change.lines:
            target = path.resolve()  # for a link, its target
            replace_file(target, change.text.encode(), mode=target.stat().st_mode & 0o777)
        count = len(change.lines)
        click.echo(
            f"{path}: {count} import line{'s' * (count != 1)} {'would change' if dry_run else 'changed'}"
        )


def _show(found: list[Offering]) -> None:
    rows = []
    for offering in found:
        prices = [
            _money(price, offering.currency)
            for price in (offering.price_per_hour, offering.price_per_instance_hour, offering.upfront_fee)
        ]
        first = _segment(offering.segments[0]) if offering.segments else ("", "", "", "")
        rows.append((offering.id, *first, f"{offering.hours:g}", *prices))
        for segment in offering.segments[1:]:
            rows.append(("", *_segment(segment), f"{segment.hours:g}", "", "", ""))
    print_table(HEADINGS, rows, right=HEADINGS[5:])


def _segment(segment: Segment) -> tuple[str, str, str, str]:
    """The columns from INSTANCES to END."""
    instances = f"{segment.instance_count} x {segment.instance_type}"
    if segment.ultraserver_type:
        instances += f" in {segment.ultraserver_count or 1} x {segment.ultraserver_type}"
    return instances, segment.availability_zone or "", _time(segment.starts_at), _time(segment.ends_at)


def _time(moment: datetime | None) -> str:
    """The time in the time zone of this machine; empty if there is none."""
    return f"{moment.astimezone():%Y-%m-%d %H:%M}" if moment else ""


def _money(amount: float | None, currency: str) -> str:
    if amount is None:
        return ""
    return f"${amount:,.2f}" if currency == "USD" else f"{amount:,.2f} {currency}"
