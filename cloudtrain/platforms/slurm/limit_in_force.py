"""The time limit that a job is going to have, as far as the cluster shows it before the job is submitted."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable

from cloudtrain.errors import PlatformError
from cloudtrain.platforms.batch.shell import Shell
from cloudtrain.platforms.slurm.limits import limit_seconds
from cloudtrain.platforms.slurm.options import SlurmOptions
from cloudtrain.platforms.slurm.sinfo import seconds_of
from cloudtrain.platforms.slurm.squeue import CLEAN
from cloudtrain.runtime.slurm.time_limit import notice_seconds
from cloudtrain.spec import TrainingJob

CALL_SECONDS = 20.0
LimitOf = Callable[[str, str], "tuple[int, str] | None"]
"""See `limit_of_cluster`, for the shell of one cluster."""


def limit_warnings(job: TrainingJob, options: SlurmOptions, limit_of: LimitOf) -> list[str]:
    """A warning of a time limit that is short against the notice, the grace and the end of the job."""
    if options.time is not None:
        limit, whose = limit_seconds(options.time), "platform_options.time"
    elif job.max_run is None:
        wanted = options.partition
        names = ",".join(wanted) if isinstance(wanted, list) else wanted
        found = limit_of(names or "", options.qos or "")
        if found is None:
            return []
        limit, whose = found
    else:
        return []
    asked, needed = notice_seconds(job.stop_grace), notice_seconds(job.stop_grace, limit)
    if needed >= asked:
        return []
    again = (
        ""
        if options.requeue == "always"
        else ", and is not started again if it has saved no checkpoint by then"
    )
    return [
        f"{whose}: the time limit is {limit / 60:g} min. The job begins to end {math.ceil(needed)} s before it, where "
        f"it would take {asked:g} s{again}. A longer limit: platform_options.time, another partition or QOS"
    ]


def limit_of_cluster(shell: Shell, names: str, qos: str) -> tuple[int, str] | None:
    """The seconds of the limit of a job that sets none, and whose it is; None if it is unknown or none.

    Args:
        names: of its partitions; empty for the default one.
        qos: its name; empty for none.
    """
    given = f" --partition={shlex.quote(names)}" if names else ""
    more = f"; sacctmgr -nP show qos {shlex.quote(qos)} format=Name,MaxWall" if qos else ""
    command = f"{CLEAN} sinfo --noheader --format='P|%P|%L|%l'{given} | sort -u{more}"
    try:
        lines = shell.run(command, timeout=CALL_SECONDS).text.splitlines()
    except PlatformError:
        return None
    limits = []
    for line in lines:
        kind, *columns = line.split("|")
        if kind == "P" and len(columns) == 3 and (names or columns[0].endswith("*")):
            seconds = seconds_of(columns[1]) or seconds_of(columns[2])  # the default, else the longest
            if seconds:
                limits.append((seconds, f"partition {columns[0].rstrip('*')}"))
        elif qos and kind == qos and columns and (seconds := seconds_of(columns[0])):
            limits.append((seconds, f"QOS {kind}"))
    return min(limits, default=None)
