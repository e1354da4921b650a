"""Groups of equal stacks as text."""

from __future__ import annotations

from cloudtrain.contract.text import counted, escape_line
from cloudtrain.observe.stacks import StackGroup


def title(group: StackGroup) -> str:
    """Such as ``rank 7 on algo-2: open at data.py:12``, ``1,023 ranks (0-6,8-1023): all_reduce at train.py:41``."""
    if group.process:
        who = f"{counted(group.count, 'process')} {group.process} of rank {group.ranks}"
    elif group.count == 1:
        who = f"rank {group.ranks}"
    else:
        who = f"{counted(group.count, 'rank')} ({group.ranks})"
    where = f" on {group.hosts[0]}" if len(group.hosts) == 1 else ""
    return escape_line(f"{who}{where}: {'; '.join(filter(None, (group.where, group.state)))}")
