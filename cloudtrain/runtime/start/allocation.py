"""The hosts and slots of an allocation that this process already holds, from the variables of its scheduler."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cloudtrain.contract.slurm_step import tasks_per_node
from cloudtrain.errors import InvalidJob
from cloudtrain.runtime.start.nodelist import expand_nodelist


@dataclass(frozen=True)
class Allocation:
    """Hosts with their slots, in the scheduler's order. Slots are None if the scheduler does not say."""

    variable: str
    """The variable that names the hosts."""
    hosts: Sequence[tuple[str, int | None]]


def find_allocation(environ: Mapping[str, str]) -> Allocation | None:
    """The allocation that ``environ`` describes; None outside of one.

    Raises InvalidJob if the variables of a scheduler cannot be understood, or its file cannot be read.
    """
    if nodes := environ.get("SLURM_JOB_NODELIST") or environ.get("SLURM_NODELIST"):
        return _slurm(nodes, environ)
    for variable in ("PBS_NODEFILE", "COBALT_NODEFILE"):
        if path := environ.get(variable):
            return _counted(variable, _read(variable, path))
    if text := environ.get("LSB_MCPU_HOSTS"):
        return _lsf("LSB_MCPU_HOSTS", text.split())
    if text := environ.get("LSB_HOSTS"):
        return _counted("LSB_HOSTS", text.split())
    return None


def _slurm(nodes: str, environ: Mapping[str, str]) -> Allocation:
    """SLURM_TASKS_PER_NODE counts only if tasks were asked for: otherwise, it depends on Slurm's version."""
    variable = "SLURM_JOB_NODELIST"
    try:
        names = expand_nodelist(nodes)
    except ValueError as error:
        raise _broken(variable, str(error)) from None
    asked = any(environ.get(name) for name in ("SLURM_NTASKS", "SLURM_NPROCS", "SLURM_NTASKS_PER_NODE"))
    tasks = environ.get("SLURM_TASKS_PER_NODE", "") if asked else ""
    if not tasks:
        return Allocation(variable, [(name, None) for name in names])
    try:
        counts = tasks_per_node(tasks)
    except ValueError:
        raise _broken("SLURM_TASKS_PER_NODE", f"{tasks[:100]!r}") from None
    if len(counts) != len(names):
        raise _broken("SLURM_TASKS_PER_NODE", f"{tasks[:100]!r} is not of {len(names)} hosts")
    return Allocation(variable, list(zip(names, counts)))


def _lsf(variable: str, words: Sequence[str]) -> Allocation:
    """Names and numbers of slots alternate."""
    names, counts = words[::2], words[1::2]
    if len(names) != len(counts) or not all(count.isdigit() for count in counts):
        raise _broken(variable, f"{' '.join(words)[:100]!r}")
    pairs = zip(names, counts)
    return Allocation(variable, [(name, int(count)) for name, count in pairs])


def _counted(variable: str, names: Sequence[str]) -> Allocation:
    """A name for each slot. If every host is named once, that says nothing about slots."""
    if not names:
        raise _broken(variable, "it names no host")
    slots = Counter(names)
    is_counted = len(slots) < len(names)
    return Allocation(variable, [(name, count if is_counted else None) for name, count in slots.items()])


def _read(variable: str, path: str) -> list[str]:
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise _broken(variable, f"{path} cannot be read: {error.strerror}") from None
    return [words[0] for line in text.splitlines() if (words := line.split())]


def _broken(variable: str, why: str) -> InvalidJob:
    return InvalidJob(
        f"the variable {variable} of this allocation is not understood: {why}",
        hint="Name the hosts instead: platform_options.hosts, or -H.",
    )
