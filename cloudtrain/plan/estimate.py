"""Pure functions that estimate the optimistic, expected and pessimistic time and cost of a job on one kind of hosts."""

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
"""The least ratio of the pessimistic to the expected value, because runs of the same job differ by a few percent."""


@dataclass(frozen=True)
class Range:
    """A quantity with its optimistic, expected and pessimistic value."""

    low: float
    expected: float
    high: float

    def __iter__(self) -> Iterator[float]:
        return iter((self.low, self.expected, self.high))

    def scenario(self, number: int) -> float:
        """The value of a scenario: 0 is optimistic, 1 expected, and 2 pessimistic."""
        return (self.low, self.expected, self.high)[number]

    @classmethod
    def exactly(cls, value: float) -> Range:
        return cls(value, value, value)

    @classmethod
    def of(cls, values: Sequence[float]) -> Range:
        """A range from the values of the three scenarios, of which the first need not be the smallest."""
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
"""The values to use if nothing is known, in seconds unless stated otherwise. docs/guides/cost.md lists them."""


@dataclass(frozen=True)
class Training:
    """The steps of a training job, and the facts known about it. Times are in seconds."""

    steps: int
    """The number of steps on ``measured_on`` GPUs."""
    step: float
    """The time of a step on ``measured_on`` GPUs of ``measured_hardware``."""
    measured_on: int
    measured_hardware: Hardware
    gradients: Range
    """The size of the gradients, in bytes."""
    sharded: bool = False
    accumulation: int = 1
    strong: bool = False
    """Whether the global batch size is independent of the number of GPUs (strong scaling). Otherwise, the batch size
    per GPU is, and more GPUs need fewer steps."""
    known: Mapping[str, Range] = field(default_factory=dict)
    """Known values, by name, which replace those in `ASSUMED`."""

    def value(self, name: str) -> Range:
        return self.known.get(name) or ASSUMED[name][0]


@dataclass(frozen=True)
class Offer:
    """Hosts to run on. The price is for an hour of one host, in ``currency``; None if it is not known."""

    hosts: int
    gpus: int
    """The number of GPUs of all hosts."""
    hardware: Hardware
    instance_type: str = ""
    spot: bool = False
    price: Range | None = None
    currency: str = "USD"
    source: str = ""
    """The source of the price, with its date."""


@dataclass(frozen=True)
class Estimate:
    """The time and cost of a training job on one offer."""

    offer: Offer
    seconds: Range
    """The time from the start of the job to its end."""
    step: Range
    steps: int
    cost: Range | None
    limit: str
    """The main cause of time that is not spent on computation."""

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
    """The time and cost of ``training`` on ``offer``."""
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
    """One of the three scenarios: ``seconds``, ``billed``, ``step``, and the lost seconds by cause."""

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
    """The speed of a GPU's computation relative to the measured GPU.

    It is between the ratios of arithmetic throughput and of memory bandwidth: Williams et al. 2009,
    doi:10.1145/1498765.1498785.
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
