"""Has the notifications of a job sent while its supervisor runs. It loads nothing for a job that sends none."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping

from cloudtrain.contract.request_body import script_variables
from cloudtrain.runtime.supervisor.folder import JobFolder


@contextlib.contextmanager
def notifications_sent(
    job: JobFolder, environ: Mapping[str, str], *, in_allocation: bool
) -> Iterator[tuple[list[str], Callable[[], None]]]:
    """Run the courier of a job meanwhile.

    Returns the variables that only the notifications need, and a function that starts the courier again if it has
    ended: call it from time to time.

    Args:
        environ: has the variables that the job's rules refer to.
        in_allocation: whether the courier ends with this process, which waits for it: for some seconds, or for as long
            as a rule demands. Otherwise it outlives this process.
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
