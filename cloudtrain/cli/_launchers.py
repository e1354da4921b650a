"""The launcher options of ``cloudtrain submit``, which refine the job file's ``distribution``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cloudtrain.errors import InvalidJob

LAUNCHERS = {"torchrun": "torch_distributed", "mpirun": "mpi", "horovod": "horovod"}
"""The options that choose a launcher, and the ``distribution`` of each."""

COUNTED = (*LAUNCHERS.values(), "processes", "agent")
"""The distributions that have ``processes_per_host``."""

NOT_LAUNCHERS = ("instance_groups", "smdistributed")
"""Fields of ``distribution`` that can be combined with a launcher."""


def chosen_launcher(options: Mapping[str, Any], distribution: Any) -> str:
    """The distribution that the options choose or refine: by default that of the job, else ``processes``."""
    flags = [kind for name, kind in LAUNCHERS.items() if options[name]]
    enabled = _enabled(distribution)
    return flags[0] if flags else enabled[0] if enabled else "processes"


def distribution_of(options: Mapping[str, Any], distribution: Any, file: str | None) -> Any:
    """``distribution``, with the launcher and the number of ranks that the options choose.

    Args:
        distribution: that of the job file, or the default of the config file.
        file: the job file that contains it; None if it is a default, which an option may replace.

    Raises:
        InvalidJob: the job file chooses another launcher, or one whose ranks cannot be counted.
    """
    processes = options["processes_per_host"]
    flag = next((f"--{name}" for name in LAUNCHERS if options[name]), None)
    if (flag is None and processes is None) or not isinstance(distribution, (dict, type(None))):
        return distribution  # validation reports other types
    kind = chosen_launcher(options, distribution)
    others = [name for name in _enabled(distribution) if name != kind]
    if flag and others and file:
        name = Path(file).name
        raise InvalidJob(
            f"{name} chooses the distribution {others[0]}, but {flag} chooses {kind}",
            hint=f"Remove it in {name}, or drop {flag}.",
        )
    if kind not in COUNTED:
        raise InvalidJob(
            f"--processes-per-host: the distribution {kind} sets the number of ranks itself",
            hint="Drop --processes-per-host, or choose another distribution.",
        )
    fields = {name: value for name, value in (distribution or {}).items() if name not in others}
    given = fields.get(kind) or {}
    if not isinstance(given, dict):
        return distribution
    refined = {name: value for name, value in given.items() if name != "enabled"}
    if processes is not None:
        refined["processes_per_host"] = processes
    return {**fields, kind: refined}


def _enabled(distribution: Any) -> list[str]:
    """The launchers that ``distribution`` enables."""
    if not isinstance(distribution, dict):
        return []
    return [
        name
        for name, options in distribution.items()
        if name not in NOT_LAUNCHERS and isinstance(options, dict) and options.get("enabled", True)
    ]
