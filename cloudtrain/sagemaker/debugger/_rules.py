"""The rules of `sagemaker.debugger`, for the job's field ``rules``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from cloudtrain import spec
from cloudtrain.errors import InvalidJob
from cloudtrain.spec.names import existing_to_uri


class Rule(spec.Rule, frozen=True):
    """A rule about saved tensors."""

    @classmethod
    def sagemaker(
        cls,
        base_config: Mapping[str, Any],
        name: str | None = None,
        container_local_output_path: str | None = None,
        s3_output_path: str | None = None,
        other_trials_s3_input_paths: Sequence[str] | None = None,
        rule_parameters: Mapping[str, Any] | None = None,
        collections_to_save: Sequence[spec.CollectionConfig] | None = None,
        actions: Any = None,
    ) -> Rule:
        """One of AWS's rules: ``Rule.sagemaker(rule_configs.vanishing_gradient())``.

        Raises InvalidJob if ``rule_parameters`` name another rule.
        """
        if (rule_parameters or {}).get("rule_to_invoke") is not None:
            raise InvalidJob(
                "rule_parameters: rule_to_invoke cannot be changed for a rule of AWS",
                hint="Leave it out, or use Rule.custom(...).",
            )
        rule = base_config["DebugRuleConfiguration"]
        given = {**rule.get("RuleParameters", {}), **(rule_parameters or {})}
        needed = [
            spec.CollectionConfig(one.get("CollectionName"), one.get("CollectionParameters", {}))
            for one in base_config.get("CollectionConfigurations", [])
        ]
        collections_to_save = collections_to_save or needed
        name = name or rule["RuleConfigurationName"]
        return _new(cls, locals(), given)

    @classmethod
    def custom(
        cls,
        name: str,
        image_uri: str,
        instance_type: str,
        volume_size_in_gb: int,
        source: str | None = None,
        rule_to_invoke: str | None = None,
        container_local_output_path: str | None = None,
        s3_output_path: str | None = None,
        other_trials_s3_input_paths: Sequence[str] | None = None,
        rule_parameters: Mapping[str, Any] | None = None,
        collections_to_save: Sequence[spec.CollectionConfig] | None = None,
        actions: Any = None,
    ) -> Rule:
        """A rule of your own: a class in ``source``, a file on this machine or in S3.

        Raises InvalidJob if only one of ``source`` and ``rule_to_invoke`` is given.
        """
        return _new(cls, locals(), _own(source, rule_to_invoke, rule_parameters))


class ProfilerRule(spec.Rule, frozen=True):
    """A rule about the profiler's metrics."""

    @classmethod
    def sagemaker(
        cls,
        base_config: Any,
        name: str | None = None,
        container_local_output_path: str | None = None,
        s3_output_path: str | None = None,
        instance_type: str | None = None,
        volume_size_in_gb: int | None = None,
    ) -> ProfilerRule:
        """One of AWS's rules: ``ProfilerRule.sagemaker(rule_configs.ProfilerReport())``."""
        name = name or base_config.rule_name
        return _new(cls, locals(), base_config.rule_parameters)

    @classmethod
    def custom(
        cls,
        name: str,
        image_uri: str,
        instance_type: str,
        volume_size_in_gb: int,
        source: str | None = None,
        rule_to_invoke: str | None = None,
        container_local_output_path: str | None = None,
        s3_output_path: str | None = None,
        rule_parameters: Mapping[str, Any] | None = None,
    ) -> ProfilerRule:
        """A rule of your own, as `Rule.custom`. Raises InvalidJob."""
        return _new(cls, locals(), _own(source, rule_to_invoke, rule_parameters))


Kind = TypeVar("Kind", bound=spec.Rule)

_SAME = (
    *("name", "image_uri", "instance_type", "volume_size_in_gb", "container_local_output_path"),
    *("s3_output_path", "actions"),
)
"""Arguments that have the name of the field that they set."""


def _new(kind: type[Kind], arguments: Mapping[str, Any], parameters: Mapping[str, Any]) -> Kind:
    """A rule from ``arguments``, which are the ``locals()`` of one of its constructors."""
    trials = enumerate(arguments.get("other_trials_s3_input_paths") or ())
    texts = {f"other_trial_{number}": path for number, path in trials} | dict(parameters)
    fields: dict[str, Any] = {name: arguments.get(name) for name in _SAME}
    return kind(
        **fields,
        rule_parameters={name: str(value) for name, value in texts.items()},
        collections_to_save=list(arguments.get("collections_to_save") or ()),
        profiles=issubclass(kind, ProfilerRule),
    )


def _own(source: str | None, rule: str | None, parameters: Mapping[str, Any] | None) -> dict[str, Any]:
    if bool(source) != bool(rule):
        raise InvalidJob(
            "source and rule_to_invoke: a rule of your own needs both",
            hint="source is the Python file, and rule_to_invoke the class in it.",
        )
    given = {spec.RULE_SOURCE: str(existing_to_uri(source)), "rule_to_invoke": rule} if source else {}
    return {**given, **(parameters or {})}
