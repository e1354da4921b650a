"""The time and the cost of one training on one kind of hosts: optimistic, expected and pessimistic. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from cloudtrain.checkpoint.interval import FAILURES, job_mtbf
from cloudtrain.plan.hardware import Hardware
from cloudtrain.plan.model import (
    EFFICIENCY,
    JITTER,
    Links,
    Load,
    Risk,
    communication,
    overhead,
    step_seconds,
    stragglers,
    with_measured,
)

HOUR = 3600.0
UNCERTAIN = 1.05
"""The least factor between expected and pessimistic: runs of one job differ by some percent."""


@dataclass(frozen=True)
class Range:
    """A quantity: optimistic, expected, pessimistic."""

    low: float
    expected: float
    high: float

    def __iter__(self) -> Iterator[float]:
        return iter((self.low, self.expected, self.high))

    def scenario(self, number: int) -> float:
        """0: the optimistic value; 1: the expected one; 2: the pessimistic one."""
        return (self.low, self.expected, self.high)[number]

    @classmethod
    def exactly(cls, value: float) -> Range:
        return cls(value, value, value)

    @classmethod
    def of(cls, values: Sequence[float]) -> Range:
        """From the values of the three scenarios, in any order of size."""
        return cls(min(values), values[1], max(values))


ASSUMED: Mapping[str, tuple[Range, str]] = {
    "save": (Range(1, 10, 60), "a checkpoint stops the training for 1 to 60 s"),
    "restart": (Range(60, 300, 900), "a restart takes 1 to 15 min"),
    "start": (Range(10, 60, 300), "the first step comes 10 s to 5 min after the start"),
    "queue": (Range(0, 180, 600), "a lost host is replaced within 10 min"),
    "failures": (Range(*FAILURES), "2.3 to 24 failures per 1,000 days of a host (arXiv:2410.21680)"),
    "preempted_after": (Range(240 * HOUR, 72 * HOUR, 24 * HOUR), "a spot host runs for 1 to 10 days"),
    "spot_queue": (Range(180, 600, 1800), "the wait for a new spot host is 3 to 30 min"),
}
"""The values where nothing is known, in seconds unless it says otherwise; docs/guides/cost.md lists it."""


@dataclass(frozen=True)
class Training:
    """One training: its steps, and what is known about it. Times are in seconds."""

    steps: int
    """On ``measured_on`` GPUs."""
    step: float
    """Seconds of a step on ``measured_on`` GPUs of ``measured_hardware``."""
    measured_on: int
    measured_hardware: Hardware
    gradients: Range
    """Bytes."""
    sharded: bool = False
    accumulation: int = 1
    strong: bool = False
    """Whether the batch of a step stays the same on more GPUs; else, that of a GPU does, and there are fewer steps."""
    known: Mapping[str, Range] = field(default_factory=dict)
    """Values instead of those in `ASSUMED`, by their names."""

    def value(self, name: str) -> Range:
        return self.known.get(name) or ASSUMED[name][0]


@dataclass(frozen=True)
class Offer:
    """Hosts to run on. Prices are of an hour of one host, in ``currency``; None if they are not known."""

    hosts: int
    gpus: int
    """In all."""
    hardware: Hardware
    instance_type: str = ""
    spot: bool = False
    price: Range | None = None
    currency: str = "USD"
    source: str = ""
    """Of the price, with its date."""


@dataclass(frozen=True)
class Estimate:
    """Time and cost of a training on one offer."""

    offer: Offer
    seconds: Range
    """From the start of the job to its end."""
    step: Range
    steps: int
    cost: Range | None
    limit: str
    """The cause of most of its time apart from computing."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "hosts": self.offer.hosts,
            "gpus": self.offer.gpus,
            "gpu": self.offer.hardware.gpu,
            "instance_type": self.offer.instance_type or None,
            "spot": self.offer.spot,
            "steps": self.steps,
            "step_seconds": asdict(self.step),
            "seconds": asdict(self.seconds),
            "cost": asdict(self.cost) if self.cost else None,
            "currency": self.offer.currency if self.cost else None,
            "price_source": self.offer.source or None,
            "limited_by": self.limit,
        }


