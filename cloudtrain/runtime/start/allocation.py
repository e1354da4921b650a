"""The hosts and slots of an allocation that this process already holds, from the variables of its scheduler."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from cloudtrain._dataclass import dataclass
from cloudtrain._system.patterns import pattern
from cloudtrain.contract.documents import MOST_HOSTS
from cloudtrain.contract.slurm_step import tasks_per_node
from cloudtrain.errors import InvalidJob

_PART = pattern(r"([^\[\],]*)(?:\[([0-9,-]+)\])?")


def expand_nodelist(text: str) -> list[str]:
    """The nodes in the order of the list, as ``scontrol show hostnames`` prints them.

    Raises ValueError if ``text`` is not such a list.
    """
    names = list(itertools.islice(_names(text), MOST_HOSTS + 1))
    if not names or len(names) > MOST_HOSTS:
        raise ValueError(f"{text[:100]!r} is not a list of nodes")
    return names


def _names(text: str) -> Iterator[str]:
    position = 0
    while position < len(text):
        choices: list[list[str]] = []
        while position < len(text) and text[position] != ",":
            found = _PART.match(text, position)
            if not found or found.end() == position:
                raise ValueError(f"{text[:100]!r} is not a list of nodes")
            choices.append([found[1]])
            if found[2]:
                choices.append(list(_numbers(found[2])))
            position = found.end()
        if not choices:
            raise ValueError(f"{text[:100]!r} is not a list of nodes")
        for parts in itertools.product(*choices):
            yield "".join(parts)
        position += 1


def _numbers(text: str) -> Iterator[str]:
    for part in text.split(","):
        first, _, last = part.partition("-")
        if not first.isdigit() or (last and not last.isdigit()) or (part.endswith("-")):
            raise ValueError(f"{text[:100]!r} is not a list of numbers")
        stop = int(last or first)
        if stop - int(first) > MOST_HOSTS:
            raise ValueError(f"{text[:100]!r} has too many numbers")
        for number in range(int(first), stop + 1):
            yield str(number).zfill(len(first))


@dataclass(frozen=True)
class Allocation:
    """Hosts with their slots, in the scheduler's order. Slots are None if the scheduler does not report them."""

    variable: str
    """The variable that names the hosts."""
    hosts: Sequence[tuple[str, int | None]]


def find_allocation(environ: Mapping[str, str]) -> Allocation | None:
    """The allocation that ``environ`` describes; None outside of an allocation.

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
    """Ignores SLURM_TASKS_PER_NODE unless tasks were requested: its value otherwise depends on Slurm's version."""
    variable = "SLURM_JOB_NODELIST"
    try:
        names = expand_nodelist(nodes)
    except ValueError as error:
        raise _broken(variable, str(error)) from None
    is_requested = any(
        environ.get(name) for name in ("SLURM_NTASKS", "SLURM_NPROCS", "SLURM_NTASKS_PER_NODE")
    )
    tasks = environ.get("SLURM_TASKS_PER_NODE", "") if is_requested else ""
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
    """The allocation from ``words``, in which names and numbers of slots alternate."""
    names, counts = words[::2], words[1::2]
    if len(names) != len(counts) or not all(count.isdigit() for count in counts):
        raise _broken(variable, f"{' '.join(words)[:100]!r}")
    pairs = zip(names, counts)
    return Allocation(variable, [(name, int(count)) for name, count in pairs])


def _counted(variable: str, names: Sequence[str]) -> Allocation:
    """The allocation from one name for each slot. If every host is listed once, the slots are unknown."""
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
