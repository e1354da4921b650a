"""The images of AWS's Deep Learning Containers, by framework, version, Python and region.

The URI of a version that is newer than ``images.json`` follows the pattern, so new versions are not refused.
"""

from __future__ import annotations

import re

from cloudtrain.aws.algorithm_images import ALGORITHM_FRAMEWORKS, framework_image
from cloudtrain.aws.image_data import (
    ECR,
    image_data,
    image_instance_type,
    instance_family,
    is_alias,
    numbers,
    registry,
)
from cloudtrain.aws.image_pythons import check_python
from cloudtrain.errors import InvalidJob
from cloudtrain.spec import TrainingJob

_REPOSITORIES = {
    "pytorch": (("1.2", "pytorch-training"), ("0", "sagemaker-pytorch")),
    "tensorflow": (
        ("1.13", "tensorflow-training"),
        ("1.11", "sagemaker-tensorflow-scriptmode"),
        ("0", "sagemaker-tensorflow"),
    ),
    "mxnet": (("1.4.1", "mxnet-training"), ("0", "sagemaker-mxnet")),
}
"""The repositories of each framework, with the first version in each."""

_PYTHON_2 = {
    "tensorflow-training": ((1, 14), "sagemaker-tensorflow-scriptmode"),
    "mxnet-training": ((1, 5), "sagemaker-mxnet"),
}
"""The repositories of images for Python 2, for versions below the given one."""

_NOT_ON_P2 = {"pytorch": (1, 13), "tensorflow": (2, 12)}
"""The first versions whose images do not run on p2 instances."""

_OWN_IMAGE = "Or set the image: image_uri='...'."

_REGION_HINTS = {
    "profiler": "Remove profile_params, or use another region.",
    "rules": "Remove rules, or use another region.",
}


def training_image(job: TrainingJob, region: str) -> str:
    """The URI of the image of ``job``: its ``image_uri``, or AWS's image for its framework.

    Raises:
        InvalidJob: the job has no image and no framework, or AWS has no image for its instances or region.
    """
    if job.image_uri:
        return job.image_uri
    if job.framework is None:
        raise InvalidJob(
            "image_uri: SageMaker needs an image, or a framework to choose one for",
            hint="Set image_uri, or for example framework='pytorch', framework_version='2.5.1', py_version='py311'.",
        )
    _check_preferences(job)
    if job.compiler_config and job.framework != "tensorflow":
        return _uri("dlc", region, *_compiler(job))
    if job.framework == "huggingface":
        return _uri("dlc", region, *_huggingface(job))
    if job.framework in ALGORITHM_FRAMEWORKS:
        return framework_image(job, region)
    version, python = job.framework_version, job.py_version
    if not version or not python:
        raise InvalidJob(
            f"framework_version and py_version: {job.framework} needs both, or an image_uri",
            hint="For example: framework_version='2.5.1', py_version='py311'.",
        )
    _check_instances(job, job.framework, version)
    if _has_model_parallel(job):
        library = "SageMaker's model parallel library"
        check_python("pytorch-smp", version, python, f"{job.framework} {version} with {library}")
        return _uri(
            "smp", region, "smdistributed-modelparallel", f"{version}-gpu-{python}-{_cuda(job, version)}"
        )
    if _family(job).startswith("trn"):
        return _uri("dlc", region, *_neuron(job, version, python))
    repository = _repository(job.framework, version, python)
    check_python(job.framework, version, python, f"{job.framework} {version}")
    tag = f"{version}-{'gpu' if has_gpus(job) else 'cpu'}-{python}"
    suffix = image_data()["p4d"].get(f"{repository}:{tag}")
    if suffix and (_family(job) == "p4d" or (job.distribution and job.distribution.smdistributed)):
        tag += f"-{suffix}"
    return _uri("legacy" if repository.startswith("sagemaker-") else "dlc", region, repository, tag)


def profiler_image(region: str) -> str:
    """The URI of the image of SageMaker Profiler. Raises InvalidJob if the region has none."""
    return _uri("profiler", region, "detailed-profiler-processing", "latest")


def rules_image(region: str) -> str:
    """The URI of the image that evaluates Debugger's rules. Raises InvalidJob if the region has none."""
    return _uri("rules", region, "sagemaker-debugger-rules", "latest")


