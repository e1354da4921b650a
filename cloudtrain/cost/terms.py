"""The cost terms of a job: its price now and on later days, and the time for which its caps pay."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from cloudtrain.config import read_config
from cloudtrain.contract.host import gpu_count
from cloudtrain.cost.known import PLATFORMS, config_prices, config_rows, known_prices, today
from cloudtrain.cost.prices import PriceRow, Where, find_price, in_force
from cloudtrain.errors import InvalidJob, PlatformError
from cloudtrain.runtime.supervisor.caps import HOUR, PRICE, cap_of, money

if TYPE_CHECKING:
    from cloudtrain.spec import CostTerms, TrainingJob

ON_THIS_MACHINE = ("local", "container")
"""Platforms on which all hosts of a job are this machine, whose price counts only once."""
SUPERVISED_HERE = (*ON_THIS_MACHINE, "hosts")
"""Platforms whose supervisors run on this machine, and read its table of prices at the start of each attempt."""
ON_ONE_PRICE = ("kubernetes", "sagemaker")
"""Platforms that restart a job themselves. All of its attempts have the price of its start."""
LEAST_SECONDS = 60.0
"""The least time for which a cap has to pay, because nothing trains in less. On this machine, it is a second."""

_GIVE = (
    "Add one to the config file: prices: {{rows: [{{platform: {platform}, node_hour: 2.5}}]}}. See what is known: "
    "cloudtrain prices --platform {platform}."
)
_REFRESH = " Or copy AWS's: cloudtrain prices refresh."


@dataclass(frozen=True)
class Nodes:
    """Equal nodes of a job. ``gpus`` and ``cpus`` are the numbers of one node; None if they are not known."""

    where: Where
    count: int
    gpus: int | None = None
    cpus: int | None = None


_COUNTS = ("count", "gpus", "cpus")


def with_terms(job: TrainingJob, platform: Any) -> TrainingJob:
    """The resolved ``job`` with its `CostTerms`, if it has a price or a cap.

    Raises InvalidJob if a cap cannot be enforced because the price or the number of GPUs is not known, or if it pays
    for too little time.
    """
    if job.cost_terms is not None:
        raise InvalidJob("cost_terms: cloudtrain sets it", hint="Leave it out, and set max_cost.")
    caps = [name for name in ("max_cost", "max_gpu_hours") if getattr(job, name) is not None]
    if caps and platform.name not in PLATFORMS:
        raise InvalidJob(
            f"{caps[0]}: the platform {platform.name} keeps no caps", hint="Leave it out, or set max_run."
        )
    tables = known_prices() if platform.name == "sagemaker" else [config_prices()]
    groups = nodes_of(job, platform.name, _region(platform))
    terms = with_later(terms_of(tables, groups), tables, groups, today())
    if not terms.per_hour:
        for number, rule in enumerate(job.notify):
            if rule.cost_above and not rule.price_per_hour:
                raise _unknown(f"notify[{number}].cost_above", groups)
    if caps:
        terms = capped(terms, job, groups)
    if platform.name in SUPERVISED_HERE:
        terms = msgspec.structs.replace(terms, nodes=tuple(map(_document, groups)))
    return msgspec.structs.replace(job, cost_terms=terms) if terms.per_hour or terms.cap else job


def nodes_of(job: TrainingJob, platform: str, region: str = "") -> list[Nodes]:
    """The nodes of ``job``; none if the platform chooses them after the submission."""
    options = job.platform_options
    cluster = options.get("profile") or options.get("context") or ""
    partition = options.get("partition") or options.get("queue") or options.get("namespace") or ""

    def where(kind: str) -> Where:
        return Where(platform, region, str(cluster), str(partition), kind)

    if platform in ON_THIS_MACHINE:
        return [Nodes(where(job.instance_type or ""), 1, gpu_count(), os.cpu_count())]
    if len({one.instance_type for one in job.instance_preferences}) > 1:
        return []
    gpus = _gpus(options)
    if job.instance_groups:
        return [Nodes(where(one.instance_type), one.instance_count, gpus) for one in job.instance_groups]
    return [Nodes(where((job.instance_types or [""])[0]), max(job.host_counts) + job.spare_hosts, gpus)]


def _gpus(options: Any) -> int | None:
    """The GPUs per node that ``platform_options`` request; None if they do not show it."""
    gres = options.get("gres")
    found = re.search(r"\bgpu(?::[^:,]+)?:(\d+)", gres if isinstance(gres, str) else ",".join(gres or ()))
    gpus = int(found[1]) if found else options.get("gpus")
    return gpus if isinstance(gpus, int) and not isinstance(gpus, bool) else None


def _region(platform: Any) -> str:
    try:
        return str(platform.aws.region) if platform.name == "sagemaker" else ""
    except PlatformError:  # no region is configured, which rendering reports
        return ""


def terms_of(tables: Iterable[Sequence[PriceRow]], groups: Sequence[Nodes]) -> CostTerms:
    """The number of GPUs of all nodes, and the price of an hour if all nodes have prices in the same currency."""
    from cloudtrain.spec import CostTerms

    tables = list(tables)
    known = [(find_price(tables, nodes.where), nodes) for nodes in groups]
    counts = [nodes.gpus for nodes in groups]
    gpus = (
        sum(nodes.count * nodes.gpus for nodes in groups if nodes.gpus is not None)
        if groups and None not in counts
        else 0
    )
    total, prices = 0.0, []
    for price, nodes in known:
        hourly = (
            price.per_hour(nodes.count, _all(nodes, nodes.gpus), _all(nodes, nodes.cpus)) if price else None
        )
        if price is None or hourly is None:
            return CostTerms(gpus=gpus)
        total += hourly
        prices.append(price)
    if len({price.currency for price in prices}) != 1:
        return CostTerms(gpus=gpus)
    sources = dict.fromkeys(price.source for price in prices)
    dates = [price.date for price in prices if price.date]
    return CostTerms(total, prices[0].currency, "; ".join(sources), min(dates, default=""), gpus=gpus)


def with_later(
    terms: CostTerms, tables: Sequence[Sequence[PriceRow]], groups: Sequence[Nodes], day: str
) -> CostTerms:
    """The ``terms`` of ``day`` with the prices in the config file for later days that are in the same currency."""
    rows, later, last = config_rows(), [], terms
    if terms.per_hour:
        for day in sorted({row.since for row in rows if row.since > day}):
            then = terms_of([in_force(rows, day), *tables[1:]], groups)
            if then.per_hour not in (None, last.per_hour) and then.currency == terms.currency:
                found = {name: getattr(then, name) for name in PRICE}
                new = {name: value for name, value in found.items() if value != getattr(terms, name)}
                later.append({"since": day, "per_hour": then.per_hour, **new})
                last = then
    return msgspec.structs.replace(terms, later=tuple(later))


def terms_now(terms: Mapping[str, Any], day: str) -> Mapping[str, Any]:
    """``terms`` with the prices in the config file of this machine for ``day``. Raises InvalidJob, OSError."""
    groups = [
        Nodes(Where(**one["where"]), *(one.get(name) for name in _COUNTS)) for one in terms.get("nodes", ())
    ]
    tables = [config_prices(day)]
    found = with_later(terms_of(tables, groups), tables, groups, day)
    return {**terms, **{name: getattr(found, name) for name in ("currency", "later", *PRICE)}}


def _document(nodes: Nodes) -> dict[str, Any]:
    """The nodes as `terms_now` reads them, without unknown values."""
    where = {name: value for name, value in asdict(nodes.where).items() if value}
    counts = {name: value for name in _COUNTS if (value := getattr(nodes, name)) is not None}
    return {"where": where, **counts}


def _all(nodes: Nodes, count: int | None) -> int | None:
    return None if count is None else nodes.count * count


def _unknown(field: str, groups: Sequence[Nodes]) -> InvalidJob:
    """The error for a field that needs the price of these nodes, which is not known."""
    platform = groups[0].where.platform if groups else "sagemaker"
    names = ", ".join(dict.fromkeys(nodes.where.node_type or platform for nodes in groups))
    places = " in " + groups[0].where.region if groups and groups[0].where.region else ""
    return InvalidJob(
        f"{field}: there is no price for {names or 'the types of instance_preferences'}{places}",
        hint=_GIVE.format(platform=platform) + (_REFRESH if platform == "sagemaker" else ""),
    )


def capped(terms: CostTerms, job: TrainingJob, groups: Sequence[Nodes]) -> CostTerms:
    """``terms`` with the nearest cap of ``job``. Raises InvalidJob."""
    platform = groups[0].where.platform if groups else "sagemaker"
    if job.max_cost is not None and not terms.per_hour:
        raise _unknown("max_cost", groups)
    if job.max_gpu_hours is not None and not terms.gpus:
        raise InvalidJob(
            "max_gpu_hours: the number of GPUs of the job is not known before it runs",
            hint="Set platform_options.gpus, or use max_cost or max_run.",
        )
    terms = msgspec.structs.replace(
        terms, max_cost=job.max_cost or 0.0, max_gpu_hours=job.max_gpu_hours or 0.0
    )
    # where the time limit cannot be shortened at each attempt, the highest price counts
    highest = _highest(terms) if platform in ON_ONE_PRICE else terms.per_hour
    times = _separate_attempts(job)
    hourly = {"per_hour": times * (highest or 0.0), "gpus": times * terms.gpus}
    cap, seconds, reserve = cap_of(
        {**msgspec.structs.asdict(terms), **hourly, "reserve": job.stop_grace}
    ).values()
    least = 1.0 if platform in ON_THIS_MACHINE else LEAST_SECONDS
    if seconds < least:
        raise InvalidJob(
            f"{cap.partition(' ')[0]}: {cap.rpartition(' of ')[2]} pays for {seconds:g} s of this job, in which it "
            "cannot train",
            hint=f"It has to pay for at least {least:g} s.",
        )
    return msgspec.structs.replace(terms, cap=cap, cap_seconds=seconds, reserve=reserve)


def check_projection(
    job: TrainingJob, max_run: int | None, max_cost: float | None, whose: str = "its"
) -> None:
    """Refuse a ``max_run`` with which ``job`` may cost more than ``max_cost``, if the user has set both.

    A ``max_run`` in the config file is for all jobs, so it yields to a ``max_cost`` that is set elsewhere.

    Args:
        job: the job with its `CostTerms`.
        max_run: the value that the user has set. A platform's default yields to the cap.
        max_cost: the cap.
        whose: the owner of the cap, for the message.

    Raises:
        InvalidJob: the job may cost more. The hint gives the largest ``max_run`` that fits.
    """
    terms = job.cost_terms
    if max_run is None or max_cost is None or terms is None or not terms.per_hour:
        return
    times, hourly = _separate_attempts(job), _highest(terms)
    seconds = float(times * max_run)
    if terms.max_gpu_hours:
        seconds = min(seconds, terms.max_gpu_hours / terms.gpus * HOUR)
    most = hourly * seconds / HOUR
    if most <= max_cost * (1 + 1e-9):
        return
    config = read_config()
    if max_run == config.get("max_run") and max_cost != config.get("max_cost"):
        return
    longest = max(1, math.floor(max_cost / hourly / times * HOUR - terms.reserve))
    cost, cap = money(most, terms.currency), money(max_cost, terms.currency)
    if cost == cap:
        cost, cap = (f"{amount:.10g} {terms.currency}" for amount in (most, max_cost))
    runs = f"{times} attempts of {max_run} s each" if times > 1 else f"{max_run} s of this job"
    raise InvalidJob(
        f"max_run: {runs} may cost {cost}, at {_rate(terms)}, which is more than {whose} max_cost of {cap}",
        hint=f"Set max_run to at most {longest}, or raise max_cost. Without max_run, max_cost alone stops the job, "
        "early enough to save a checkpoint.",
    )


def _separate_attempts(job: TrainingJob) -> int:
    """The number of times that the time limit of a job applies: once, for all attempts, except on AWS Batch queues.

    On these, each attempt is a separate training job.
    """
    count = 0
    for name, key, default in (
        ("retry_strategy", "attempts", 1),
        ("preemption_configuration", "preemptionRetriesBeforeTermination", 0),
    ):
        given = job.platform_options.get(name, default)
        number = given.get(key) if isinstance(given, Mapping) else given
        count += number if isinstance(number, int) else default
    return max(1, count)


def _runs(job: TrainingJob, max_run: int) -> str:
    times = _separate_attempts(job)
    return f"{times} attempts with a max_run of {max_run} s" if times > 1 else f"max_run of {max_run} s"


LONGEST_TEXT = 512
"""The most characters of a variable of a training job: ``Environment`` in the reference of SageMaker's
CreateTrainingJob."""
LONGEST_SOURCE = 100


def terms_text(terms: CostTerms | None) -> str:
    """The value of `contract.Settings.cost_terms`. If it is too long, the prices of the latest days are left out."""
    if terms is None:
        return ""
    terms = msgspec.structs.replace(terms, source=terms.source[:LONGEST_SOURCE])
    while len(text := msgspec.json.encode(terms).decode()) > LONGEST_TEXT and terms.later:
        terms = msgspec.structs.replace(terms, later=terms.later[:-1])
    return text


def projection(job: TrainingJob, platform: str) -> str:
    """The most that a resolved job can cost before it is stopped, as a sentence; empty if its price is not known."""
    terms = job.cost_terms
    if terms is None or not terms.per_hour:
        return ""
    rate, limit = _rate(terms), _limit(job, terms, platform)
    if limit is None:
        return f"the job costs {rate}, and nothing limits that: set max_cost or max_run"
    most, why = limit
    return f"the job costs at most {money(most, terms.currency)}, in all attempts: {rate}, {why}"


def projection_of_sweep(first: TrainingJob, platform: str, trials: int, max_cost: float | None) -> str:
    """Like `projection`, for ``trials`` jobs like ``first``, which may cost ``max_cost`` in total."""
    terms = first.cost_terms
    if terms is None or not terms.per_hour:
        return ""
    rate, limit = _rate(terms), _limit(first, terms, platform)
    limits = [(max_cost, "its max_cost")] if max_cost else []
    if limit:
        limits.append((limit[0] * trials, f"{trials} trials of at most {money(limit[0], terms.currency)}"))
    if not limits:
        return f"each trial costs {rate}, and nothing limits that: set max_cost or max_run"
    most, why = min(limits)
    return f"the sweep costs at most {money(most, terms.currency)}: {why}, at {rate} for each that runs"


def _rate(terms: CostTerms) -> str:
    return f"{money(_highest(terms), terms.currency)} an hour"


def _highest(terms: CostTerms) -> float:
    """The highest price of an hour, now or on a later day."""
    later: list[float] = [one["per_hour"] for one in terms.later]
    return max([terms.per_hour or 0.0, *later])


def _limit(job: TrainingJob, terms: CostTerms, platform: str) -> tuple[float, str] | None:
    """The most that a job can cost, and the limit behind it; None if nothing limits the cost."""
    from cloudtrain.spec import DEFAULT_MAX_RUN

    highest = _highest(terms)
    run = job.max_run or (DEFAULT_MAX_RUN if platform == "sagemaker" else None)
    limits = [(_separate_attempts(job) * highest * run / HOUR, _runs(job, run))] if run else []
    if terms.max_cost:
        limits.append((terms.max_cost, f"max_cost of {terms.max_cost:g} {terms.currency}"))
    if terms.max_gpu_hours:
        hours = terms.max_gpu_hours
        limits.append((highest * hours / terms.gpus, f"max_gpu_hours of {hours:g}"))
    return min(limits, default=None)


def shortest(max_run: int | None, terms: CostTerms | None) -> int | None:
    """The seconds for which the job may run: ``max_run``, or less if a cap is reached earlier. None for no limit."""
    if terms is None or not terms.cap:
        return max_run
    cap = max(1, math.floor(terms.cap_seconds - terms.reserve))
    return cap if max_run is None else min(max_run, cap)
