"""Sweeps: many jobs of one description, whose hyperparameters are chosen to find the best value of a metric.

A trial is a job like any other. `controller` chooses, submits and watches trials, in a process that outlives the
terminal. The events of a sweep, in a file that is only appended to, are the truth about it (`journal`). Everything
else, such as the study of Optuna, is rebuilt from them.
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