def has_gpus(job: TrainingJob) -> bool:
    """Whether the instances that select the image have NVIDIA GPUs."""
    return _family(job)[:1] in ("g", "p")


def region_warnings(job: TrainingJob, region: str) -> list[str]:
    """A warning, one sentence, if the image of ``job`` is in ECR in another region than the job."""
    found = ECR.fullmatch(job.image_uri or "")
    if not found or found["region"] == region:
        return []
    return [
        f"image_uri: the image is in {found['region']}, and the job runs in {region}: SageMaker takes images "
        "of the job's region only"
    ]


def _check_preferences(job: TrainingJob) -> None:
    """Raises InvalidJob if no image of AWS runs on all instance types that the job accepts."""
    kinds: dict[str, str] = {}
    for preference in job.instance_preferences:
        family = re.sub(r"^ml[._]", "", preference.instance_type)
        kinds.setdefault(
            "trn" if family.startswith("trn") else "gpu" if family[:1] in "gp" else "cpu", family
        )
    if len(kinds) > 1:
        one, other = [*kinds.values()][:2]
        raise InvalidJob(
            f"instance_preferences: AWS has no image of {job.framework} for both ml.{one} and ml.{other}",
            hint=f"Choose types that are all with or all without GPUs. {_OWN_IMAGE}",
        )


def has_data_parallel(job: TrainingJob) -> bool:
    """Whether the image of the job's framework and version has SageMaker's data parallel library."""
    framework, version = job.framework, job.framework_version
    if framework == "huggingface":
        framework = "tensorflow" if job.tensorflow_version else "pytorch"
        version = job.tensorflow_version or job.pytorch_version
    return version in image_data()["dataparallel"].get(framework, "").split()


def _repository(framework: str, version: str, python: str) -> str:
    name = next(name for first, name in _REPOSITORIES[framework] if numbers(version) >= _parts(first))
    if framework == "tensorflow" and numbers(version) < (1, 11):
        raise InvalidJob(
            f"framework_version: the images of TensorFlow {version} cannot run scripts", hint=_OWN_IMAGE
        )
    below, longer = _PYTHON_2.get(name, ((), name))
    return longer if python == "py2" and numbers(version) < below else name


def _check_instances(job: TrainingJob, framework: str, version: str) -> None:
    """Raises InvalidJob if AWS's images of the framework do not run on the instances."""
    family = _family(job)
    if family.startswith("inf"):
        raise InvalidJob(
            f"instance_type: AWS has no training image for {image_instance_type(job)}: Inferentia is for inference",
            hint=f"Choose an instance with GPUs or Trainium, for example ml.g5.xlarge. {_OWN_IMAGE}",
        )
    first = _NOT_ON_P2.get(framework)
    if family == "p2" and first and numbers(version) >= first:
        raise InvalidJob(
            f"instance_type: AWS's images of {framework} {version} do not run on {image_instance_type(job)}",
            hint=f"Choose an instance with newer GPUs, for example ml.g5.xlarge. {_OWN_IMAGE}",
        )


def _parts(version: str) -> tuple[float, ...]:
    return tuple(int(part) for part in version.split("."))


def _huggingface(job: TrainingJob) -> tuple[str, str]:
    framework = "tensorflow" if job.tensorflow_version else "pytorch"
    base, version = job.tensorflow_version or job.pytorch_version, job.transformers_version
    if not base or not version or not job.py_version or (job.tensorflow_version and job.pytorch_version):
        raise InvalidJob(
            "transformers_version, py_version, and one of pytorch_version and tensorflow_version:"
            " huggingface needs them, or an image_uri",
            hint="For example: transformers_version='4.49.0', pytorch_version='2.5.1', py_version='py311'.",
        )
    if not has_gpus(job):
        raise InvalidJob(
            f"instance_type: AWS has no Hugging Face image for {image_instance_type(job)}, only for GPUs",
            hint=f"Choose an instance with GPUs, for example ml.g5.xlarge. {_OWN_IMAGE}",
        )
    name = f"Hugging Face {version} with {framework} {base}"
    check_python(
        f"huggingface-{framework}", f"{version} {base}", job.py_version, name, "transformers_version"
    )
    suffix = _huggingface_suffix(version, framework + base)
    return f"huggingface-{framework}-training", f"{base}-transformers{version}-gpu-{job.py_version}-{suffix}"


