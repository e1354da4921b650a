"""The Python versions in images: those that AWS built for each framework, and the one in a job's image.

``images.json`` lists them as the SageMaker SDK does. A version that is not listed, such as a newer one, may have any.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from cloudtrain.aws.algorithm_images import (
    ALGORITHM_FRAMEWORKS,
    algorithm_python,
    framework_python,
    is_algorithm_account,
)
from cloudtrain.aws.image_data import image_data, is_alias, numbers
from cloudtrain.errors import InvalidJob
from cloudtrain.spec import TrainingJob
from cloudtrain.spec.names import AUTO_IMAGE

Python = tuple[int, int]

_GENERIC: dict[str, Python] = {"py2": (2, 7), "py3": (3, 6)}
"""The names in AWS's image tags up to Python 3.6; later names have both numbers."""

_VERSION = re.compile(r"\d+\.\d+(?:\.\d+)?")
"""A version as in the SageMaker SDK: ``2.5.1``, or ``2.5`` for its newest patch version."""

_IN_TAG = re.compile(r"(?:^|[-_.])(?:py|python|cp)-?(\d)\.?(\d{1,2})(?=$|[-_.])")

_OF_AWS = re.compile(
    r"(?:(?P<account>\d{12})\.dkr\.ecr\.[\w.-]+|public\.ecr\.aws/deep-learning-containers)/"
    r"(?:(?:huggingface-)?(?:pytorch|tensorflow|mxnet)(?:-trcomp)?-training(?:-neuronx?)?"
    r"|sagemaker-(?:pytorch|mxnet|tensorflow-scriptmode|scikit-learn|xgboost))[:@](?P<tag>.*)"
)
"""AWS's training images. Copies in other accounts may have been changed."""


def check_python(image: str, version: str, python: str, name: str, field: str = "framework_version") -> None:
    """Raises InvalidJob if AWS built no such version of a framework, or not for this Python.

    Versions above all that are known are accepted: AWS may have built them since.

    Args:
        image: the key in ``images.json``.
        version: that of the framework, or those of two frameworks, separated by a blank.
        python: the job's ``py_version``.
        name: the framework and its version, for messages.
        field: the name of the field that has the version.
    """
    built = _pythons(image)
    of_version = None
    if all(_VERSION.fullmatch(part) for part in version.split(" ")):
        of_version = next((built[full] for full in reversed(built) if _matches(version, full)), None)
        if of_version is None and _is_newer(version, built):
            return
    if of_version is None:
        first, *rest = version.split(" ")
        pairs = [
            full.replace(" ", " with ") for full in built if any(rest) and is_alias(first, full.split()[0])
        ]
        known = pairs or dict.fromkeys(full.split()[0] for full in built)
        raise InvalidJob(
            f"{field}: AWS has no image of {name}",
            hint=f"Known: {', '.join(known)}. Or set the image: image_uri='...'.",
        )
    if python in of_version:
        return
    other = [full for full in built if python in built[full]]
    hint = f"Set py_version={of_version[-1]!r}"
    if other:
        nearest = min(other, key=lambda full: _distance(full, version))
        hint += f", or {field}={nearest.split()[0]!r}, which has {python}"
    raise InvalidJob(
        f"py_version: AWS built the image of {name} for {' and '.join(of_version)}, not for {python}",
        hint=f"{hint}. Or set the image: image_uri='...'.",
    )


def image_python(job: TrainingJob) -> Python | None:
    """The version of Python in the job's image; None if neither the image's name nor the job shows it."""
    uri = job.image_uri
    if uri == AUTO_IMAGE:
        return None
    if uri:
        repository, _, tag = uri.rpartition("/")[2].partition("@")[0].partition(":")
        if python := algorithm_python(repository, tag):
            return python
        found = _IN_TAG.search(tag) or (
            repository == "python" and re.match(r"(\d)\.(\d{1,2})(?=$|[-_.])", tag)
        )
        if found:
            return int(found[1]), int(found[2])
        if (match := _OF_AWS.fullmatch(uri)) and (generic := re.search(r"-(py[23])(?=$|-)", match["tag"])):
            return None if generic[1] == "py3" and "scikit-learn" in repository else _GENERIC[generic[1]]
    elif job.framework in ALGORITHM_FRAMEWORKS:
        return framework_python(job.framework, job.framework_version)
    elif job.framework and job.py_version in _GENERIC:
        return _GENERIC[job.py_version]
    declared = re.fullmatch(r"py(\d)(\d{1,2})", job.py_version or "")
    return (int(declared[1]), int(declared[2])) if declared else None


def has_toolkit(job: TrainingJob) -> bool | None:
    """Whether the job's image has SageMaker's training toolkit; None if it is not one of AWS's."""
    if not job.image_uri:
        return job.framework is not None
    match = _OF_AWS.fullmatch(job.image_uri)
    if match and re.search(r"-(?:ec2|ecs|eks)(?=$|-)", match["tag"]):
        return False
    accounts = image_data()["accounts"]
    account = match["account"] if match else ""
    is_known = (
        account is None
        or is_algorithm_account(account)
        or any(account in accounts[kind].values() for kind in ("dlc", "legacy"))
    )
    return is_known or None


def _pythons(image: str) -> dict[str, list[str]]:
    return {version: pythons.split() for version, pythons in image_data()["pythons"][image].items()}


def _is_newer(version: str, built: Iterable[str]) -> bool:
    """Whether a version is newer than all known ones; for two frameworks, whether one of them is."""
    known = [[numbers(part) for part in full.split()] for full in built]
    return any(
        numbers(part) > max(full[place] for full in known) for place, part in enumerate(version.split())
    )


def _matches(version: str, full: str) -> bool:
    wanted, known = version.split(), full.split()
    return len(wanted) == len(known) and all(map(is_alias, wanted, known))


def _distance(full: str, version: str) -> tuple[float, ...]:
    known, wanted = numbers(full.split()[0]), numbers(version.split()[0])
    return tuple(
        abs(one - (0 if two == float("inf") else two)) for one, two in zip(known, wanted, strict=False)
    )
