"""Copies of the state in shared memory, which outlive the process that saved them.

The runtime of a host makes a folder for them in memory (see `cloudtrain.runtime.checkpoint_memory`). The ranks write
their copies there and restore from them. If the job ends or restarts before the newest one is committed, the runtime
commits it.
"""

from __future__ import annotations

__all__: list[str] = []