def _compiler(job: TrainingJob) -> tuple[str, str]:
    """The repository and the tag of the image with SageMaker Training Compiler."""
    known: dict[str, str] = image_data()["compiler"]
    framework, version, base = "pytorch", job.framework_version, ""
    if job.framework == "huggingface":
        framework = "tensorflow" if job.tensorflow_version else "pytorch"
        version, base = job.transformers_version, f"{job.tensorflow_version or job.pytorch_version}"
    for name, tag in known.items():
        full, _, full_base = name.partition(" ")
        is_found = is_alias(version or "", full) and bool(base) == bool(full_base)
        if is_found and (not base or is_alias(f"{framework}{base}", full_base)):
            python = tag.partition("-")[0]
            if job.py_version not in (None, python):
                break
            if base:
                tag = f"gpu-{tag}"
                return f"huggingface-{framework}-trcomp-training", f"{base}-transformers{version}-{tag}"
            return "pytorch-trcomp-training", f"{version}-gpu-{tag}"
    found = " ".join(filter(None, (job.framework, version, base and framework + base, job.py_version)))
    have = ", ".join(
        f"{name} {tag.partition('-')[0]}" for name, tag in known.items() if bool(base) == (" " in name)
    )
    raise InvalidJob(
        f"compiler_config: AWS has no image of {found} with SageMaker Training Compiler",
        hint=f"It has these: {have}. Or leave compiler_config out, and call torch.compile in the script.",
    )


def _huggingface_suffix(version: str, base: str) -> str:
    """The CUDA and Ubuntu of the image; for an unknown image, those of the newest one for the framework version."""
    known: dict[str, dict[str, str]] = image_data()["huggingface"]
    of_version = next((known[found] for found in known if is_alias(version, found)), {})
    if numbers(version) < (4, 6):
        return "cu110-ubuntu18.04"
    newest_first = [of_version, *reversed(known.values())]
    same = (suffix for images in newest_first for found, suffix in images.items() if is_alias(base, found))
    return next(same, next(iter(newest_first[1].values())))


def _neuron(job: TrainingJob, version: str, python: str) -> tuple[str, str]:
    found = next((full for full in image_data()["neuron"] if is_alias(version, full)), None)
    if job.framework != "pytorch" or found is None:
        raise InvalidJob(
            f"image_uri: the image of {job.framework} {version} for {image_instance_type(job)} is not known",
            hint=f"Its tag includes the version of the Neuron SDK. {_OWN_IMAGE}",
        )
    check_python("pytorch-neuron", version, python, f"{job.framework} {version} for Trainium")
    return "pytorch-training-neuron", f"{version}-neuron-{python}-{image_data()['neuron'][found]}"


def _has_model_parallel(job: TrainingJob) -> bool:
    """Whether the job uses version 2 of SageMaker's model parallel library, which has its own images."""
    if job.distribution is None or "torch_distributed" not in job.distribution.enabled:
        return False
    libraries = job.distribution.smdistributed
    return bool(libraries and libraries.modelparallel and libraries.modelparallel.enabled)


def _cuda(job: TrainingJob, version: str) -> str:
    if (2, 5) <= numbers(version) < (2, 6):
        return "cu124"
    is_cu121 = (2, 1) <= numbers(version) < (2, 5) or "p5" in image_instance_type(job)
    return "cu121" if is_cu121 else "cu118"


def _family(job: TrainingJob) -> str:
    """The family of an instance type: ``p4d`` for ``ml.p4d.24xlarge``."""
    return instance_family(image_instance_type(job))


def _uri(kind: str, region: str, repository: str, tag: str) -> str:
    account = image_data()["accounts"][kind].get(region)
    if account is None:
        hint = _REGION_HINTS.get(kind, _OWN_IMAGE)
        raise InvalidJob(f"image_uri: the account of {repository} in {region} is not known", hint=hint)
    return f"{registry(account, region)}/{repository}:{tag}"
