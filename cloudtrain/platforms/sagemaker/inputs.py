"""The channels of a CreateTrainingJob request."""

from __future__ import annotations

from typing import Any

from cloudtrain.errors import InvalidJob
from cloudtrain.spec import Channel, TrainingInput, TrainingJob

MODEL_CONTENT_TYPE = "application/x-sagemaker-model"


def input_data_config(job: TrainingJob) -> list[dict[str, Any]]:
    """The inputs, then the model to start from. Raises InvalidJob for data that is not in S3."""
    channels = [channel_config(name, channel) for name, channel in job.inputs.items()]
    if job.model_uri:
        model = TrainingInput(job.model_uri, content_type=MODEL_CONTENT_TYPE, input_mode="File")
        channels.append(channel_config(job.model_channel_name, model))
    return channels


def channel_config(name: str, channel: Channel) -> dict[str, Any]:
    """One entry of ``InputDataConfig``."""
    if isinstance(channel, TrainingInput):
        check_s3(f"inputs.{name}", channel.s3_data)
    return {"ChannelName": name, **channel.config}


def check_s3(field: str, uri: str | None) -> None:
    """Raises InvalidJob if ``uri`` is not in S3."""
    if uri is not None and not uri.startswith("s3://"):
        raise InvalidJob(
            f"{field}: SageMaker reads and writes S3, not {uri}",
            hint="Name a folder in a bucket: s3://bucket/prefix.",
        )


def given(config: dict[str, Any]) -> dict[str, Any]:
    """``config`` without values that are None."""
    return {key: value for key, value in config.items() if value is not None}
