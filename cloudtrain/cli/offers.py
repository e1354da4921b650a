"""``cloudtrain offers``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cloudtrain.cli._options import complete_platform, json_option
from cloudtrain.cli._output import echo_json, notify

if TYPE_CHECKING:
    from cloudtrain.plan.offers import HostsOffered

FIRST = 3
HEADINGS = ("PLATFORM", "PLACE", "HOSTS", "GPU", "GPUS", "PRICE AN HOUR", "AVAILABLE", "FREE GPUS")
UNKNOWN = "not known"


@click.command("offers")
@click.option("--gpu", metavar="NAME", help="Kind of GPU, for example H100.  [default: any]")
@click.option(
    "--count", type=int, default=1, show_default=True, metavar="N", help="Number of GPUs, of all hosts."
)
@click.option(
    "--platform",
    "platforms",
    multiple=True,
    metavar="NAME",
    shell_complete=complete_platform,
    help="Only this platform. Repeatable.",
)
@click.option(
    "--region", default="", metavar="NAME", help="Region of SageMaker.  [default: that of your AWS profile]"
)
@click.option("--all", "shows_all", is_flag=True, help="Print all offers, not only the first three.")
@json_option
def command(
    gpu: str | None, count: int, platforms: tuple[str, ...], region: str, shows_all: bool, as_json: bool
) -> None:
    """Show on which hosts a job with COUNT GPUs could run, with prices, quotas and free GPUs.

    First come hosts that the job fits on and that are free, and of those the cheapest. Submits nothing.

    \b
    Examples:
      cloudtrain offers --gpu H100 --count 8
      cloudtrain offers --count 16 --platform slurm --all
    """
    from cloudtrain.errors import InvalidJob, PlatformError
    from cloudtrain.plan.hardware import gpu_name
    from cloudtrain.plan.offers import find_offers, reachable_platforms
    from cloudtrain.platforms import get_platform

    if not 1 <= count <= 1_000_000:
        raise InvalidJob(f"--count {count}: expected a number from 1 on, up to 1,000,000")
    for platform in platforms:
        get_platform(platform)
    name = gpu_name(gpu) if gpu else ""
    problems: list[str] = []
    found = find_offers(name, count, [*dict.fromkeys(platforms or reachable_platforms())], problems, region)
    if as_json:
        echo_json({"offers": [offer.to_dict() for offer in found], "problems": problems})
        return
    for problem in problems:
        notify("Note", problem)
    if not found and problems:
        raise PlatformError(
            "found no hosts to offer", hint="The notes above say why. Or choose another --platform."
        )
    if not found:
        click.echo(
            "no host with such GPUs was found: ask for fewer (--count) or any kind (no --gpu)",
            err=True,
        )
        return
    _show(found if shows_all else found[:FIRST])
    if len(found) > FIRST and not shows_all:
        click.echo(f"and {len(found) - FIRST} more: --all", err=True)


def _show(offers: list[HostsOffered]) -> None:
    from cloudtrain.cli._output import print_table

    print_table(HEADINGS, map(_row, offers), ("GPUS", "PRICE AN HOUR", "AVAILABLE", "FREE GPUS"))


def _row(offer: HostsOffered) -> tuple[str, ...]:
    hosts = f"{offer.hosts} x {offer.kind}" if offer.kind else f"{offer.hosts}"
    price = UNKNOWN if offer.price is None else f"{offer.price:,.2f} {offer.currency}"
    available = (
        UNKNOWN
        if offer.available is None
        else f"{offer.available:,} host{'' if offer.available == 1 else 's'}"
    )
    free = "" if offer.free_gpus is None else f"{offer.free_gpus:,}"
    gpus = f"{offer.hosts * offer.gpus:,}"
    return offer.platform, offer.place, hosts, offer.gpu or UNKNOWN, gpus, price, available, free
