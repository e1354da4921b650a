"""Makes a plan from a job description and options: from given and measured values, and assumptions for the others."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from cloudtrain.cost import Where, find_price, known_prices
from cloudtrain.errors import InvalidJob
from cloudtrain.plan.choose import Plan
from cloudtrain.plan.estimate import ASSUMED, Offer, Range, Training, estimate
from cloudtrain.plan.hardware import GB, GBIT, Hardware, hardware
from cloudtrain.spec.conversion import LONGEST_SHOWN

if TYPE_CHECKING:
    from cloudtrain.cost import PriceRow
    from cloudtrain.plan.measured import Measured
    from cloudtrain.spec import TrainingJob

UNITS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "": 1.0}
NETWORK, LINK = 25.0, 16.0
"""The assumed bandwidths of hosts that are not in the table: Gbit/s of the network, and GB/s between GPUs."""
SMALLEST, LARGEST, MOST = 1e-9, 1e18, 10**15
"""The bounds of numbers, and the largest whole number, so that all results are finite."""
TIMES = (1, 2, 4, 8)
"""Without ``--gpus``, plans are for these multiples of the job's hosts."""


@dataclass(frozen=True)
class Wishes:
    """The checked options of ``cloudtrain plan``."""

    gpus: tuple[int, ...] = ()
    instance_types: tuple[str, ...] = ()
    steps: int | None = None
    step_seconds: float | None = None
    measured_on: int | None = None
    parameters: float | None = None
    sharded: bool = False
    accumulation: int = 1
    strong: bool = False
    network: float | None = None
    """The network bandwidth of a host, in Gbit/s."""
    checkpoint_seconds: float | None = None
    restart_seconds: float | None = None
    deadline: float | None = None
    """The deadline in seconds from now."""
    budget: float | None = None


def make_plan(job: TrainingJob, platform: str, wishes: Wishes, record: Measured | None = None) -> Plan:
    """The plan for ``job``. Makes no request.

    Args:
        job: the job to plan.
        platform: the name of its platform.
        wishes: the options of the command.
        record: the measurements of a similar job.

    Raises:
        InvalidJob: a necessary value is not known, or an option is invalid.
    """
    measured, assumed = [*(record.notes if record else ())], list[str]()
    kinds = wishes.instance_types or tuple(filter(None, [job.instance_type]))
    per_host = _gpus_per_host(job)
    own_kind = record.instance_type if record else job.instance_type or next(iter(kinds), "")
    own = _hardware(own_kind, per_host, wishes, assumed)
    training = _training(job, wishes, record, own, measured, assumed)
    tables, offers = known_prices(), []
    for kind in kinds or ("",):
        each = _hardware(kind, per_host, wishes, assumed)
        if each.gpu != own.gpu and "" in (each.gpu, own.gpu):
            raise InvalidJob(
                f"--instance-type {kind}: how much faster it is than the hosts of the measurement is not known",
                hint="Measure on a type that cloudtrain offers lists.",
            )
        sizes = [(_hosts_for(count, each), count) for count in wishes.gpus]
        sizes = sizes or [(job.host_count * times, job.host_count * times * each.gpus) for times in TIMES]
        for count, gpus in sizes:
            offers += _with_prices(tables, Offer(count, gpus, each, kind), job, platform, measured, assumed)
    if training.measured_hardware.gpu and any(o.hardware.gpu != own.gpu for o in offers):
        assumed.append(
            "other GPUs compute faster by between their ratios of arithmetic and of memory bandwidth"
        )
    names = ["failures", "queue", *(n for n in ("save", "restart", "start") if n not in training.known)]
    spot = ["preempted_after", "spot_queue"] if any(offer.spot for offer in offers) else []
    assumed += [ASSUMED[name][1] for name in [*names, *spot]]
    plan = Plan(
        [estimate(training, offer) for offer in offers], wishes.deadline, wishes.budget,
        tuple(dict.fromkeys(measured)), tuple(dict.fromkeys(assumed)),
    )  # fmt: skip
    plan.check_budget()
    return plan


