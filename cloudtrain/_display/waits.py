"""The share of its time that a job waits for data and for communication."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from cloudtrain.observe import Sample

if TYPE_CHECKING:
    from cloudtrain._display.view import JobView

RECENT_SECONDS = 60.0
"""While a job runs, only the samples in this time up to the last one of each host count."""
MUCH_MORE = 0.1
"""A rank whose share exceeds the mean by more than this is named."""


def data_shares(samples: Mapping[str, Sequence[Sample]], *, is_running: bool) -> dict[int, float]:
    """The share of the time, from 0 to 1, that each rank waited for data: recently or, if the job has ended, in all
    samples. Ranks that have not reported any wait are missing."""
    waited: dict[int, float] = defaultdict(float)
    seconds: dict[int, float] = defaultdict(float)
    for of_host in samples.values():
        for sample in _recent(of_host) if is_running else of_host:
            for rank, share in sample.data.items():
                waited[rank] += min(share, 1.0) * sample.seconds
                seconds[rank] += sample.seconds
    return {rank: waited[rank] / whole for rank, whole in seconds.items() if whole > 0}


def _recent(samples: Sequence[Sample]) -> Iterable[Sample]:
    return (one for one in samples if one.time > samples[-1].time - RECENT_SECONDS)


def mean_share(shares: Mapping[int, float]) -> float | None:
    """The mean of all ranks; None if none is known."""
    return sum(shares.values()) / len(shares) if shares else None


def waits_text(view: JobView) -> str:
    """Such as ``data 12% (rank 3: 40%), communication 3%``; empty if neither is known."""
    parts = []
    mean = mean_share(view.data_shares)
    if mean is not None:
        rank, most = max(view.data_shares.items(), key=lambda item: item[1])
        parts.append(f"data {mean:.0%}" + (f" (rank {rank}: {most:.0%})" if most - mean > MUCH_MORE else ""))
    if view.exposed is not None:
        parts.append(f"communication {view.exposed:.0%}")
    return ", ".join(parts)
