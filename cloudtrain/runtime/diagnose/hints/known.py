"""All hints, by subject. Imported only when a rank has failed."""

from __future__ import annotations

from cloudtrain.runtime.diagnose.hints import (
    arguments,
    channels,
    files,
    gpu_failures,
    gpus,
    imports,
    keras_3,
    launchers,
    lightning,
    mxnet,
    network,
    numpy_2,
    ports,
    programs,
    pytorch,
    tensorflow_2,
)
from cloudtrain.runtime.diagnose.hints.table import Failure, Hint, JobFacts, first_that_applies

SUBJECTS: dict[str, tuple[Hint, ...]] = {
    "Channels and variables": channels.HINTS,
    "Launchers": launchers.HINTS,
    "Arguments": arguments.HINTS,
    "Failures of GPUs": gpu_failures.HINTS,
    "GPUs and NCCL": gpus.HINTS,
    "Ports": ports.HINTS,
    "Network": network.HINTS,
    "Files": files.HINTS,
    "Programs and notebooks": programs.HINTS,
    "PyTorch": pytorch.HINTS,
    "Lightning": lightning.HINTS,
    "NumPy 2": numpy_2.HINTS,
    "Keras 3": keras_3.HINTS,
    "TensorFlow 2": tensorflow_2.HINTS,
    "MXNet 2": mxnet.HINTS,
    "Imports": imports.HINTS,
}
"""In order of precedence: what is known of one library goes before what is known of all modules."""


def find_hint(failure: Failure, facts: JobFacts) -> tuple[Hint, str] | None:
    """The hint for a failure, and its text, filled in; None if there is none."""
    return first_that_applies([hint for hints in SUBJECTS.values() for hint in hints], failure, facts)
