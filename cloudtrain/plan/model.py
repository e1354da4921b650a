"""How long a training takes on N GPUs: steps, failures and preemptions, as functions of numbers.

Times are in seconds, sizes in bytes, bandwidths in bytes per second. `docs/design/scaling-model.md` compares the step
time with published measurements.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from cloudtrain.checkpoint.interval import best_interval

BACKWARD = 2 / 3
"""The share of a step's computation that is its backward pass: it has two matrix products for each of the forward
pass. Kaplan et al. 2020, arXiv:2001.08361, section 2.1."""
BUCKET = 25 << 20
"""Bytes of gradients that are reduced together: DistributedDataParallel's ``bucket_cap_mb``."""
LATENCY = 30e-6
"""Of one message between hosts, or GPUs of a host, in seconds; a tree of N passes log2(N) of them (assumed)."""
EFFICIENCY = (0.9, 0.825, 0.75)
"""The share of a link's line rate that an allreduce of large buckets reaches: optimistic, expected, pessimistic
(assumed)."""
JITTER = (0.01, 0.025, 0.055)
"""The coefficient of variation of a rank's step: optimistic, expected, pessimistic. 0.025 is that of published sharded
trainings, 0.055 that of BERT on one host: see docs/design/scaling-model.md."""


@dataclass(frozen=True)
class Links:
    """The network of a job. Bandwidths are line rates, in bytes per second and direction."""

    gpus_per_host: int
    host: float
    """Of the network of one host."""
    gpu: float
    """Of the links between the GPUs of one host, for each GPU."""
    efficiency: float = EFFICIENCY[1]


@dataclass(frozen=True)
class Load:
    """The computation and the communication of one GPU in one step."""

    compute: float
    """Seconds of computation, without waiting for others."""
    gradients: float
    """Bytes of the gradients, or of all parameters in the precision in which a sharded training sends them."""
    sharded: bool = False
    """Whether parameters are sharded (FSDP, ZeRO-3)."""
    accumulation: int = 1
    """Passes through the model in one step."""
    overlap: float = 1.0
    """The share of the communication that may run during computation: 0 if it starts when the gradients are there."""
    jitter: float = JITTER[1]


def communication(load: Load, gpus: int, links: Links) -> float:
    """Seconds that the collectives of one step take by themselves.

    A ring moves 2 (n - 1)/n of the gradients through the link of each of n members: Patarasuk and Yuan 2009,
    doi:10.1016/j.jpdc.2008.09.002. A sharded training gathers the parameters twice and scatters the gradients once, in
    every pass: Rajbhandari et al. 2020, arXiv:1910.02054, section 7. Between hosts, the link is that of the host.
    """
    if gpus <= 1:
        return 0.0
    hosts = math.ceil(gpus / links.gpus_per_host)
    members, link = (hosts, links.host) if hosts > 1 else (gpus, links.gpu)
    passes = 3 * load.accumulation if load.sharded else 2
    moved = passes * load.gradients * (members - 1) / members / (links.efficiency * link)
    messages = passes / 2 * math.ceil(load.gradients / BUCKET) * math.ceil(math.log2(gpus))
    return moved + messages * LATENCY


def stragglers(gpus: int, jitter: float) -> float:
    """The time of the slowest of N ranks, in times of the mean one: 1 + jitter sqrt(2 ln N).

    The expected maximum of N normal values: Cramér 1946, Mathematical Methods of Statistics, chapter 28.
    """
    return 1.0 + jitter * math.sqrt(2 * math.log(gpus))


def step_seconds(load: Load, gpus: int, links: Links) -> float:
    """T(N) = compute s(N) + max(0, communication - overlap window), in seconds.

    The window of an allreduce is the backward pass, of the last one if gradients are accumulated. That of a sharded
    training is the whole step. Sergeev and Del Balso 2018, arXiv:1802.05799; Li et al. 2020, arXiv:2006.15704.
    """
    window = load.compute if load.sharded else load.compute * BACKWARD / load.accumulation
    exposed = max(0.0, communication(load, gpus, links) - load.overlap * window)
    return load.compute * stragglers(gpus, load.jitter) + exposed


def with_measured(load: Load, seconds: float, gpus: int, links: Links) -> Load:
    """``load`` with the computation for which a step on ``gpus`` GPUs takes the measured ``seconds``."""
    low, high = 0.0, seconds
    for _ in range(40):  # a step takes longer if it computes longer
        middle = (low + high) / 2
        if step_seconds(replace(load, compute=middle), gpus, links) < seconds:
            low = middle
        else:
            high = middle
    return replace(load, compute=high)


@dataclass(frozen=True)
class Risk:
    """The interruptions of a job, and their cost. Times are in seconds."""

    mtbf: float
    """The mean time between the interruptions of the job; infinite if there are none."""
    save: float
    """How long the training stops for one checkpoint."""
    restart: float
    """From an interruption until the first new step, without the queue."""
    queue: float = 0.0
    """The wait for hosts after an interruption."""


def overhead(risk: Risk, interval: float | None = None) -> float:
    """The time that interruptions and checkpoints add, as a share of the steps' time.

    f = δ/τ + τ/(2 M) + (R + q)/M, which is sqrt(2 δ/M) + (R + q)/M for the best interval τ. Daly 2006,
    doi:10.1016/j.future.2004.11.016.

    Args:
        interval: seconds between checkpoints; None: the best ones.
    """
    if math.isinf(risk.mtbf):
        return risk.save / interval if interval else 0.0
    restarts = (risk.restart + risk.queue) / risk.mtbf
    if interval is None:
        interval = best_interval(risk.mtbf, risk.save)
        if not interval:
            return restarts
    return risk.save / interval + interval / (2 * risk.mtbf) + restarts


def effective_share(risk: Risk, interval: float | None = None) -> float:
    """The share of a job's time that goes into steps that are kept (ETTR, goodput), from 0 to 1."""
    return 1 / (1 + overhead(risk, interval))
