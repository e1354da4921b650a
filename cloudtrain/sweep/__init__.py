"""Sweeps: many jobs with one description, whose hyperparameters are chosen to find the best value of a metric.

A trial is an ordinary job. `controller` chooses, submits and watches trials, in a process that outlives the terminal.
The source of truth about a sweep is an append-only file of events (`journal`). Everything else, such as Optuna's study,
is rebuilt from them.
"""

from __future__ import annotations

from cloudtrain._lazy import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cloudtrain.sweep.start import Sweep as Sweep
    from cloudtrain.sweep.started import StartedSweep as StartedSweep

__getattr__, __dir__, __all__ = lazy(
    __name__, {"cloudtrain.sweep.start": "Sweep", "cloudtrain.sweep.started": "StartedSweep"}
)