def _training(
    job: TrainingJob, wishes: Wishes, record: Measured | None, own: Hardware, measured: list[str], assumed: list[str]
) -> Training:  # fmt: skip
    steps = wishes.steps or _steps_of(job) or (record and record.total_steps)
    if not steps:
        raise InvalidJob("how many steps the training has is not known", hint="Give them: --steps 10000.")
    step, ranks = (record.step, record.ranks) if record else (wishes.step_seconds, wishes.measured_on)
    if wishes.step_seconds is not None:
        step, ranks = wishes.step_seconds, wishes.measured_on
    if step is None:
        raise InvalidJob(
            "the time of a step is not known",
            hint="Measure it with a short run of this job, and give the job: --from-job NAME. Or: --step-seconds 0.42",
        )
    ranks = ranks or job.host_count * own.gpus
    if wishes.step_seconds is not None:
        measured.insert(0, f"{step:.4g} s a step on {ranks:,} GPU{'s' if ranks > 1 else ''} (given)")
    known = dict(record.known) if record else {}
    for name, given in (("save", wishes.checkpoint_seconds), ("restart", wishes.restart_seconds)):
        if given is not None:
            known[name] = Range.exactly(given)
            measured.append(f"{name} {given:g} s (given)")
    gradients = record.gradients if record else None
    if wishes.parameters is not None:
        gradients = Range.exactly(wishes.parameters * (2 if wishes.sharded else 4))
        measured.append(f"{wishes.parameters:,.4g} parameters (given)")
    if gradients is None:
        most = (
            own.gpu_memory * 2**30 / 16 or 1e9
        )  # weight, gradient and two moments of each parameter, in float32
        gradients = Range(0.0, most / 4, most)
        assumed.append(f"gradients of up to {most / 1e9:.2g} GB (--parameters)")
    return Training(
        steps, step, ranks, own, gradients, wishes.sharded, wishes.accumulation, wishes.strong, known
    )


def _steps_of(job: TrainingJob) -> int | None:
    """The number of steps according to the hyperparameters of the job."""
    for name in ("max_steps", "max-steps", "total_steps", "total-steps", "steps"):
        value = job.hyperparameters.get(name)
        if isinstance(value, int) and 0 < value <= MOST:
            return int(value)
    return None


def _gpus_per_host(job: TrainingJob) -> int:
    """The number of GPUs of a host, or else its number of ranks."""
    gpus = job.platform_options.get("gpus")
    if isinstance(gpus, int) and gpus > 0:
        return gpus
    kinds = _launchers(job.distribution)
    counts = [value for kind in kinds for value in [getattr(kind, "processes_per_host", None)]]
    return next((count for count in counts if isinstance(count, int)), 1)


def _launchers(distribution: Any) -> list[Any]:
    """The launchers that a distribution can have; None for those that it does not have."""
    names = getattr(distribution, "__struct_fields__", ())
    return [getattr(distribution, name) for name in names]


def _hardware(kind: str, per_host: int, wishes: Wishes, assumed: list[str]) -> Hardware:
    found = hardware(kind)
    if found is None:
        if kind.startswith("ml."):
            raise InvalidJob(
                f"the hardware of {kind} is not known", hint="cloudtrain offers lists the types."
            )
        found = Hardware("", per_host, 0, NETWORK * GBIT, LINK * GB, 1.0, 1.0)
        if wishes.network is None:
            assumed.append(f"a network of {NETWORK:g} Gbit/s for each host (--network)")
    return replace(found, network=wishes.network * GBIT) if wishes.network else found


def _hosts_for(gpus: int, each: Hardware) -> int:
    if gpus > each.gpus and gpus % each.gpus:
        raise InvalidJob(
            f"--gpus {gpus}: hosts with {each.gpus} GPUs cannot have {gpus} together",
            hint=f"Use a multiple of {each.gpus}, or fewer.",
        )
    return math.ceil(gpus / each.gpus)


