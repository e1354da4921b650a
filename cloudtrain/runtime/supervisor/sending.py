"""Runs the courier of a job while its supervisor runs. For a job without notifications, it imports no courier."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping

from cloudtrain.contract.request_body import script_variables
from cloudtrain.runtime.supervisor.folder import JobFolder


@contextlib.contextmanager
def notifications_sent(
    job: JobFolder, environ: Mapping[str, str], *, in_allocation: bool
) -> Iterator[tuple[list[str], Callable[[], None]]]:
    """Run the courier of a job during the block.

    Yields the variables that only the notifications need, and a function to call regularly, which restarts the courier
    if it has ended.

    Args:
        environ: contains the variables that the job's rules refer to.
        in_allocation: whether the courier ends with this process, which waits for it for some seconds, or for as long
            as a rule demands. Otherwise the courier may outlive this process.
    """
    body = job.read_request()
    if not body.get("notify"):
        yield [], lambda: None
        return
    from cloudtrain.runtime.notifications.rules import hold_seconds, own_variables, rules_of
    from cloudtrain.runtime.supervisor.courier import MACHINE, STEP, Courier

    rules = rules_of(body)
    courier = Courier(job, environ, STEP if in_allocation else MACHINE)
    try:
        yield own_variables(rules, script_variables(body)), courier.keep
    finally:
        courier.close(hold_seconds(rules))
