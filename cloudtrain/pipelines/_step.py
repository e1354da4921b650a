"""`TrainingStep`: a job as a step of a pipeline."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from msgspec import structs

from cloudtrain.errors import InvalidJob
from cloudtrain.pipelines._placeholders import Placeholders, sdk_module
from cloudtrain.platforms.sagemaker import SageMakerPlatform
from cloudtrain.platforms.sagemaker.export import left_out_variables, step_arguments
from cloudtrain.spec.variables import is_variable
from cloudtrain.submission import Submission, prepare, secrets_left_out

if TYPE_CHECKING:
    from cloudtrain.estimator import Estimator, Inputs


def TrainingStep(
    name: str,
    estimator: Estimator,
    inputs: Inputs | None = None,
    *,
    display_name: str | None = None,
    description: str | None = None,
    cache_config: Any = None,
    depends_on: Sequence[Any] | None = None,
    retry_policies: Sequence[Any] | None = None,
) -> Any:
    """A step for the ``steps`` of the SageMaker SDK's ``Pipeline``, version 2 or 3.

    Arguments of the estimator, and its inputs, may be pipeline variables: parameters, ``Join``, ``JsonGet``, execution
    variables, and properties of other steps. The source is packed now, and uploaded when the pipeline's definition is
    made. Its URI depends only on its content, so that the pipeline's cache works.

    Args:
        name: the name of the step, of letters, digits and hyphens.
        estimator: describes the job.
        inputs: as for `Estimator.fit`.
        display_name: its name in the console.
        description: the step's description in the console.
        cache_config: the SDK's ``CacheConfig``.
        depends_on: steps, or their names, that must end before this one starts.
        retry_policies: the SDK's ``StepRetryPolicy`` objects.

    Returns:
        The step: an object of a subclass of the SDK's ``Step``. ``properties`` has what a later step can use, such as
        ``properties.ModelArtifacts.S3ModelArtifacts``.

    Raises:
        InvalidJob: an argument is wrong, or is a pipeline variable although cloudtrain needs its value.
        CloudtrainError: the SDK is not installed.
    """
    options = {
        "display_name": display_name,
        "description": description,
        "depends_on": list(depends_on) if depends_on is not None else None,
        "retry_policies": list(retry_policies) if retry_policies is not None else None,
    }
    return _step_class()(name, _Training(name, estimator, inputs), cache_config, options)


class _Training:
    """The training job of a step: its arguments, and its uploads."""

    def __init__(self, name: str, estimator: Estimator, inputs: Inputs | None) -> None:
        platform = estimator.fields.get("platform", "sagemaker")
        if platform != "sagemaker":
            raise InvalidJob(
                f"platform: a step of a pipeline runs on sagemaker, not on {platform}", hint="Remove it."
            )
        fields = {**estimator._fields(inputs, name, None), "platform": "sagemaker"}
        self._platform = SageMakerPlatform(estimator._session)
        unknown = [name for name in ("output_path", "output_kms_key") if is_variable(fields.get(name))]
        if unknown and not fields.get("code_location"):
            # the bucket of the output, or its key, is not known when the source is uploaded
            fields["code_location"] = f"{self._platform.aws.default_output_path}cloudtrain/source"
        placeholders = Placeholders()
        with estimator._cloned(placeholders.replace(fields)) as found:
            self._submission = prepare(found, self._platform, is_template=True)
        request = self._submission.request
        if "output_kms_key" in unknown:
            self._submission = _without_key(self._submission)
        secrets = {
            name: value for name, value in request.secrets.items() if not placeholders.is_placeholder(value)
        }
        left_out = left_out_variables(replace(request, secrets=secrets))
        hidden = [name for name in left_out if name in secrets]
        if hidden:
            warnings.warn(secrets_left_out(hidden), stacklevel=4)
        self.arguments = placeholders.restore(step_arguments(request), request.secrets)
        self._is_uploaded = False

    def upload(self) -> None:
        """Upload the source, local data and the runtime, once. Raises StorageError."""
        if self._is_uploaded:
            return
        with self._submission.caches or nullcontext():
            self._submission.upload()
            self._platform.upload_for(self._submission.request)
        self._is_uploaded = True


def _without_key(submission: Submission) -> Submission:
    """``submission`` without a key for its uploads, which S3 then encrypts according to their bucket's settings."""
    request, output = submission.request, dict(submission.request.body["OutputDataConfig"])
    del output["KmsKeyId"]
    return replace(
        submission,
        job=structs.replace(submission.job, output_kms_key=None),
        request=replace(request, body={**request.body, "OutputDataConfig": output}),
    )


@cache
def _step_class() -> type[Any]:
    """The class of our steps, derived from the installed SDK's. It is created once, so that ``isinstance`` works."""
    steps, properties = sdk_module("steps"), sdk_module("properties")
    base: Any = steps.ConfigurableRetryStep

    class Step(base):  # type: ignore[misc]
        def __init__(
            self, name: str, training: _Training, cache_config: Any, options: Mapping[str, Any]
        ) -> None:
            super().__init__(name, steps.StepTypeEnum.TRAINING, **options)
            self.cache_config = cache_config
            self._training = training
            self._properties = properties.Properties(
                step_name=name, step=self, shape_name="DescribeTrainingJobResponse"
            )

        @property
        def arguments(self) -> dict[str, Any]:
            """The CreateTrainingJob request, without the fields that depend on the run."""
            return dict(self._training.arguments)

        @property
        def properties(self) -> Any:
            """The fields of DescribeTrainingJob, as pipeline variables."""
            return self._properties

        def to_request(self) -> dict[str, Any]:
            """The step as part of the pipeline's definition. Uploads the source."""
            self._training.upload()
            request: dict[str, Any] = super().to_request()
            return {**request, **(self.cache_config.config if self.cache_config else {})}

    Step.__name__ = Step.__qualname__ = "TrainingStep"
    return Step
