"""The ``main`` of a supervisor on this machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from cloudtrain.errors import CloudtrainError, PlatformError
from cloudtrain.platforms.supervised.idle import wait_for_job
from cloudtrain.runtime.supervisor.folder import JobFolder
from cloudtrain.runtime.supervisor.hosts import Hosts
from cloudtrain.runtime.supervisor.sending import notifications_sent
from cloudtrain.runtime.supervisor.supervise import supervise


def _terms_now(terms: Mapping[str, Any], day: str) -> Mapping[str, Any]:
    """See `cloudtrain.cost.terms.terms_now`, which is slow to import."""
    try:
        from cloudtrain.cost.terms import terms_now

        return terms_now(terms, day)
    except (ImportError, TypeError, AttributeError) as error:  # the job must continue
        raise PlatformError(f"cloudtrain was removed or changed while the job ran: {error}") from error


def run_supervisor(make_hosts: Callable[[JobFolder, int], Hosts]) -> None:
    """Wait for the client to send a job, and supervise it.

    Args:
        make_hosts: creates the hosts of the job in a folder, given its lock's descriptor, which they must not inherit.
    """
    job = wait_for_job()
    if job is None:
        return
    folder, lock = JobFolder(job[0]), job[1]
    os.set_inheritable(lock, False)
    try:
        with notifications_sent(folder, os.environ, in_allocation=False) as (own, keep):
            for name in own:
                os.environ.pop(name, None)
            hosts = make_hosts(folder, lock)
            supervise(folder, hosts, lock=lock, terms_now=_terms_now, keep_courier=keep)
    except CloudtrainError as error:  # the client shows the last line of this log
        sys.exit(error.message)