def estimate(training: Training, offer: Offer) -> Estimate:
    """Time and cost of ``training`` on ``offer``."""
    steps = (
        training.steps
        if training.strong
        else max(math.ceil(training.steps * training.measured_on / offer.gpus), 1)
    )
    scenarios = [_scenario(training, offer, steps, number) for number in range(3)]
    seconds = [one["seconds"] for one in scenarios]
    seconds[2] = max(seconds[2], seconds[1] * UNCERTAIN)
    cost = None
    if offer.price:
        hours = [offer.hosts * one["billed"] / HOUR for one in scenarios]
        hours[2] = max(hours[2], hours[1] * UNCERTAIN)
        cost = Range.of([hour * price for hour, price in zip(hours, offer.price, strict=True)])
    step = Range.of([one["step"] for one in scenarios])
    return Estimate(offer, Range.of(seconds), step, steps, cost, _limit(scenarios[1]))


def _scenario(training: Training, offer: Offer, steps: int, number: int) -> dict[str, float]:
    """One of the three scenarios: ``seconds``, ``billed``, ``step``, and the seconds lost by cause."""

    def at(name: str) -> float:
        return training.value(name).scenario(number)

    links = _links(offer.hardware, number)
    load = Load(
        0.0,
        training.gradients.scenario(number),
        training.sharded,
        training.accumulation,
        jitter=JITTER[number],
    )
    load = with_measured(
        load, training.step, training.measured_on, _links(training.measured_hardware, number)
    )
    speed = _speed(training.measured_hardware, offer.hardware, number)
    batch = training.measured_on / offer.gpus if training.strong else 1.0
    load = replace(load, compute=load.compute / speed * batch)
    step = step_seconds(load, offer.gpus, links)
    ideal = load.compute * steps
    waits = (stragglers(offer.gpus, load.jitter) - 1) * ideal
    preempted_after = at("preempted_after") if offer.spot else math.inf
    queue = at("spot_queue") if offer.spot else at("queue")
    risk = Risk(job_mtbf(offer.hosts, at("failures"), preempted_after), at("save"), at("restart"), queue)
    added, without_queue = overhead(risk), overhead(replace(risk, queue=0.0))
    return {
        "seconds": steps * step * (1 + added) + at("start"),
        "billed": steps * step * (1 + without_queue)
        + at("start"),  # nothing is billed while hosts are missing
        "step": step,
        "the network": steps * step - ideal - waits if communication(load, offer.gpus, links) else 0.0,
        "the slowest rank": waits,
        "preemptions" if offer.spot else "failures and checkpoints": steps * step * added,
        "the start": at("start"),
    }


def _links(hardware: Hardware, number: int) -> Links:
    return Links(hardware.gpus, hardware.network, hardware.link, EFFICIENCY[number])


def _speed(measured: Hardware, offered: Hardware, number: int) -> float:
    """How many times faster a GPU computes than the one that was measured.

    Between the ratio of arithmetic and that of memory bandwidth: Williams et al. 2009, doi:10.1145/1498765.1498785.
    """
    if measured.gpu == offered.gpu:
        return 1.0
    ratios = (offered.tflops / measured.tflops, offered.memory_rate / measured.memory_rate)
    speeds = Range(min(ratios), math.sqrt(ratios[0] * ratios[1]), max(ratios))
    return speeds.scenario(2 - number)


def _limit(scenario: Mapping[str, float]) -> str:
    losses = {
        name: seconds for name, seconds in scenario.items() if name not in ("seconds", "billed", "step")
    }
    cause = max(losses, key=losses.__getitem__)
    share = losses[cause] / scenario["seconds"]
    return "computation" if share < 0.03 else f"{cause} ({share:.0%})"
