"""Chooses what starts a job's script in its container: cloudtrain's runtime, or the image's own program."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from cloudtrain.aws.image_pythons import has_toolkit, image_python
from cloudtrain.errors import InvalidJob
from cloudtrain.spec import TrainingJob

OLDEST = (3, 9)
"""The first version of Python that runs cloudtrain's runtime."""


def choose_runtime(job: TrainingJob) -> Literal["cloudtrain", "toolkit"]:
    """The job's ``runtime``, or the one that runs in its image.

    Raises:
        InvalidJob: the image's Python is too old for cloudtrain's runtime, and the toolkit is missing or excluded.
    """
    # without a script there is nothing for cloudtrain's runtime to run: the image has its own program
    wanted = job.runtime or ("toolkit" if not job.entry_point or _has_library(job) else "cloudtrain")
    if wanted == "toolkit" or not _is_old(job):
        return wanted
    if _may_have_toolkit(job):
        if not job.runtime:
            return "toolkit"
        hint = "Leave runtime out: SageMaker's toolkit in the image then starts the script."
    else:
        hint = (
            'Use an image with a newer Python, or runtime="toolkit" if it has SageMaker\'s training toolkit.'
        )
    raise InvalidJob(
        f"runtime: cloudtrain's needs Python 3.9 or newer, and the image has {_python(job)}", hint=hint
    )


def runtime_warnings(job: TrainingJob) -> list[str]:
    """A warning of one sentence if the image's Python, or a library of the image, decides what starts the script."""
    if job.runtime or not job.entry_point:
        return []
    if _has_library(job):
        return [
            "AWS's distributed libraries and its compiler are part of its images: SageMaker's toolkit starts the "
            'script, as with runtime="toolkit"'
        ]
    if not _is_old(job) or not _may_have_toolkit(job):
        return []
    return [
        f"the image has Python {_python(job)}, too old for cloudtrain's runtime: SageMaker's toolkit starts the "
        'script, as with runtime="toolkit"' + ("" if has_toolkit(job) else ". The image must have it")
    ]


@contextmanager
def explained(job: TrainingJob) -> Iterator[None]:
    """Adds the reason why the toolkit runs a job to an error about what the toolkit cannot do."""
    try:
        yield
    except InvalidJob as error:
        if not runtime_warnings(job) or _has_library(job):
            raise
        raise InvalidJob(
            f"{error.message} (it starts the script because cloudtrain's runtime needs Python 3.9 or newer, and the "
            f"image has {_python(job)})",
            hint="Choose a framework_version with a newer Python, or leave out what the toolkit cannot do.",
        ) from None


def _has_library(job: TrainingJob) -> bool:
    """Whether the job uses a library or a compiler that only the toolkit of AWS's images starts."""
    enabled = job.distribution.enabled if job.distribution else {}
    libraries = {"smdistributed", "pytorchddp", "pytorchxla"} & {*enabled}
    return bool(has_toolkit(job) and (libraries or job.compiler_config))


def _may_have_toolkit(job: TrainingJob) -> bool:
    """Whether the image has the toolkit, or may have it as the user's own image for a framework or SageMaker."""
    found = has_toolkit(job)
    return bool(found or (found is None and (job.framework or job.platform == "sagemaker")))


def _is_old(job: TrainingJob) -> bool:
    python = image_python(job)
    return python is not None and python < OLDEST


def _python(job: TrainingJob) -> str:
    return ".".join(map(str, image_python(job) or ()))
