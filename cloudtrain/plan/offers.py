"""The hosts on all platforms on which a job with N GPUs could run, with prices, quotas and free GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from cloudtrain.errors import CloudtrainError, InvalidJob
from cloudtrain.plan.hardware import hardware, instance_types

if TYPE_CHECKING:
    from cloudtrain.cost import PriceRow

Tables = Sequence["Sequence[PriceRow]"]


@dataclass(frozen=True)
class HostsOffered:
    """A number of equal hosts. None means that a value is not known."""

    platform: str
    place: str
    """A region, a cluster or a partition."""
    hosts: int
    """The number of hosts that the job needs."""
    kind: str
    gpu: str
    gpus: int
    """The number of GPUs of one host."""
    price: float | None = None
    """The price of an hour of all hosts, in ``currency``."""
    currency: str = ""
    source: str = ""
    """The source of the price, with its date."""
    available: int | None = None
    """The number of hosts that exist, or that the account may use at the same time."""
    free_gpus: int | None = None

    @property
    def fits(self) -> bool | None:
        """Whether there are enough hosts for the job, free or not; None if that is not known."""
        return None if self.available is None else self.available >= self.hosts

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "fits": self.fits}


def find_offers(
    gpu: str, count: int, platforms: Sequence[str], problems: list[str], region: str = ""
) -> list[HostsOffered]:
    """Hosts with ``count`` GPUs in total, sorted: those that fit are first, and of those the cheapest.

    Args:
        gpu: the name of a GPU in the table of hardware; empty for any GPU.
        count: the number of GPUs.
        platforms: the names of the platforms to query.
        problems: a list to which a sentence is added for each platform that does not answer.
        region: the AWS region of SageMaker; empty for the default region.
    """
    from concurrent.futures import ThreadPoolExecutor

    from cloudtrain.cost import known_prices

    tables = known_prices()
    found: list[HostsOffered] = []
    with ThreadPoolExecutor(max(len(platforms), 1)) as pool:
        futures = {name: pool.submit(_of_platform, tables, name, region, gpu, count) for name in platforms}
        for name, future in futures.items():
            try:
                offers, problem = future.result()
            except CloudtrainError as error:
                offers, problem = [], error.message
            found += offers
            problems += [f"{name}: {problem}"] if problem else []
    return sorted(found, key=_order)


def _order(offer: HostsOffered) -> tuple[Any, ...]:
    """The sort key of an offer. Prices in different currencies are not compared, but grouped by currency."""
    fits = {True: 0, None: 1, False: 2}[offer.fits]
    is_busy = offer.free_gpus is not None and offer.free_gpus < offer.hosts * offer.gpus
    price = float("inf") if offer.price is None else offer.price
    return (
        fits,
        is_busy,
        offer.price is None,
        offer.currency,
        price,
        offer.hosts,
        offer.platform,
        offer.place,
        offer.kind,
    )


def _of_platform(
    tables: Tables, name: str, region: str, gpu: str, count: int
) -> tuple[list[HostsOffered], str]:
    """The offers of one platform, and a sentence about what is missing; empty if nothing is."""
    if name == "sagemaker":
        return _of_sagemaker(tables, region, gpu, count)
    if name == "local":
        return [*_of_this_machine(tables, count)], ""
    from cloudtrain.platforms import Offers, get_platform

    platform = get_platform(name)
    if not isinstance(platform, Offers):
        raise InvalidJob(f"the platform {name} does not list its hosts", hint="See: cloudtrain platforms")
    offers = []
    for one in platform.offers():
        if not one.gpus or (gpu and one.gpu and not is_named(gpu, one.gpu)):
            continue
        hosts = -(-count // one.gpus)
        place = " ".join(filter(None, [one.cluster, one.place]))
        price = _price(
            tables, name, hosts, one.gpus, cluster=one.cluster, partition=one.place, node_type=one.kind
        )
        offers.append(
            HostsOffered(name, place, hosts, one.kind, one.gpu, one.gpus, *price, one.hosts, one.free_gpus)
        )
    return offers, ""


def _of_sagemaker(tables: Tables, region: str, gpu: str, count: int) -> tuple[list[HostsOffered], str]:
    """The instance types in the table, with the account's quotas if its credentials permit reading them."""
    from cloudtrain.plan.inputs import region_of

    region, problem = region or region_of("sagemaker"), ""
    quotas: dict[str, int] | None = None
    if not region:
        return [], "no region is set: AWS_DEFAULT_REGION, or --region"
    try:
        quotas = _quotas(region)
    except CloudtrainError as error:
        problem = f"quotas are not known: {error.message}"
    offers = []
    for kind in instance_types(gpu):
        found = hardware(kind)
        assert found
        hosts = -(-count // found.gpus)
        available = None if quotas is None else quotas.get(kind, 0)
        price = _price(tables, "sagemaker", hosts, found.gpus, region=region, node_type=kind)
        offers.append(
            HostsOffered("sagemaker", region, hosts, kind, found.gpu, found.gpus, *price, available)
        )
    return offers, problem


def _quotas(region: str) -> dict[str, int]:
    """The quota of each instance type. Raises PlatformError if credentials are missing, or do not permit this."""
    import boto3

    from cloudtrain.platforms.sagemaker import SageMakerPlatform

    offers = SageMakerPlatform(boto3.Session(region_name=region)).offers()
    return {offer.kind: offer.hosts or 0 for offer in offers}


def _of_this_machine(tables: Tables, count: int) -> Iterator[HostsOffered]:
    from cloudtrain.contract.host import gpu_count

    gpus = gpu_count()
    if gpus >= count:  # their kind is not known without the driver
        price = _price(tables, "local", 1, gpus)
        yield HostsOffered("local", "this machine", 1, "", "", gpus, *price, 1)


def _price(
    tables: Tables, platform: str, hosts: int, gpus: int, **place: str
) -> tuple[float | None, str, str]:
    """The price of an hour of all hosts, its currency, and its source."""
    from cloudtrain.cost import Where, find_price

    price = find_price(tables, Where(platform, **place))
    amount = price.per_hour(hosts, hosts * gpus) if price else None
    if price is None or amount is None:
        return None, "", ""
    return amount, price.currency, ", ".join(filter(None, [price.source, price.date]))


def is_named(gpu: str, name: str) -> bool:
    """Whether ``name``, a platform's name of a GPU, means ``gpu``.

    >>> is_named("A10", "NVIDIA-A100-SXM4-80GB"), is_named("A100", "NVIDIA-A100-SXM4-80GB"), is_named("H100", "h100nvl")
    (False, True, True)
    """
    return bool(re.search(rf"(?<![a-z0-9]){re.escape(gpu.lower())}(?![0-9])", name.lower()))


def reachable_platforms() -> list[str]:
    """The platforms that can be queried and seem to be available to this user. SageMaker always is, because its prices
    are in a table."""
    from cloudtrain.platforms.reach import found_here

    found = {*found_here(), "sagemaker"}
    return [name for name in ("local", "sagemaker", "hosts", "slurm", "kubernetes") if name in found]
