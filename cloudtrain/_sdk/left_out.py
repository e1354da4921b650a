"""Features of the SageMaker SDK that cloudtrain leaves out. Each raises an error with the line to write instead."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

from cloudtrain.errors import CloudtrainError, NotSupported

if TYPE_CHECKING:
    from cloudtrain.job import Job

INSTALL = "Use the SageMaker SDK, version 3 (pip install 'sagemaker>=3')"

_FRAMEWORKS = ("huggingface", "mxnet", "pytorch", "sklearn", "tensorflow", "xgboost")
"""The frameworks for which AWS has images that serve models."""


def refusal(what: str, hint: str) -> NotSupported:
    """The error for a feature of the SDK. ``hint`` is what to write instead."""
    return NotSupported(f"{what}: cloudtrain only trains, and leaves this out", hint=hint)


def code(*lines: str) -> str:
    """Lines of Python in a hint."""
    return "".join(f"\n      {line}" for line in lines)


class LeftOut:
    """The methods of an `Estimator` that only raise errors with what to use instead."""

    fields: dict[str, Any]
    latest_training_job: Job | None

    @property
    def sagemaker_session(self) -> Any:
        """The AWS session of the estimator."""
        raise NotImplementedError

    def deploy(
        self, initial_instance_count: int | None = None, instance_type: str | None = None, *_: Any, **__: Any
    ) -> NoReturn:
        """Raises NotSupported, with the line that deploys this job's model."""
        kind, count = instance_type or "ml.m5.xlarge", initial_instance_count or 1
        raise refusal(
            "deploy",
            f"{INSTALL}:{self._builder(kind)}"
            + code(
                "builder.build()",
                f'endpoint = builder.deploy("my-endpoint", initial_instance_count={count}, instance_type="{kind}")',
            ),
        )

    def create_model(self, *_: Any, **__: Any) -> NoReturn:
        """Raises NotSupported, with the line that makes a model of this job's artifacts."""
        raise refusal("create_model", f"{INSTALL}:{self._builder()}{code('model = builder.build()')}")

    def register(self, *_: Any, **options: Any) -> NoReturn:
        """Raises NotSupported, with the lines that register this job's model."""
        group = options.get("model_package_group_name") or "my-models"
        arn = f"arn:aws:sagemaker:{self._region()}:<account>:model-package-group/{group}"
        raise refusal(
            "register",
            "SageMaker registers the model when the job ends, if the estimator asks for it before fit():"
            + code(f'{type(self).__name__}(..., model_package_config={{"model_package_group_arn": "{arn}"}})')
            + f"\n  For a job that has ended: {INSTALL}:{self._builder()}"
            + code("builder.build()", f"builder.register(model_package_group_name={group!r})"),
        )

    def transformer(
        self, instance_count: int = 1, instance_type: str = "ml.m5.xlarge", *_: Any, **__: Any
    ) -> NoReturn:
        """Raises NotSupported, with the lines for a batch transform of this job's model."""
        raise refusal(
            "transformer",
            f"{INSTALL}:"
            + code("from sagemaker.core.transformer import Transformer")
            + self._builder(instance_type)
            + code(
                "model = builder.build()",
                f'transformer = Transformer(model.model_name, {instance_count}, "{instance_type}")',
            ),
        )

    def compile_model(self, *_: Any, **__: Any) -> NoReturn:
        """Raises NotSupported: SageMaker Neo compiles models in separate jobs."""
        client = 'boto3.client("sagemaker").create_compilation_job(...)'
        raise refusal(
            "compile_model",
            f"Use boto3: {client}, with InputConfig={{'S3Uri': {self._model()}, ...}}.",
        )

    def delete_endpoint(self, *_: Any, **__: Any) -> NoReturn:
        """Raises NotSupported: an estimator has no endpoint."""
        line = 'boto3.client("sagemaker").delete_endpoint(EndpointName="...")'
        raise refusal("delete_endpoint", f"Use boto3: {line}.")

    def enable_remote_debug(self) -> NoReturn:
        """Raises NotSupported: it is an argument, and AWS can change it while a job runs."""
        raise self._remote_debug("enable_remote_debug", True)

    def disable_remote_debug(self) -> NoReturn:
        """Raises NotSupported: it is an argument, and AWS can change it while a job runs."""
        raise self._remote_debug("disable_remote_debug", False)

    def enable_default_profiling(self) -> NoReturn:
        """Raises NotSupported: profiling is an argument, and AWS can change it while a job runs."""
        raise self._profiler(
            "enable_default_profiling", '{"S3OutputPath": "s3://...", "DisableProfiler": False}'
        )

    def disable_profiling(self) -> NoReturn:
        """Raises NotSupported: profiling is an argument, and AWS can change it while a job runs."""
        raise self._profiler("disable_profiling", '{"DisableProfiler": True}')

    def update_profiler(self, *_: Any, **__: Any) -> NoReturn:
        """Raises NotSupported: profiling is an argument, and AWS can change it while a job runs."""
        raise self._profiler("update_profiler", '{"ProfilingIntervalInMilliseconds": 1000}')

    @property
    def tensorboard_app(self) -> Any:
        """Raises NotSupported: show the files with TensorBoard itself."""
        raise refusal(
            "tensorboard_app", "Show the files with TensorBoard itself: tensorboard --logdir s3://..."
        )

    def get_app_url(self, *_: Any, **__: Any) -> NoReturn:
        """Raises NotSupported: apps of SageMaker Studio are opened from its console."""
        raise refusal("get_app_url", "Open the app from the SageMaker console.")

    def prepare_workflow_for_training(self, job_name: str | None = None) -> NoReturn:
        """Raises NotSupported: cloudtrain's own step needs no preparation."""
        raise refusal(
            "prepare_workflow_for_training",
            "A step of the SDK's Pipeline needs no preparation:"
            + code(
                "from cloudtrain.pipelines import TrainingStep",
                'step = TrainingStep("train", estimator, inputs)',
            ),
        )

    def _remote_debug(self, name: str, enable: bool) -> CloudtrainError:
        return refusal(
            f"{name}()",
            f"Before a job starts: {type(self).__name__}(..., enable_remote_debug={enable}). While it runs:"
            + self._update(f'RemoteDebugConfig={{"EnableRemoteDebug": {enable}}}'),
        )

    def _profiler(self, name: str, config: str) -> CloudtrainError:
        return refusal(
            f"{name}()",
            f"Before a job starts: {type(self).__name__}(..., profiler_config=ProfilerConfig(...)). While it runs:"
            + self._update(f"ProfilerConfig={config}"),
        )

    def _update(self, argument: str) -> str:
        job = self.latest_training_job
        name = job.name if job else "<the job>"
        return code(f'boto3.client("sagemaker").update_training_job(TrainingJobName="{name}", {argument})')

    def _builder(self, instance_type: str = "ml.m5.xlarge") -> str:
        """The lines that make a ModelBuilder of this job's model."""
        framework = self.fields.get("framework")
        lines = ["from sagemaker.serve import ModelBuilder"]
        image = repr(self.fields.get("image_uri") or "<the image that serves the model>")
        if framework in _FRAMEWORKS and not self.fields.get("image_uri"):
            lines.insert(0, "from sagemaker.core import image_uris")
            lines.append(f"image = {self._inference_image(framework, instance_type)}")
            image = "image"
        role = repr(self.fields.get("role") or "<the role of the endpoint>")
        lines.append(
            f"builder = ModelBuilder(image_uri={image}, s3_model_data_url={self._model()}, role_arn={role})"
        )
        return code(*lines)

    def _inference_image(self, framework: str, instance_type: str) -> str:
        get = self.fields.get
        version = get("transformers_version") if framework == "huggingface" else get("framework_version")
        options = [f'"{framework}"', f'"{self._region()}"', f"version={version!r}"]
        if framework != "tensorflow":  # its images for inference have only one Python
            options.append(f"py_version={get('py_version')!r}")
        if framework == "huggingface":
            base = ("tensorflow", "pytorch")[get("pytorch_version") is not None]
            options.append(f'base_framework_version="{base}{get(f"{base}_version")}"')
        options += [f'instance_type="{instance_type}"', 'image_scope="inference"']
        return f"image_uris.retrieve({', '.join(options)})"

    def _region(self) -> str:
        with suppress(CloudtrainError):
            return str(self.sagemaker_session.boto_region_name)
        return "<region>"

    def _model(self) -> str:
        """The URI of the latest job's model as Python text, or the expression for it."""
        if self.latest_training_job is not None:
            with suppress(CloudtrainError):
                found = self.latest_training_job.model_data
                if found:
                    return repr(found)
        return "estimator.model_data"
