"""The images of scikit-learn, XGBoost and AWS's own algorithms, such as ``kmeans``, by version, scope and region.

The tag of a version that is newer than ``algorithm_images.json`` follows that of the newest known one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from cloudtrain.aws.image_data import image_data, image_instance_type, instance_family, registry
from cloudtrain.errors import InvalidJob, nearest
from cloudtrain.spec import TrainingJob

DATA = Path(__file__).with_name("algorithm_images.json")
"""The accounts by region, and the images by name, scope and version. The file names its date and source."""

ALGORITHM_FRAMEWORKS = ("sklearn", "xgboost")
"""The frameworks whose images are in `DATA`. Its other images are AWS's own algorithms, which take no script."""

_PYTHON = "py3"
"""The only ``py_version`` that these images have."""

_PYTHONS = {
    "sagemaker-scikit-learn": {
        "0.20.0": (3, 7),
        "0.23-1": (3, 7),
        "1.0-1": (3, 8),
        "1.2-1": (3, 9),
        "1.4-2": (3, 10),
    },
    "sagemaker-xgboost": {
        **dict.fromkeys(("0.90-1", "0.90-2", "1.0-1", "1.2-1", "1.2-2", "1.3-1"), (3, 7)),
        "1.5-1": (3, 8),
        "1.7-1": (3, 9),
        "3.0-5": (3, 10),
    },
}
"""The Python of images, by repository and version, from the containers' Dockerfiles."""

_GRAVITON = ("m6g", "m6gd", "c6g", "c6gd", "c6gn", "c7g", "r6g", "r6gd")
"""Families of instances with AWS's ARM processors."""

_GRAVITON_SCOPE = "inference_graviton"

_BROKEN = {"xgboost": {"1.1": "it cannot predict LIBSVM data with fewer features than it was trained on"}}
"""Versions that AWS has no image of, and why."""

_OWN_IMAGE = "Or set the image: image_uri='...'."


def algorithm_names() -> tuple[str, ...]:
    """The names that `algorithm_image` accepts."""
    return tuple(image_data(DATA)["images"])


def algorithm_image(
    name: str,
    region: str,
    version: str | None = None,
    py_version: str | None = None,
    instance_type: str | None = None,
    image_scope: str | None = None,
) -> str:
    """The URI of the image of scikit-learn, XGBoost, or one of AWS's own algorithms.

    Args:
        name: one of `algorithm_names`.
        version: ignored for AWS's own algorithms, whose only tag is ``1``. ``sklearn`` and ``xgboost`` need a version,
            unless ``image_scope`` is ``training`` or ``inference``: the default is then the SageMaker SDK's.
        instance_type: what the image will run on, for ``sklearn`` and ``xgboost``.
        image_scope: ``training``, ``inference`` or ``inference_graviton``.

    Raises:
        InvalidJob: AWS has no such image, or none in this region.
    """
    scopes: dict[str, dict[str, str]] = image_data(DATA)["images"][name]
    family = instance_family(instance_type or "")
    scope = image_scope or "training"
    if family in _GRAVITON:
        scope = _GRAVITON_SCOPE
    if scope not in scopes:
        raise InvalidJob(
            f"image_scope: {name} has no image for {scope!r}", hint=f"It has: {', '.join(scopes)}."
        )
    if scope == _GRAVITON_SCOPE and instance_type and family not in _GRAVITON:
        raise InvalidJob(
            f"instance_type: {instance_type} does not have AWS's ARM processors",
            hint="Choose for example ml.c6g.xlarge, or image_scope='inference'.",
        )
    images = scopes[scope]
    if len(images) == 1:
        version = next(iter(images))
    version = version or _default(name, scopes, image_scope)
    kind, _, image = _image(name, scopes, scope, version).partition("/")
    if image.endswith(_PYTHON):
        _check_python(name, py_version)
    _check_instances(name, image, version, instance_type or "", family)
    account = image_data(DATA)["accounts"][kind].get(region)
    if account is None:
        raise InvalidJob(f"image_uri: the account of {name} in {region} is not known", hint=_OWN_IMAGE)
    return f"{registry(account, region)}/{image}"


