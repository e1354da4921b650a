"""`RLEstimator` of `sagemaker.rl`, which selects AWS's images for reinforcement learning. The images run scripts."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cloudtrain.aws import Aws
from cloudtrain.aws.image_data import instance_family, registry
from cloudtrain.errors import InvalidJob
from cloudtrain.estimator import Estimator
from cloudtrain.platforms.sagemaker.accounts import KnownAccounts


class RLToolkit(enum.Enum):
    """The toolkits in the images."""

    COACH = "coach"
    RAY = "ray"


class RLFramework(enum.Enum):
    """The frameworks that the toolkits use."""

    TENSORFLOW = "tensorflow"
    MXNET = "mxnet"
    PYTORCH = "pytorch"


_ACCOUNT = "462105765813"
_REGIONS = [
    "ap-northeast-1",
    "ap-northeast-2",
    "ap-south-1",
    "ap-southeast-1",
    "ap-southeast-2",
    "ca-central-1",
    "eu-central-1",
    "eu-west-1",
    "eu-west-2",
    "us-east-1",
    "us-east-2",
    "us-west-1",
    "us-west-2",
]

_OLD_ACCOUNTS = {
    **dict.fromkeys([*_REGIONS, "eu-north-1", "eu-west-3", "sa-east-1"], "520713654638"),
    "af-south-1": "313743910680",
    "ap-east-1": "057415533634",
    "cn-north-1": "422961961927",
    "cn-northwest-1": "423003514399",
    "eu-south-1": "048378556238",
    "me-south-1": "724002660598",
    "us-gov-west-1": "246785580436",
    "us-iso-east-1": "744548109606",
    "us-isob-east-1": "453391408702",
}
"""The accounts of the images whose tags end with ``py3``."""

_IMAGES = {
    **{
        f"{toolkit}-tensorflow {version}": f"sagemaker-rl-tensorflow:{toolkit}{version}-{{}}-py3"
        for toolkit, versions in {
            "coach": ("0.10", "0.10.1", "0.11", "0.11.0", "0.11.1"),
            "ray": ("0.5", "0.5.3", "0.6", "0.6.5"),
        }.items()
        for version in versions
    },
    "coach-mxnet 0.11": "sagemaker-rl-mxnet:coach0.11-{}-py3",
    "coach-mxnet 0.11.0": "sagemaker-rl-mxnet:coach0.11.0-{}-py3",
    "coach-tensorflow 1.0.0": "sagemaker-rl-coach-container:coach-1.0.0-tf-{}-py3",
    "ray-tensorflow 0.8.2": "sagemaker-rl-ray-container:ray-0.8.2-tf-{}-py36",
    "ray-tensorflow 0.8.5": "sagemaker-rl-ray-container:ray-0.8.5-tf-{}-py36",
    "ray-tensorflow 1.6.0": "sagemaker-rl-ray-container:ray-1.6.0-tf-{}-py37",
    "ray-pytorch 0.8.5": "sagemaker-rl-ray-container:ray-0.8.5-torch-{}-py36",
    "ray-pytorch 1.6.0": "sagemaker-rl-ray-container:ray-1.6.0-torch-{}-py36",
}
"""The image of a toolkit, a framework and a version; ``{}`` is cpu or gpu."""

_FLOAT = "[-+]?[0-9]*[.]?[0-9]+([eE][-+]?[0-9]+)?"

_METRICS = {
    RLToolkit.COACH: [
        {"Name": "reward-training", "Regex": "^Training>.*Total reward=(.*?),"},
        {"Name": "reward-testing", "Regex": "^Testing>.*Total reward=(.*?),"},
    ],
    RLToolkit.RAY: [
        {"Name": name, "Regex": f"{name}: ({_FLOAT})"}
        for name in ("episode_reward_mean", "episode_reward_max")
    ],
}


class RLEstimator(Estimator):
    """A job in one of AWS's images for reinforcement learning. Arguments are those of the SageMaker SDK, version 2.

    Args:
        toolkit, toolkit_version, framework: select the image. ``image_uri`` overrides them.
        metric_definitions: default to the rewards that the toolkit prints.
        arguments: other arguments of `Estimator`.

    Raises:
        InvalidJob: as in `Estimator`; or AWS has no such image.
    """

    def __init__(
        self,
        entry_point: str | Path,
        toolkit: RLToolkit | None = None,
        toolkit_version: str | None = None,
        framework: RLFramework | None = None,
        source_dir: str | Path | None = None,
        hyperparameters: Mapping[str, Any] | None = None,
        image_uri: str | None = None,
        metric_definitions: Sequence[Mapping[str, str]] | None = None,
        **arguments: Any,
    ) -> None:
        if not image_uri:
            kind = arguments.get("instance_type") or arguments.get("train_instance_type") or ""
            region = Aws.of(arguments.get("sagemaker_session")).region
            image_uri = rl_image(toolkit, toolkit_version, framework, region, kind)
            metric_definitions = metric_definitions or _METRICS[RLToolkit(toolkit)]
            arguments.setdefault("runtime", "toolkit")  # the image's Python is too old for cloudtrain's
        super().__init__(
            entry_point=entry_point,
            source_dir=source_dir,
            hyperparameters=hyperparameters,
            image_uri=image_uri,
            metric_definitions=metric_definitions,
            **arguments,
        )

    @staticmethod
    def default_metric_definitions(toolkit: RLToolkit) -> list[dict[str, str]]:
        """The rewards that the toolkit prints."""
        return [dict(one) for one in _METRICS[toolkit]]

    def _fields(self, inputs: Any, job_name: str | None, experiment_config: Any) -> dict[str, Any]:
        fields = super()._fields(inputs, job_name, experiment_config)
        output = self.output_path
        if not output and str(self.instance_type).startswith("ml.") and self.platform in (None, "sagemaker"):
            output = Aws.of(self._session, KnownAccounts()).default_output_path
        own = {"sagemaker_estimator": "RLEstimator", **({"sagemaker_s3_output": output} if output else {})}
        return {**fields, "hyperparameters": {**self.hyperparameters, **own}}


def rl_image(
    toolkit: RLToolkit | None,
    version: str | None,
    framework: RLFramework | None,
    region: str,
    instance_type: str,
) -> str:
    """The URI of the image. Raises InvalidJob if AWS has none."""
    if not (toolkit and version and framework):
        raise InvalidJob(
            "RLEstimator needs toolkit, toolkit_version and framework, or an image_uri",
            hint="For example: toolkit=RLToolkit.RAY, toolkit_version='1.6.0', framework=RLFramework.TENSORFLOW.",
        )
    try:
        name = f"{RLToolkit(toolkit).value}-{RLFramework(framework).value}"
    except ValueError as error:
        raise InvalidJob(f"RLEstimator: {error}", hint="Use RLToolkit and RLFramework.") from None
    image = _IMAGES.get(f"{name} {version}")
    if image is None:
        known = [one.split()[1] for one in _IMAGES if one.startswith(f"{name} ")]
        raise InvalidJob(
            f"toolkit_version: AWS has no image of {name} {version}",
            hint=f"It has: {', '.join(known) or 'none'}. Or set the image: image_uri='...'.",
        )
    is_old = image.startswith(("sagemaker-rl-tensorflow", "sagemaker-rl-mxnet"))
    accounts = _OLD_ACCOUNTS if is_old else dict.fromkeys(_REGIONS, _ACCOUNT)
    if region not in accounts:
        raise InvalidJob(
            f"image_uri: AWS has no image of {name} {version} in {region}",
            hint="Use another region, or set the image: image_uri='...'.",
        )
    has_gpu = instance_family(instance_type)[:1] in ("g", "p") or instance_type == "local_gpu"
    return f"{registry(accounts[region], region)}/{image.format('gpu' if has_gpu else 'cpu')}"
