"""A model of the time of a training job on N GPUs: steps, failures and preemptions, as pure functions.

Times are in seconds, sizes in bytes, bandwidths in bytes per second. `docs/design/scaling-model.md` compares the step
time with published measurements.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from cloudtrain.checkpoint.interval import best_interval

BACKWARD = 2 / 3
"""The share of the backward pass in a step's computation: it has two matrix products for each one of the forward pass.
Kaplan et al. 2020, arXiv:2001.08361, section 2.1."""
BUCKET = 25 << 20
"""Bytes of gradients that are reduced together: DistributedDataParallel's ``bucket_cap_mb``."""
LATENCY = 30e-6
"""The latency of one message between hosts, or between GPUs of a host, in seconds (assumed). A tree of N ranks sends
log2(N) messages in sequence."""
EFFICIENCY = (0.9, 0.825, 0.75)
"""The optimistic, expected and pessimistic share of a link's line rate that an allreduce of large buckets reaches
(assumed)."""
JITTER = (0.01, 0.025, 0.055)
"""The optimistic, expected and pessimistic coefficient of variation of a rank's step. 0.025 is that of published runs
of sharded training, 0.055 that of BERT on one host: see docs/design/scaling-model.md."""


@dataclass(frozen=True)
class Links:
    """The network of a job. Bandwidths are line rates, in bytes per second and direction."""

    gpus_per_host: int
    host: float
    """The bandwidth of the network of one host."""
    gpu: float
    """The bandwidth of the links between the GPUs of one host, for each GPU."""
    efficiency: float = EFFICIENCY[1]


@dataclass(frozen=True)
class Load:
    """The computation and the communication of one GPU in one step."""

    compute: float
    """The time of computation, without waiting for other ranks."""
    gradients: float
    """The size of the gradients; with sharding, of all parameters in the precision in which they are sent."""
    sharded: bool = False
    """Whether parameters are sharded (FSDP, ZeRO-3)."""
    accumulation: int = 1
    """The number of passes through the model in one step."""
    overlap: float = 1.0
    """The share of the overlap window that communication uses: 0 if it starts only after the computation."""
    jitter: float = JITTER[1]


def communication(load: Load, gpus: int, links: Links) -> float:
    """The time that the collectives of one step would take without overlap.

    A ring moves 2 (n - 1)/n of the gradients through the link of each of n members: Patarasuk and Yuan 2009,
    doi:10.1016/j.jpdc.2008.09.002. Sharded training gathers the parameters twice and scatters the gradients once in
    every pass: Rajbhandari et al. 2020, arXiv:1910.02054, section 7. Between hosts, the link is the host's network.
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
    """The time of the slowest of N ranks relative to the mean: 1 + jitter sqrt(2 ln N).

    This is the expected maximum of N normal values: Cramér 1946, Mathematical Methods of Statistics, chapter 28.
    """
    return 1.0 + jitter * math.sqrt(2 * math.log(gpus))


def step_seconds(load: Load, gpus: int, links: Links) -> float:
    """T(N) = compute s(N) + max(0, communication - overlap window), in seconds.

    The window of an allreduce is the backward pass, or the last one if gradients are accumulated. The window of sharded
    training is the whole step. Sergeev and Del Balso 2018, arXiv:1802.05799; Li et al. 2020, arXiv:2006.15704.
    """
    window = load.compute if load.sharded else load.compute * BACKWARD / load.accumulation
    exposed = max(0.0, communication(load, gpus, links) - load.overlap * window)
    return load.compute * stragglers(gpus, load.jitter) + exposed


def with_measured(load: Load, seconds: float, gpus: int, links: Links) -> Load:
    """``load`` with the computation time with which a step on ``gpus`` GPUs takes the measured ``seconds``."""
    low, high = 0.0, seconds
    for _ in range(40):  # bisection works because the time of a step increases with the computation
        middle = (low + high) / 2
        if step_seconds(replace(load, compute=middle), gpus, links) < seconds:
            low = middle
        else:
            high = middle
    return replace(load, compute=high)


@dataclass(frozen=True)
class Risk:
    """The interruptions of a job, and the time that they cost. Times are in seconds."""

    mtbf: float
    """The mean time between the interruptions of the job; infinite if there are none."""
    save: float
    """The time for which training stops for one checkpoint."""
    restart: float
    """The time from an interruption to the first new step, without the queue."""
    queue: float = 0.0
    """The time of waiting for hosts after an interruption."""


def overhead(risk: Risk, interval: float | None = None) -> float:
    """The time that interruptions and checkpoints add, as a share of the steps' time.

    f = δ/τ + τ/(2 M) + (R + q)/M, which is sqrt(2 δ/M) + (R + q)/M for the best interval τ. Daly 2006,
    doi:10.1016/j.future.2004.11.016.

    Args:
        risk: the interruptions, and the time that they cost.
        interval: the seconds between checkpoints; None for the best interval.
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
    """The share of a job's time in steps that are kept (ETTR, goodput), from 0 to 1."""
    return 1 / (1 + overhead(risk, interval))
