"""Builds the CreateHyperParameterTuningJob request of a search, and its name."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cloudtrain.config import read_config
from cloudtrain.errors import InvalidJob, nearest
from cloudtrain.estimator import Estimator, Inputs
from cloudtrain.platforms.sagemaker import SageMakerPlatform, tuning
from cloudtrain.platforms.sagemaker.request_fields import given
from cloudtrain.platforms.sagemaker.training_job import with_secrets
from cloudtrain.spec import TrainingJob, base_name, new_job_name
from cloudtrain.spec.names import clean
from cloudtrain.submission import Submission
from cloudtrain.tuning.configuration import (
    InstanceConfig,
    ParameterRange,
    StrategyConfig,
    TuningJobCompletionCriteriaConfig,
    WarmStartConfig,
    range_fields,
)

Ranges = Mapping[str, ParameterRange]
MetricDefinitions = Sequence[Mapping[str, str]]
Tags = Sequence[Mapping[str, str]] | Mapping[str, str]
TunerInputs = Inputs | Mapping[str, Inputs]

STRATEGIES = ("Bayesian", "Grid", "Hyperband", "Random")


@dataclass(frozen=True)
class Search:
    """The strategy and the limits of a search. The fields are arguments of a tuner."""

    strategy: str
    objective_type: str
    max_jobs: int | None
    max_parallel_jobs: int
    max_runtime_in_seconds: int | None
    tags: Tags | None
    warm_start_config: WarmStartConfig | None
    strategy_config: StrategyConfig | None
    completion_criteria_config: TuningJobCompletionCriteriaConfig | None
    early_stopping_type: str
    random_seed: int | None
    autotune: bool

    def __post_init__(self) -> None:
        for field, known in (
            ("strategy", STRATEGIES),
            ("objective_type", ("Maximize", "Minimize")),
            ("early_stopping_type", ("Auto", "Off")),
        ):
            value = getattr(self, field)
            if value not in known:
                raise InvalidJob(f"{field}: unknown value {value!r}", hint=nearest(str(value), known))

    def to_request(self) -> dict[str, Any]:
        """``HyperParameterTuningJobConfig``, without the fields that depend on the estimator."""
        criteria = self.completion_criteria_config
        return given(
            {
                "Strategy": self.strategy,
                "StrategyConfig": self.strategy_config and self.strategy_config.to_input_req(),
                "ResourceLimits": given(
                    {
                        "MaxNumberOfTrainingJobs": self.max_jobs,
                        "MaxParallelTrainingJobs": self.max_parallel_jobs,
                        "MaxRuntimeInSeconds": self.max_runtime_in_seconds,
                    }
                ),
                "TrainingJobEarlyStoppingType": self.early_stopping_type,
                "TuningJobCompletionCriteria": criteria and criteria.to_input_req(),
                "RandomSeed": self.random_seed,
            }
        )


@dataclass(frozen=True)
class Candidate:
    """An estimator of a search, and the hyperparameters to tune. ``name`` is set if the search has several."""

    estimator: Estimator
    objective_metric_name: str
    ranges: Ranges
    metric_definitions: MetricDefinitions | None = None
    name: str | None = None
    keep_static: Sequence[str] | None = None
    is_auto: bool = False
    instance_configs: Sequence[InstanceConfig] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.estimator, Estimator):
            raise InvalidJob(
                f"estimator: expected a cloudtrain.Estimator, got {type(self.estimator).__name__}",
                hint="Convert an estimator of the SageMaker SDK with Estimator.from_sagemaker(...).",
            )
        for name, parameter in self.ranges.items():
            if not isinstance(parameter, ParameterRange):
                raise InvalidJob(
                    f"hyperparameter_ranges.{name}: {parameter!r} is not a range",
                    hint="Use ContinuousParameter, IntegerParameter or CategoricalParameter.",
                )
        if not self.ranges and not self.is_auto:
            raise InvalidJob(
                "hyperparameter_ranges: there is nothing to tune", hint="Give a range, or set autotune=True."
            )
        if self.keep_static is not None and not self.is_auto:
            raise InvalidJob("hyperparameters_to_keep_static: needs autotune=True")

    def base_name(self) -> str:
        """The start of a generated tuning job name: the name of the image, as in the SDK."""
        return base_name(TrainingJob.from_dict({**read_config(), **self.estimator.fields})) or "tuning"

    def prepare(self, job_name: str, inputs: Any, has_metadata: bool) -> Trial:
        """Validate, pack and render one training job.

        Raises the errors of `Estimator.prepare`.
        """
        submission = _with_toolkit(self.estimator).prepare(inputs, job_name=job_name)
        assert isinstance(submission.platform, SageMakerPlatform)
        return Trial(self, submission, submission.platform, has_metadata)


@dataclass(frozen=True)
class Trial:
    """A candidate that is packed and rendered, but not uploaded yet."""

    candidate: Candidate
    submission: Submission
    platform: SageMakerPlatform
    has_metadata: bool

    def definition(self, *, with_values: bool) -> tuple[dict[str, Any], dict[str, Any]]:
        """The part of the request that all training jobs have in common, and ``ParameterRanges``.

        Args:
            with_values: whether to include the values of secrets; otherwise, each is ``***``.
        """
        candidate, request, framework = (
            self.candidate,
            self.submission.request,
            self.submission.job.framework,
        )
        definition = tuning.training_job_definition(
            with_secrets(request) if with_values else request.body,
            candidate.ranges.keys(),
            metric_definitions=candidate.metric_definitions,
            instance_configs=[one.to_input_req() for one in candidate.instance_configs or ()],
            estimator=tuning.ESTIMATORS[framework] if framework or self.has_metadata else None,
        )
        ranges = range_fields(candidate.ranges, as_json=framework is not None) if candidate.ranges else {}
        if candidate.is_auto:
            ranges["AutoParameters"] = self._auto_parameters(definition["StaticHyperParameters"])
        return definition, ranges

    def _auto_parameters(self, static: dict[str, str]) -> list[dict[str, str]]:
        """Remove the hyperparameters for which SageMaker chooses ranges from ``static``, and return them."""
        own = self.submission.job.hyperparameters.keys() & static.keys()
        kept = set(self.candidate.keep_static or ())
        for name in kept - static.keys():
            raise InvalidJob(
                f"hyperparameters_to_keep_static: there is no hyperparameter {name!r}",
                hint=nearest(name, own),
            )
        return [{"Name": name, "ValueHint": static.pop(name)} for name in list(static) if name in own - kept]


def tuning_request(
    name: str, search: Search, trials: Sequence[Trial], *, with_values: bool = False
) -> dict[str, Any]:
    """The complete request.

    Args:
        with_values: whether to include the values of secrets; otherwise, each is ``***``.
    """
    config = search.to_request()
    definitions = []
    for trial in trials:
        definition, ranges = trial.definition(with_values=with_values)
        objective = {"Type": search.objective_type, "MetricName": trial.candidate.objective_metric_name}
        if trial.candidate.name is None:
            config |= {"HyperParameterTuningJobObjective": objective, "ParameterRanges": ranges}
        else:
            definition |= {
                "DefinitionName": trial.candidate.name,
                "TuningObjective": objective,
                "HyperParameterRanges": ranges,
            }
        definitions.append(definition)
    is_single = trials[0].candidate.name is None
    warm = search.warm_start_config
    return given(
        {
            "HyperParameterTuningJobName": name,
            "HyperParameterTuningJobConfig": config,
            "TrainingJobDefinition": definitions[0] if is_single else None,
            "TrainingJobDefinitions": None if is_single else definitions,
            "WarmStartConfig": warm and warm.to_input_req(),
            "Tags": tags_of(search.tags, trials[0].submission.job.tags) or None,
            "Autotune": {"Mode": "Enabled"} if search.autotune else None,
        }
    )


def _with_toolkit(estimator: Estimator) -> Estimator:
    """A copy of the estimator with the runtime "toolkit". Raises InvalidJob if it needs the other runtime."""
    if estimator.fields.get("runtime") == "cloudtrain":
        raise InvalidJob(
            'runtime: tuning jobs of SageMaker cannot use "cloudtrain", because they have no ContainerEntrypoint',
            hint="Use runtime=\"toolkit\", and an image with SageMaker's training toolkit, such as AWS's images.",
        )
    if estimator.fields.get("arguments"):
        raise InvalidJob(
            "arguments: tuning jobs of SageMaker use the image's toolkit, which passes only hyperparameters",
            hint="Set hyperparameters instead.",
        )
    twin = copy.copy(estimator)
    twin.fields = {**estimator.fields, "runtime": "toolkit"}
    return twin


def tags_of(own: Tags | None, of_estimator: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """The tags of a search: ``own`` tags and those of the estimator."""
    pairs = (
        [{"Key": key, "Value": str(value)} for key, value in own.items()] if isinstance(own, Mapping) else own
    )
    tags = [dict(tag) for tag in pairs or ()]
    return tags + [dict(tag) for tag in of_estimator if tag not in tags]


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
    """The start of a name that cloudtrain or the SageMaker SDK has generated; other names are returned unchanged.

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