def framework_image(job: TrainingJob, region: str) -> str:
    """The URI of the training image of a job with one of `ALGORITHM_FRAMEWORKS`. Raises InvalidJob."""
    assert job.framework
    kind = image_instance_type(job)
    if not job.framework_version:
        newest = _newest(image_data(DATA)["images"][job.framework]["training"])
        raise InvalidJob(
            f"framework_version: {job.framework} needs it, or an image_uri",
            hint=f"For example: framework_version='{newest}'.",
        )
    _check_python(job.framework, job.py_version)
    if job.framework == "sklearn" and job.host_count > 1:
        raise InvalidJob(
            f"instance_count: the toolkit of sklearn trains on 1 instance, not {job.host_count}",
            hint="Leave instance_count out.",
        )
    if instance_family(kind) in _GRAVITON:
        raise InvalidJob(
            f"instance_type: AWS has no image of {job.framework} for training on {kind}",
            hint=f"Choose an instance with an Intel or AMD processor, for example ml.m5.xlarge. {_OWN_IMAGE}",
        )
    return algorithm_image(job.framework, region, job.framework_version, job.py_version, kind, "training")


def algorithm_python(repository: str, tag: str) -> tuple[int, int] | None:
    """The version of Python in an image of scikit-learn or XGBoost, if it is known."""
    versions = _PYTHONS.get(repository, {})
    return next((python for version, python in versions.items() if re.match(f"{version}(-|$)", tag)), None)


def framework_python(framework: str, version: str | None) -> tuple[int, int] | None:
    """The version of Python in the image of one of `ALGORITHM_FRAMEWORKS`, if it is known."""
    image = image_data(DATA)["images"][framework]["training"].get(version, "")
    return algorithm_python(*image.rpartition("/")[2].split(":")) if image else None


def is_algorithm_account(account: str) -> bool:
    """Whether the AWS account holds images of scikit-learn, XGBoost or AWS's own algorithms."""
    return any(account in accounts.values() for accounts in image_data(DATA)["accounts"].values())


def _default(name: str, scopes: Mapping[str, Mapping[str, str]], image_scope: str | None) -> str:
    """The version that the SageMaker SDK chooses, which for XGBoost is its first."""
    if image_scope is None:
        hint = f"For example: version='{_newest(scopes['training'])}'."
        raise InvalidJob(f"version: {name} has several", hint=hint)
    return "1" if "1" in scopes[image_scope] else _newest(scopes[image_scope])


def _image(name: str, scopes: Mapping[str, Mapping[str, str]], scope: str, version: str) -> str:
    images = scopes[scope]
    found = images.get(version)
    if found:
        return found
    newest = _newest(images)
    is_new = re.match(r"\d", version) and _numbers(version) > _numbers(_newest(scopes["training"]))
    if is_new and scope != _GRAVITON_SCOPE:
        return images[newest].replace(newest, version)
    same = [known for known in images if known.startswith(f"{version}-")]
    why = _BROKEN.get(name, {}).get(version.split("-")[0])
    raise InvalidJob(
        f"framework_version: AWS has no image of {name} {version}{f': {why}' if why else ''}",
        hint=f"{nearest(version, same or images)} {_OWN_IMAGE}",
    )


def _check_python(name: str, py_version: str | None) -> None:
    if py_version not in (None, _PYTHON):
        raise InvalidJob(
            f"py_version: the images of {name} have {_PYTHON}, not {py_version}", hint=_OWN_IMAGE
        )


def _check_instances(name: str, image: str, version: str, instance_type: str, family: str) -> None:
    if family.startswith("trn"):
        raise InvalidJob(f"instance_type: AWS has no image of {name} for {instance_type}", hint=_OWN_IMAGE)
    if "-cpu-" in image and (family[:1] in ("g", "p") or instance_type == "local_gpu"):
        raise InvalidJob(
            f"instance_type: AWS has no image of {name} {version} for {instance_type}, only for CPUs",
            hint=f"Choose an instance without GPUs, for example ml.m5.xlarge. {_OWN_IMAGE}",
        )


def _newest(images: Iterable[str]) -> str:
    return max(images, key=_numbers)


def _numbers(version: str) -> tuple[int, ...]:
    """``"1.4-2"`` as ``(1, 4, 2)``; a name such as ``latest`` is less than all numbers."""
    return tuple(int(part) for part in re.findall(r"\d+", version))
