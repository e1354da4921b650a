"""`HyperparameterTuner`, as in the SageMaker SDK: describes a search for hyperparameters and starts it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, NoReturn

from cloudtrain._sdk.left_out import code, refusal
from cloudtrain.contract.text import print_line
from cloudtrain.errors import CloudtrainError, InvalidJob, nearest
from cloudtrain.estimator import Estimator
from cloudtrain.job import Job
from cloudtrain.platforms import Request
from cloudtrain.platforms.sagemaker import SageMakerPlatform, tuning
from cloudtrain.platforms.sagemaker.check_request import TUNING, check_request
from cloudtrain.sweep import StartedSweep, Sweep
from cloudtrain.sweep.started import sweep_names
from cloudtrain.tuning._request import (
    Candidate,
    MetricDefinitions,
    Ranges,
    Search,
    Tags,
    Trial,
    TunerInputs,
    check_tuning_job_name,
    new_tuning_job_name,
    tuning_request,
)
from cloudtrain.tuning.configuration import (
    InstanceConfig,
    StrategyConfig,
    TuningJobCompletionCriteriaConfig,
    WarmStartConfig,
    WarmStartTypes,
    range_fields,
)
from cloudtrain.tuning.job import TuningJob, TuningJobAnalytics, tuned_values
from cloudtrain.tuning.sweep import SweepTuningJob, attached_sweep, runs_on_sagemaker, sweep_of

_OF_ESTIMATOR = {
    "estimator": "estimator",
    "objective_metric_name": "objective_metric_name",
    "metric_definitions": "metric_definitions",
    "hyperparameters_to_keep_static": "keep_static",
    "instance_configs": "instance_configs",
}
"""The attributes of a tuner that each estimator has, with their names in `Candidate`. A tuner with several estimators
has dicts, whose names end with ``_dict``."""

_OF_SEARCH = frozenset(field.name for field in fields(Search))


class HyperparameterTuner:
    """A search for the hyperparameters with the best objective.

    The arguments are those of the SageMaker Python SDK, version 2, in the same order. On SageMaker, the search is a
    tuning job, whose training jobs use the runtime "toolkit", because a tuning job always runs the entry point of its
    image. On other platforms, it is a `Sweep` with the tuner's name.

    Args:
        estimator: the training job to run with different hyperparameters.
        objective_metric_name: the metric to optimise, one of ``metric_definitions``.
        hyperparameter_ranges: the range of each hyperparameter to tune, by name.
        metric_definitions: the metrics in the output; defaults to the estimator's.
        strategy: ``Bayesian``, ``Random``, ``Hyperband`` or ``Grid``.
        objective_type: ``Maximize`` or ``Minimize``.
        max_jobs: the maximum number of training jobs; defaults to 1, or to all points of a grid.
        max_parallel_jobs: the maximum number of training jobs that run at the same time.
        max_runtime_in_seconds: the maximum duration of the search.
        tags: tags of the tuning job, in addition to the estimator's.
        base_tuning_job_name: the start of the job's name; defaults to the name of the image.
        warm_start_config: earlier searches to start from.
        strategy_config: the options of ``Hyperband``.
        completion_criteria_config: the criteria that end the search early.
        early_stopping_type: ``Auto`` stops training jobs that are unlikely to improve on the best; ``Off`` does not.
        estimator_name: the estimator's name, if the tuning job should have a list of estimators.
        random_seed: the seed of the search. Equal seeds lead to equal choices.
        autotune: whether SageMaker chooses ranges for hyperparameters that have none.
        hyperparameters_to_keep_static: hyperparameters that autotune does not change.

    Raises:
        InvalidJob: an argument has a wrong value.
    """

    def __init__(
        self,
        estimator: Estimator,
        objective_metric_name: str,
        hyperparameter_ranges: Ranges | None = None,
        metric_definitions: MetricDefinitions | None = None,
        strategy: str = "Bayesian",
        objective_type: str = "Maximize",
        max_jobs: int | None = None,
        max_parallel_jobs: int = 1,
        max_runtime_in_seconds: int | None = None,
        tags: Tags | None = None,
        base_tuning_job_name: str | None = None,
        warm_start_config: WarmStartConfig | None = None,
        strategy_config: StrategyConfig | None = None,
        completion_criteria_config: TuningJobCompletionCriteriaConfig | None = None,
        early_stopping_type: str = "Off",
        estimator_name: str | None = None,
        random_seed: int | None = None,
        autotune: bool = False,
        hyperparameters_to_keep_static: Sequence[str] | None = None,
    ) -> None:
        self._candidates = [
            Candidate(
                estimator,
                objective_metric_name,
                hyperparameter_ranges or {},
                metric_definitions,
                name=estimator_name,
                keep_static=hyperparameters_to_keep_static,
                is_auto=autotune,
            )
        ]
        self._search = Search(
            strategy=strategy,
            objective_type=objective_type,
            max_jobs=1 if max_jobs is None and strategy != "Grid" else max_jobs,
            max_parallel_jobs=max_parallel_jobs,
            max_runtime_in_seconds=max_runtime_in_seconds,
            tags=tags,
            warm_start_config=warm_start_config,
            strategy_config=strategy_config,
            completion_criteria_config=completion_criteria_config,
            early_stopping_type=early_stopping_type,
            random_seed=random_seed,
            autotune=autotune,
        )
        self.base_tuning_job_name = base_tuning_job_name
        self.latest_tuning_job: TuningJob | None = None
        self.static_hyperparameters: dict[str, str] | None = None
        self.static_hyperparameters_dict: dict[str, dict[str, str]] | None = None

    def __getattr__(self, name: str) -> Any:
        """The arguments as attributes. With several estimators, some are dicts, such as ``estimator_dict``."""
        if name in _OF_SEARCH and "_search" in vars(self):
            return getattr(self._search, name)
        field = _OF_ESTIMATOR.get(name.removesuffix("_dict"))
        if field is None or "_candidates" not in vars(self):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return self._of_estimators(lambda one: getattr(one, field), as_dict=name.endswith("_dict"))

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _OF_SEARCH:
            value, name = replace(self._search, **{name: value}), "_search"
        elif name in _OF_ESTIMATOR:
            first, *others = self._candidates
            value, name = [replace(first, **{_OF_ESTIMATOR[name]: value}), *others], "_candidates"
        object.__setattr__(self, name, value)

    def _of_estimators(self, get: Callable[[Candidate], Any], *, as_dict: bool) -> Any:
        """The value of the only estimator, or of all by name; None if ``as_dict`` does not fit the tuner."""
        if as_dict == (self._candidates[0].name is None):
            return None
        return {one.name: get(one) for one in self._candidates} if as_dict else get(self._candidates[0])

    def hyperparameter_ranges(self) -> dict[str, Any] | None:
        """The ranges in the form of the request; None if there are several estimators."""
        return self._of_estimators(_range_fields, as_dict=False)  # type: ignore[no-any-return]

    def hyperparameter_ranges_dict(self) -> dict[str, Any] | None:
        """The ranges in the form of the request, by estimator name; None if there is a single estimator without one."""
        return self._of_estimators(_range_fields, as_dict=True)  # type: ignore[no-any-return]

    @property
    def sagemaker_session(self) -> Any:
        """The AWS session of the first estimator."""
        return self._candidates[0].estimator.sagemaker_session

    @property
    def _current_job_name(self) -> str | None:
        """The name of the latest search, as notebooks use this private name of the SDK."""
        return self.latest_tuning_job.name if self.latest_tuning_job else None

    @classmethod
    def create(
        cls,
        estimator_dict: Mapping[str, Estimator],
        objective_metric_name_dict: Mapping[str, str],
        hyperparameter_ranges_dict: Mapping[str, Ranges | None],
        metric_definitions_dict: Mapping[str, MetricDefinitions] | None = None,
        base_tuning_job_name: str | None = None,
        *,
        hyperparameters_to_keep_static_dict: Mapping[str, Sequence[str]] | None = None,
        **search: Any,
    ) -> HyperparameterTuner:
        """A search over several estimators. All dicts have the names of the estimators as keys.

        Args:
            search: all other arguments of a tuner.

        Raises:
            InvalidJob: an argument has a wrong value, or names an unknown estimator.
        """
        if not estimator_dict:
            raise InvalidJob("estimator_dict: needs at least one estimator")
        metrics, kept = metric_definitions_dict or {}, hyperparameters_to_keep_static_dict or {}
        for argument, by_name in (
            ("objective_metric_name_dict", objective_metric_name_dict),
            ("hyperparameter_ranges_dict", hyperparameter_ranges_dict),
        ):
            _check_names(argument, by_name, estimator_dict)
            for name in estimator_dict.keys() - by_name.keys():
                raise InvalidJob(f"{argument}: has no entry for the estimator {name!r}")
        _check_names("metric_definitions_dict", metrics, estimator_dict)
        _check_names("hyperparameters_to_keep_static_dict", kept, estimator_dict)
        tuners = [
            cls(
                estimator_dict[name],
                objective_metric_name_dict[name],
                hyperparameter_ranges_dict[name],
                metrics.get(name),
                base_tuning_job_name=base_tuning_job_name,
                estimator_name=name,
                hyperparameters_to_keep_static=kept.get(name),
                **search,
            )
            for name in sorted(estimator_dict)
        ]
        tuners[0]._candidates = [candidate for tuner in tuners for candidate in tuner._candidates]
        return tuners[0]

    def override_resource_config(
        self, instance_configs: Sequence[InstanceConfig] | Mapping[str, Sequence[InstanceConfig]]
    ) -> None:
        """Let training jobs use the first kind of instances that is available.

        Args:
            instance_configs: the kinds in order of preference; a dict by name for a tuner with several estimators.

        Raises:
            InvalidJob: an estimator is unknown.
        """
        if isinstance(instance_configs, Mapping):
            _check_names("instance_configs", instance_configs, self._names)
            chosen = dict(instance_configs)
        else:
            chosen = {self._names[0]: instance_configs}
        self._candidates = [
            replace(candidate, instance_configs=chosen.get(candidate.name or ""))
            for candidate in self._candidates
        ]

    def prepare(
        self,
        inputs: TunerInputs | None = None,
        job_name: str | None = None,
        include_cls_metadata: bool | Mapping[str, bool] = False,
    ) -> Request:
        """The request that `fit` would send to SageMaker, with secrets as ``***``, for a dry run.

        On other platforms, it is the request of the first training job. Raises the errors of `fit`.
        """
        if (sweep := self._sweep(job_name)) is not None:
            return sweep.prepare(inputs)
        name, trials = self._trials(inputs, job_name, include_cls_metadata)
        self._checked_request(name, trials)
        return Request("sagemaker", name, tuning_request(name, self._search, trials))

    def fit(
        self,
        inputs: TunerInputs | None = None,
        job_name: str | None = None,
        include_cls_metadata: bool | Mapping[str, bool] = False,
        estimator_kwargs: Mapping[str, Any] | None = None,
        wait: bool = True,
        logs: bool | str = "All",
        **of_estimator: Any,
    ) -> TuningJob:
        """Start the tuning job. By default, wait until it ends, and print a line whenever a training job ends.

        Args:
            inputs: as for `Estimator.fit`; a dict by name for a tuner with several estimators.
            job_name: at most 32 characters; defaults to the base name and the time.
            include_cls_metadata: whether to record the estimator's class for the SDK's ``attach``. Framework estimators
                are always recorded.
            estimator_kwargs: ``{"mini_batch_size": ...}`` for each estimator of AWS's own algorithms, by its name.
            wait: whether to return only when the search has ended.
            logs: whether to print these lines while waiting.
            of_estimator: ``mini_batch_size``, for a single estimator of AWS's own algorithms.

        Raises:
            InvalidJob: an argument has a wrong value, or is only supported on SageMaker.
            InvalidSource: the source cannot be packed.
            StorageError: the source cannot be uploaded.
            PlatformError: SageMaker refuses the job.
            TrainingFailed: the search failed; only if ``wait`` is true.
        """
        self._set_batch_sizes({self._names[0]: of_estimator} if of_estimator else estimator_kwargs or {})
        if (sweep := self._sweep(job_name)) is not None:
            job = SweepTuningJob(sweep._start(inputs))
            return self._started(job, wait=wait, logs=logs)
        name, trials = self._trials(inputs, job_name, include_cls_metadata)
        request = self._checked_request(name, trials)
        for trial in trials:
            trial.submission.upload()
        platform = trials[0].platform
        secrets = [value for trial in trials for value in trial.submission.request.secrets.values()]
        tuning.create(request, platform.aws, secrets)
        return self._started(TuningJob(name, platform), wait=wait, logs=logs)

    def _started(self, job: TuningJob, *, wait: bool, logs: bool | str) -> TuningJob:
        self.latest_tuning_job = job
        if wait:
            job.wait(print_line if logs and logs != "None" else None)
        return job

    def _sweep(self, job_name: str | None) -> Sweep | None:
        """The search as a sweep; None if it is a tuning job of SageMaker."""
        if all(runs_on_sagemaker(one.estimator) for one in self._candidates):
            return None
        return sweep_of(self._candidates, self._search, job_name, self.base_tuning_job_name)

    def _set_batch_sizes(self, by_name: Mapping[str, Mapping[str, Any]]) -> None:
        """Set ``mini_batch_size``. Raises InvalidJob for other arguments, and for estimators that do not have it."""
        _check_names("estimator_kwargs", by_name, self._names)
        for name, given in by_name.items():
            estimator = self._candidates[self._names.index(name)].estimator
            for argument, value in given.items():
                if argument != "mini_batch_size" or not hasattr(type(estimator), argument):
                    raise InvalidJob(f"fit: {type(estimator).__name__} has no argument {argument!r}")
                setattr(estimator, argument, value)

    def _checked_request(self, name: str, trials: Sequence[Trial]) -> dict[str, Any]:
        """The request with the values of secrets. Raises InvalidJob for a value that SageMaker does not accept."""
        request = tuning_request(name, self._search, trials, with_values=True)
        check_request(request, trials[0].platform.aws, operation=TUNING)
        if "TrainingJobDefinition" in request:
            self.static_hyperparameters = request["TrainingJobDefinition"]["StaticHyperParameters"]
        else:
            self.static_hyperparameters_dict = {
                one["DefinitionName"]: one["StaticHyperParameters"]
                for one in request["TrainingJobDefinitions"]
            }
        return request

    def _trials(
        self,
        inputs: TunerInputs | None,
        job_name: str | None,
        include_cls_metadata: bool | Mapping[str, bool],
    ) -> tuple[str, list[Trial]]:
        first = self._candidates[0]
        if job_name is None:
            job_name = new_tuning_job_name(self.base_tuning_job_name or first.base_name())
        check_tuning_job_name(job_name)
        if first.name is None:
            return job_name, [first.prepare(job_name, inputs, bool(include_cls_metadata))]
        by_name: Any = {} if inputs is None else inputs
        _check_names("inputs", by_name, self._names)
        if isinstance(include_cls_metadata, Mapping):
            _check_names("include_cls_metadata", include_cls_metadata, self._names)
            metadata = dict(include_cls_metadata)
        else:
            metadata = dict.fromkeys(self._names, include_cls_metadata)
        return job_name, [
            candidate.prepare(job_name, by_name.get(name), metadata.get(name, False))
            for name, candidate in zip(self._names, self._candidates, strict=True)
        ]

    @property
    def _names(self) -> list[str]:
        """The names of the estimators; for a single estimator without a name, an empty name."""
        return [candidate.name or "" for candidate in self._candidates]

    def wait(self) -> None:
        """Wait until the latest search has ended. Raises as `TuningJob.wait`."""
        self._latest().wait()

    def describe(self) -> dict[str, Any]:
        """SageMaker's response to DescribeHyperParameterTuningJob for the latest search."""
        return self._latest().describe()

    def stop_tuning_job(self) -> None:
        """Stop the latest search and its training jobs. Returns immediately."""
        self._latest().stop_tuning_job()

    def best_training_job(self) -> str:
        """The name of the training job with the best objective so far. Raises CloudtrainError if there is none."""
        return self._latest().best_training_job()

    def best_estimator(self, best_training_job: Mapping[str, Any] | None = None) -> Estimator:
        """The estimator with the best hyperparameters so far; its ``model_data`` is the best model.

        Args:
            best_training_job: the summary of another job, in the form of `describe`.

        Raises:
            CloudtrainError: no training job has reported its objective yet.
        """
        tuning_job = self._latest()
        best = best_training_job or tuning_job.best()
        name = best.get("TrainingJobDefinitionName")
        of_name = [candidate for candidate in self._candidates if candidate.name == name]
        estimator = copy.copy((of_name or self._candidates)[0].estimator)
        estimator.fields = dict(estimator.fields)
        estimator.set_hyperparameters(**tuned_values(best))
        estimator.latest_training_job = Job(best["TrainingJobName"], tuning_job.platform)
        return estimator

    def deploy(
        self, initial_instance_count: int | None = None, instance_type: str | None = None, *_: Any, **__: Any
    ) -> NoReturn:
        """Raises NotSupported. The error of the best job's `Estimator` contains the code that deploys its model."""
        kind, count = instance_type or "ml.m5.xlarge", initial_instance_count or 1
        raise refusal(
            "deploy",
            "The error of the best job's estimator has the lines for its model:"
            + code(f'tuner.best_estimator().deploy({count}, "{kind}")'),
        )

    def delete_endpoint(self, *_: Any, **__: Any) -> NoReturn:
        """Raises NotSupported: a tuner has no endpoint."""
        self._candidates[0].estimator.delete_endpoint()

    def analytics(self) -> TuningJobAnalytics:
        """The training jobs of the latest search as a table."""
        return self._latest().analytics()

    def identical_dataset_and_algorithm_tuner(
        self, additional_parents: Iterable[str] | None = None
    ) -> HyperparameterTuner:
        """The same search, starting from the results of the latest one and of ``additional_parents``."""
        return self._warm(WarmStartTypes.IDENTICAL_DATA_AND_ALGORITHM, additional_parents, None)

    def transfer_learning_tuner(
        self, additional_parents: Iterable[str] | None = None, estimator: Estimator | None = None
    ) -> HyperparameterTuner:
        """Like `identical_dataset_and_algorithm_tuner`, for other data or another ``estimator``."""
        return self._warm(WarmStartTypes.TRANSFER_LEARNING, additional_parents, estimator)

    def _warm(
        self, kind: WarmStartTypes, parents: Iterable[str] | None, estimator: Estimator | None
    ) -> HyperparameterTuner:
        if len(self._candidates) > 1:
            raise InvalidJob("a tuner with several estimators cannot start from earlier searches")
        warm = copy.copy(self)
        warm.latest_tuning_job = None
        warm._search = replace(
            self._search, warm_start_config=WarmStartConfig(kind, {self._latest().name, *(parents or ())})
        )
        if estimator is not None:
            warm._candidates = [replace(self._candidates[0], estimator=estimator)]
        return warm

    def _latest(self) -> TuningJob:
        if self.latest_tuning_job is None:
            raise CloudtrainError("the tuner has not started a tuning job yet", hint="Call fit() first.")
        return self.latest_tuning_job

    @classmethod
    def attach(
        cls,
        tuning_job_name: str,
        sagemaker_session: Any = None,
        job_details: Mapping[str, Any] | None = None,
        estimator_cls: type[Estimator] | Mapping[str, type[Estimator]] | None = None,
    ) -> HyperparameterTuner:
        """A tuner for a search that was started earlier, by this user or another. Does not wait.

        A sweep of this machine with this name takes precedence over a tuning job, unless a session or ``job_details``
        are given.

        Its estimators are those of the search, as far as SageMaker shows them. Their class is the recorded one, else
        `Estimator`.

        Args:
            tuning_job_name: the name of the search.
            sagemaker_session: the AWS session.
            job_details: the response of DescribeHyperParameterTuningJob, if it is already known.
            estimator_cls: the class of the estimators; a dict by name for a search with several estimators.

        Raises:
            JobNotFound: SageMaker has no search of this name.
        """
        from cloudtrain.tuning.job import attached_search

        if sagemaker_session is None and job_details is None and tuning_job_name in sweep_names():
            swept = SweepTuningJob(StartedSweep.attach(tuning_job_name))
            candidate, arguments = attached_sweep(swept)
            tuner = cls(candidate.estimator, candidate.objective_metric_name, candidate.ranges, **arguments)
            tuner.latest_tuning_job = swept
            return tuner
        job = TuningJob(tuning_job_name, SageMakerPlatform(sagemaker_session))
        answer = job_details or job.describe()
        (first, *others), arguments = attached_search(answer, sagemaker_session, estimator_cls)
        tuner = cls(first.estimator, first.objective_metric_name, first.ranges, **arguments)
        tuner._candidates = [first, *others]
        tuner.latest_tuning_job = job
        return tuner


def _range_fields(candidate: Candidate) -> dict[str, Any]:
    as_json = candidate.estimator.fields.get("framework") is not None
    return range_fields(candidate.ranges, as_json=as_json)


def _check_names(argument: str, by_name: Any, names: Iterable[str]) -> None:
    """Raises InvalidJob if ``by_name`` is not a dict, or has a key that is not the name of an estimator."""
    known = sorted(names)
    if not isinstance(by_name, Mapping):
        raise InvalidJob(f"{argument}: expected a dict with the names of the estimators: {', '.join(known)}")
    for name in by_name:
        if name not in known:
            raise InvalidJob(f"{argument}: there is no estimator {name!r}", hint=nearest(str(name), known))
