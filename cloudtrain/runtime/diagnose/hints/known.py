"""All hints, by subject. Imported only when a rank has failed."""

from __future__ import annotations

from cloudtrain.runtime.diagnose.hints import libraries, machine, script
from cloudtrain.runtime.diagnose.hints.table import Failure, Hint, JobFacts, first_that_applies

SUBJECTS: dict[str, tuple[Hint, ...]] = {
    "Channels and variables": script.CHANNELS,
    "Launchers": machine.LAUNCHERS,
    "Arguments": script.ARGUMENTS,
    "Failures of GPUs": machine.GPU_FAILURES,
    "GPUs and NCCL": machine.GPUS,
    "Ports": machine.PORTS,
    "Network": machine.NETWORK,
    "Files": script.FILES,
    "Programs and notebooks": script.PROGRAMS,
    "PyTorch": libraries.PYTORCH,
    "Lightning": libraries.LIGHTNING,
    "NumPy 2": libraries.NUMPY_2,
    "Keras 3": libraries.KERAS_3,
    "TensorFlow 2": libraries.TENSORFLOW_2,
    "MXNet 2": libraries.MXNET,
    "Imports": script.IMPORTS,
}
"""The hints in order of precedence: those for one library precede those for all modules."""


def find_hint(failure: Failure, facts: JobFacts) -> tuple[Hint, str] | None:
    """The hint for a failure, and its text, filled in; None if there is none."""
    return first_that_applies([hint for hints in SUBJECTS.values() for hint in hints], failure, facts)
