"""Names of tuning jobs. They are shorter than the names of training jobs, which begin with them."""

from __future__ import annotations

import re

from cloudtrain.errors import InvalidJob
from cloudtrain.spec import new_job_name
from cloudtrain.spec.names import clean

MAX_LENGTH = 32
"""https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_CreateHyperParameterTuningJob.html"""


def check_tuning_job_name(name: str) -> None:
    """Raises InvalidJob if SageMaker would refuse ``name``."""
    if len(name) > MAX_LENGTH or not re.fullmatch(r"[a-zA-Z0-9](-*[a-zA-Z0-9])*", name):
        raise InvalidJob(
            f"tuning job name {name!r}: 1 to {MAX_LENGTH} letters, digits and inner hyphens are allowed",
            hint=f"For example: {clean(name)[:MAX_LENGTH].strip('-') or 'my-search'}",
        )


def base_of(name: str) -> str:
    """The start of a generated name, also of the SageMaker SDK; another name as it is.

    >>> base_of("pytorch-261128-042310-a1b2"), base_of("pytorch-221128-0423")
    ('pytorch', 'pytorch')
    """
    return re.sub(r"-\d{6}-(\d{6}-\w{4}|\d{4})$", "", name)


def new_tuning_job_name(base: str) -> str:
    """A readable and unique name: ``base``, shortened if necessary, and the end of a training job's name.

    >>> len(new_tuning_job_name("pytorch-training"))
    32
    """
    end = new_job_name("x").removeprefix("x-20")
    return f"{clean(base)[: MAX_LENGTH - len(end) - 1].strip('-') or 'tuning'}-{end}"
