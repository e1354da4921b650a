"""The GPUs of the hosts whose ranks form one world: each host needs enough for its ranks, and as many ranks."""

from __future__ import annotations

from collections.abc import Mapping

from cloudtrain.contract import FailureClass, FailureReport
from cloudtrain.observe import steady


def differing_gpus(found: Mapping[str, tuple[int, int]]) -> FailureReport | None:
    """The report of hosts with different GPUs, which names them; None if their ranks can train together.

    Some ranks would otherwise have no GPU while others wait for them in NCCL, or the hosts would disagree on the
    number of ranks.

    Args:
        found: GPUs and ranks of each host.
    """
    gpus = {count for count, _ in found.values()}
    ranks = {count for _, count in found.values()}
    if len(ranks) <= 1 and not any(min(gpus) < count <= max(gpus) for count in ranks):
        return None
    by_count: dict[int, list[str]] = {}
    for host, (count, _) in found.items():
        by_count.setdefault(count, []).append(host)
    differences = "; ".join(
        f"{count} on {', '.join(hosts[:5])}{f' and {len(hosts) - 5} more' if hosts[5:] else ''}"
        for count, hosts in sorted(by_count.items(), reverse=True)
    )
    fewest = min(by_count)
    return FailureReport(
        FailureClass.PLATFORM,
        f"the hosts have different numbers of GPUs: {differences}",
        "Use hosts with equal GPUs (instance_type), or name the instance groups of the distribution"
        + (f", or set processes_per_host to {fewest} or less." if fewest else "."),
        host=by_count[fewest][0],
        phase="launch",
        time=steady.now(),
    )