def _with_prices(
    tables: Iterable[Sequence[PriceRow]],
    offer: Offer,
    job: TrainingJob,
    platform: str,
    measured: list[str],
    assumed: list[str],
) -> list[Offer]:
    """The offer with its price, and the same hosts on spot capacity if there is any."""
    price, where = find_host_price(tables, offer, job, platform)
    if price is None:
        assumed.append(f"no price is known for {where}: the plan has times only")
        return [offer]
    one = price.per_hour(1, offer.gpus // offer.hosts)
    if one is None:
        assumed.append(
            f"the price of {where} is per {price.unit.replace('_', ' ')}, which is not known of it"
        )
        return [offer]
    source = ", ".join(filter(None, [price.source, price.date]))
    measured.append(f"{where} costs {one:,.4g} {price.currency} an hour ({source})")
    each = 1 + job.spare_hosts / offer.hosts  # includes its part of the spare hosts
    found = [replace(offer, price=Range.exactly(one * each), currency=price.currency, source=source)]
    if price.spot:
        low, high = (bound * each for bound in price.spot)
        assumed.append(f"a spot host costs {low:,.3g} to {high:,.4g} {price.currency} an hour")
        spot = Range(low, (low + high) / 2, high)
        found.append(replace(offer, price=spot, spot=True, currency=price.currency, source=source))
    return found


def find_host_price(
    tables: Iterable[Sequence[PriceRow]], offer: Offer, job: TrainingJob, platform: str
) -> tuple[Any, str]:
    """The price of the offer's hosts, or None if it is not known, and a description of the hosts."""
    options = job.platform_options
    place = Where(
        platform,
        region=region_of(platform),
        cluster=str(options.get("profile") or options.get("context") or ""),
        partition=str(options.get("partition") or options.get("queue") or options.get("namespace") or ""),
        node_type=offer.instance_type,
    )
    shown = " ".join(filter(None, [offer.instance_type or platform, place.partition, place.region]))
    return find_price(tables, place), shown


def region_of(platform: str) -> str:
    """The AWS region of SageMaker, from variables and the AWS profile; empty for other platforms. Makes no request."""
    if platform != "sagemaker":
        return ""
    import os

    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        if os.environ.get(name):
            return os.environ[name]
    import boto3

    return boto3.Session().region_name or ""


def seconds_from_now(text: str, now: datetime | None = None) -> float:
    """The seconds to a deadline: ``90m``, ``24h``, ``2d``, or a time in ISO 8601 (local if it has no time zone).

    Raises InvalidJob if it is neither, or in the past.
    """
    now = now or datetime.now(timezone.utc)
    match = re.fullmatch(r"(-?\d+(?:\.\d+)?)\s*(s|min|m|h|d)", text.strip())
    if match:
        seconds = float(match[1]) * UNITS[match[2]]
    else:
        try:
            seconds = (datetime.fromisoformat(text.strip()).astimezone() - now).total_seconds()
        except (ValueError, OverflowError, OSError):
            raise InvalidJob(
                f"--deadline {text!r} is neither a duration nor a moment",
                hint="For example: 24h, 2026-12-24T18:00",
            ) from None
    if seconds <= 0:
        raise InvalidJob(f"--deadline {text}: it is in the past", hint="For example: 24h, from now.")
    return seconds


def positive(name: str, value: float | None) -> float | None:
    """``value``, if it is None or a finite number above 0. Raises InvalidJob otherwise."""
    if value is not None and not (math.isfinite(value) and value > 0):
        raise InvalidJob(f"{name} {value:g}: expected a finite number above 0")
    if value is not None and not SMALLEST <= value <= LARGEST:
        raise InvalidJob(f"{name} {value:g}: expected a number from {SMALLEST:g} to {LARGEST:g}")
    return value


def counts(name: str, text: str | None) -> tuple[int, ...]:
    """The numbers in a list such as ``8,16,64``, ascending and without duplicates. Raises InvalidJob."""
    if text is None:
        return ()
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and len(part) <= 7 and 0 < int(part) <= 1_000_000 for part in parts):
        raise InvalidJob(
            f"{name} {text[:LONGEST_SHOWN]}: expected numbers from 1 to 1,000,000, separated by commas",
            hint=f"{name} 8,16,64",
        )
    return tuple(sorted({int(part) for part in parts}))


def wishes_from(options: Mapping[str, Any]) -> Wishes:
    """Check the options of the command, whose names have underscores here. Raises InvalidJob."""
    number: dict[str, float | None] = {
        name: positive(f"--{name.replace('_', '-')}", options.get(name)) for name in _NUMBERS
    }
    whole: dict[str, int | None] = {}
    for name in ("steps", "measured_on", "accumulation"):
        whole[name] = options.get(name)
        if (value := whole[name]) is not None and not 1 <= value <= MOST:
            shown = str(value)[:LONGEST_SHOWN]
            raise InvalidJob(
                f"--{name.replace('_', '-')} {shown}: expected a whole number from 1 to {MOST:,}"
            )
    deadline = options.get("deadline")
    return Wishes(
        gpus=counts("--gpus", options.get("gpus")),
        instance_types=tuple(options.get("instance_types") or ()),
        steps=whole["steps"],
        step_seconds=number["step_seconds"],
        measured_on=whole["measured_on"],
        parameters=number["parameters"],
        sharded=bool(options.get("sharded")),
        accumulation=whole["accumulation"] or 1,
        strong=bool(options.get("strong")),
        network=number["network"],
        checkpoint_seconds=number["checkpoint_seconds"],
        restart_seconds=number["restart_seconds"],
        deadline=seconds_from_now(deadline) if deadline is not None else None,
        budget=number["budget"],
    )


_NUMBERS = ("step_seconds", "parameters", "network", "checkpoint_seconds", "restart_seconds", "budget")
