"""``HOROVOD_TIMELINE``, `start_timeline` and `stop_timeline`, for all frameworks.

As in Horovod, rank 0 writes the given file. Every other rank writes its own file next to it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cloudtrain.distributed.errors import InvalidArgument, NotInitialized
from cloudtrain.distributed.options import cycle_seconds, flag
from cloudtrain.distributed.world import World
from cloudtrain.observe.timeline import recorder
from cloudtrain.observe.timeline.clock import Ask

TIMELINE = "HOROVOD_TIMELINE"
MARK_CYCLES = "HOROVOD_TIMELINE_MARK_CYCLES"
DYNAMIC = "DYNAMIC"
"""Horovod's value for a timeline that only the script starts."""


@dataclass
class _Attached:
    """The rank that is recorded between ``init`` and ``shutdown``."""

    world: World
    ask: Ask | None


_attached: _Attached | None = None
_times_begun = 0


def attach(world: World, ask: Ask | None, environ: Mapping[str, str] = os.environ) -> None:
    """Called by ``init``: start recording if `TIMELINE` names a file.

    Args:
        ask: requests the time of rank 0; None without other ranks.

    Raises:
        InvalidArgument: the file cannot be written.
    """
    global _attached, _times_begun
    _attached = _Attached(world, ask)
    path = environ.get(TIMELINE, "")
    if path and path.upper() != DYNAMIC:
        # After an elastic reset, the same processes initialize again; each time has its own files.
        _times_begun += 1
        start = Path(path)
        if _times_begun > 1:
            start = start.with_name(f"{start.stem}.{_times_begun}{start.suffix}")
        _start(_attached, start, flag(environ, MARK_CYCLES), f"{TIMELINE}={path}", environ)


def detach() -> None:
    """Stop recording. Called before the ranks disconnect, because rank 0 sends its time once more."""
    global _attached
    _attached = None
    recorder.stop()


def start_timeline(file_path: str | os.PathLike[str], mark_cycles: bool = False) -> None:
    """Record the collectives of this rank from now on. Call it on all ranks.

    Ends a recording in progress. Unlike in Horovod, ``HOROVOD_TIMELINE=DYNAMIC`` is not needed.

    Args:
        file_path: the path of rank 0's file. Rank 1 writes ``timeline.rank1.json`` instead of ``timeline.json``, and so
            on. An existing file is overwritten, and its folder created. ``cloudtrain timeline`` merges the files.
        mark_cycles: mark where Horovod's cycles would start.

    Raises:
        NotInitialized: before ``init``.
        InvalidArgument: the file cannot be written.
    """
    if _attached is None:
        raise NotInitialized
    _start(_attached, Path(file_path), mark_cycles, f"start_timeline({str(file_path)!r})", os.environ)


def stop_timeline() -> None:
    """Stop recording. The file is complete on return. Raises NotInitialized before ``init``."""
    if _attached is None:
        raise NotInitialized
    recorder.stop()


def _start(attached: _Attached, path: Path, mark_cycles: bool, what: str, environ: Mapping[str, str]) -> None:
    rank = attached.world.rank
    if rank:
        path = path.with_name(f"{path.stem}.rank{rank}{path.suffix}")
    recorder.stop()  # it may write the same file
    try:
        timeline = recorder.Timeline(
            path,
            rank,
            attached.world.size,
            attached.ask,
            mark_cycles=mark_cycles,
            cycle_ns=int(cycle_seconds(environ) * 1e9),
        )
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidArgument(
            f"{what}: {path} cannot be written: {reason}", hint="Name a file that can."
        ) from error
    recorder.start(timeline)
