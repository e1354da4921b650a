"""The models of SageMaker JumpStart for training, and `list_jumpstart_models` with its filters.

Their descriptions are JSON in an S3 bucket of AWS in each region.
"""

from __future__ import annotations

import json
import operator
import re
from ast import literal_eval
from collections import defaultdict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from cloudtrain.aws.image_data import instance_family
from cloudtrain.errors import InvalidJob, nearest
from cloudtrain.estimator import Estimator
from cloudtrain.session import Session

SCOPE = "training"
_SDK = Version("2.257.7")
"""The version of the SDK whose model descriptions are supported; newer ones have a later ``min_version``."""


class Model:
    """One version of a model in one region.

    Args:
        is_tolerant: whether the model may be deprecated, and whether its script may have known vulnerabilities.
        others: a hub, a configuration or another kind of model; they are refused.

    Raises:
        InvalidJob: there is no such model, it cannot be trained, or its flags forbid it.
        StorageError: the region has no JumpStart, or S3 denies access.
    """

    def __init__(
        self,
        model_id: str | None,
        version: str | None,
        region: str | None,
        session: Any,
        scope: str | None,
        is_tolerant: tuple[bool | None, bool | None] = (False, False),
        **others: Any,
    ) -> None:
        if not model_id or not version:
            raise InvalidJob(
                "model_id and model_version name a model of JumpStart",
                hint="For example: model_id='huggingface-tc-bert-base-cased', model_version='*'.",
            )
        if scope != SCOPE:
            raise InvalidJob(
                f"scope: cloudtrain has the URIs for 'training', not for {scope!r}",
                hint="For inference, use the SageMaker SDK, version 2 (pip install 'sagemaker<3').",
            )
        if named := [name for name, value in others.items() if value is not None]:
            raise InvalidJob(
                f"{named[0]}: not supported by cloudtrain for models of JumpStart",
                hint="Leave it out for the public model, or use the SageMaker SDK, version 2.",
            )
        own, self.region, self.bucket = place(session, region)
        models = tuple(
            (one["model_id"], one["version"], one["spec_key"]) for one in manifest(own, self.bucket)
        )
        self.version, key = _newest(models, model_id, version)
        self.description: dict[str, Any] = json.loads(own.read_s3_file(self.bucket, key))
        if not self.description.get("training_supported"):
            raise InvalidJob(f"model_id: {model_id} of JumpStart cannot be trained")
        self._check_flags(f"model_id: {model_id} {version}", *is_tolerant)

    def _check_flags(self, what: str, allows_deprecated: bool | None, allows_vulnerable: bool | None) -> None:
        get = self.description.get
        if get("deprecated") and not allows_deprecated:
            raise InvalidJob(
                f"{what} is deprecated: {get('deprecated_message') or 'AWS has newer versions'}",
                hint="Choose another version, or set tolerate_deprecated_model=True.",
            )
        if get("training_vulnerable") and not allows_vulnerable:
            found = ", ".join(get("training_vulnerabilities") or ()) or "not named"
            raise InvalidJob(
                f"{what}: its script has known vulnerabilities: {found}",
                hint="Choose another version, or set tolerate_vulnerable_model=True.",
            )

    def script_uri(self) -> str:
        """The archive with the script."""
        get = self.description.get
        return f"s3://{self.bucket}/{get('training_prepacked_script_key') or get('training_script_key')}"

    def model_uri(self, instance_type: str | None) -> str:
        """The archive with the pretrained model."""
        bucket = self._gated_bucket if self.description.get("gated_bucket") else self.bucket
        key = (
            self._property(instance_type, "training_artifact_uri")
            or self.description["training_artifact_key"]
        )
        return f"s3://{bucket}/{key}"

    def image_uri(self, instance_type: str | None) -> str:
        """The image for an instance type. Raises InvalidJob if there is none."""
        variants = self.description.get("training_instance_type_variants") or {}
        alias = self._property(instance_type, "image_uri", "regional_properties") or ""
        found = (variants.get("regional_aliases") or {}).get(self.region, {}).get(alias.removeprefix("$"))
        if not found:
            raise InvalidJob(
                f"instance_type: the model has no image for {instance_type} in {self.region}",
                hint=f"Choose another instance type, of one of: {', '.join(variants.get('variants', {}))}.",
            )
        return str(found)

    def hyperparameters(self, instance_type: str | None, *, of_container: bool) -> dict[str, str]:
        """The defaults, as strings."""
        specific = self._merged(instance_type, "hyperparameters")
        scopes = ("algorithm", "container") if of_container else ("algorithm",)
        general = [one for one in self.description.get("hyperparameters", []) if one["scope"] in scopes]
        return {one["name"]: str(one["default"]) for one in [*general, *specific]}

    def check_hyperparameters(self, given: Mapping[str, Any], mode: str) -> None:
        """Raises InvalidJob for an invalid one, or a missing one that ``mode`` requires: ``algorithm`` or ``all``."""
        known = {one["name"]: one for one in self.description.get("hyperparameters", [])}
        for name, one in known.items():
            if name not in given and (mode == "all" or mode == one["scope"]):
                raise InvalidJob(f"hyperparameters: the model needs {name!r}", hint="Add it.")
        for name, value in given.items():
            if name not in known:
                raise InvalidJob(
                    f"hyperparameters: the model has no {name!r}", hint=nearest(name, list(known))
                )
            if problem := _problem(known[name], value):
                raise InvalidJob(
                    f"hyperparameters.{name}: {problem}, got {value!r}", hint="Change it, or leave it out."
                )

    def arguments(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of an `Estimator` that trains the model, as the SDK sets them. ``given`` overrides them."""
        get = self.description.get
        if get("fit_kwargs"):
            raise InvalidJob("model_id: the model needs a newer cloudtrain", hint="Use the SageMaker SDK.")
        kind = given.get("instance_type") or get("default_training_instance_type")
        if not kind:
            raise InvalidJob("instance_type: the model has no default", hint="Set instance_type='ml...'.")
        metrics = {
            one["Name"]: one for one in [*(get("metrics") or ()), *self._merged(kind, "metrics", "Name")]
        }
        gated = self._property(kind, "gated_model_key_env_var_value")
        package = (get("training_model_package_artifact_uris") or {}).get(self.region)
        variables = {
            key: str(value) for key, value in (self._property(kind, "environment_variables") or {}).items()
        }
        if package or gated:
            variables["SageMakerGatedModelS3Uri"] = package or f"s3://{self._gated_bucket}/{gated}"
        found = {
            **(get("estimator_kwargs") or {}),
            "instance_type": kind,
            "instance_count": 1,
            "image_uri": given.get("image_uri") or self.image_uri(kind),
            "source_dir": self.script_uri(),
            "entry_point": "transfer_learning.py",
            "model_uri": given.get("model_uri") or (None if package or gated else self._optional_model(kind)),
            "hyperparameters": self.hyperparameters(kind, of_container=False),
            "metric_definitions": list(metrics.values()),
            "environment": variables,
            "enable_network_isolation": get("training_enable_network_isolation"),
            "volume_size": get("training_volume_size") if _has_volume(kind) else None,
            "base_job_name": get("resource_name_base"),
        }
        return {name: value for name, value in found.items() if value not in (None, [], {})}

    @property
    def _gated_bucket(self) -> str:
        return self.bucket.replace("cache", "private-cache")

    def _optional_model(self, instance_type: str) -> str | None:
        """The model that the job downloads. Raises InvalidJob if only other instance types have one."""
        kinds = self.description.get("supported_training_instance_types") or ()
        if having := [kind for kind in kinds if self._property(kind, "gated_model_key_env_var_value")]:
            raise InvalidJob(
                f"instance_type: the model has no archive for {instance_type}",
                hint=f"Choose another instance type: {', '.join(having)}.",
            )
        return self.model_uri(instance_type) if self.description.get("training_artifact_key") else None

    def _merged(self, instance_type: str | None, name: str, key: str = "name") -> list[dict[str, Any]]:
        """The entries for the family of the instance type, replaced by those for the type itself."""
        variants = (self.description.get("training_instance_type_variants") or {}).get("variants") or {}
        kinds = (instance_family(instance_type or ""), instance_type or "")
        found = [
            one for kind in kinds for one in variants.get(kind, {}).get("properties", {}).get(name) or ()
        ]
        return list({one[key]: one for one in found}.values())

    def _property(self, instance_type: str | None, name: str, kind: str = "properties") -> Any:
        """A property of the instance type, or of its family."""
        variants = (self.description.get("training_instance_type_variants") or {}).get("variants") or {}
        for variant in (instance_type or "", instance_family(instance_type or "")):
            found = variants.get(variant, {}).get(kind, {}).get(name)
            if found:
                return found
        return None


_BOUNDS: dict[str, tuple[str, Callable[[float, float], bool]]] = {
    "min": ("at least", operator.ge),
    "exclusive_min": ("more than", operator.gt),
    "max": ("at most", operator.le),
    "exclusive_max": ("less than", operator.lt),
}
_PATTERNS = {"bool": "true|false", "int": r"[+-]?\d+"}


def _problem(described: Mapping[str, Any], value: Any) -> str | None:
    """The requirement that a value does not meet, such as ``expected int``; None if it is valid."""
    kind = described.get("type")
    if kind == "text" and not isinstance(value, str):
        return "expected text"
    if kind in _PATTERNS and not re.fullmatch(_PATTERNS[kind], str(value), re.IGNORECASE):
        return f"expected {kind}"
    options = described.get("options")
    if kind == "text" and options and value not in options:
        return f"expected one of {', '.join(options)}"
    if kind not in ("text", "int", "float"):
        return None
    try:
        size = len(value) if kind == "text" else float(value)
    except (TypeError, ValueError):
        return f"expected {kind}"
    for name, (words, fits) in _BOUNDS.items():
        if name in described and not fits(size, described[name]):
            return f"expected {words} {described[name]}" + (" characters" if kind == "text" else "")
    return None


def _has_volume(instance_type: str) -> bool:
    """Whether the size of the volume can be chosen: types with local disks have none."""
    family = instance_family(instance_type)
    return "d" not in family and not family.startswith(("g5", "g6", "p5", "trn1"))


def _newest(manifest: tuple[tuple[str, str, str], ...], model_id: str, version: str) -> tuple[str, str]:
    """The newest version that matches, and the key of its description."""
    versions = {Version(one): key for name, one, key in manifest if name == model_id}
    if not versions:
        raise InvalidJob(
            f"model_id: JumpStart has no model {model_id!r}",
            hint=nearest(model_id, [name for name, _, _ in manifest]),
        )
    try:
        matching = versions if version == "*" else list(SpecifierSet(f"=={version}").filter(versions))
    except InvalidSpecifier:
        matching = []
    if not matching:
        known = ", ".join(str(one) for one in sorted(versions))
        raise InvalidJob(f"model_version: {model_id} has no version {version}", hint=f"It has: {known}.")
    newest = max(matching)
    return str(newest), versions[newest]


def place(session: Any, region: str | None) -> tuple[Session, str, str]:
    """The session, the region, and the bucket with the descriptions of its models."""
    own = session if isinstance(session, Session) else Session(getattr(session, "boto_session", session))
    region = region or own.boto_region_name
    return own, region, f"jumpstart-cache-prod-{region}"


@lru_cache(maxsize=8)
def manifest(session: Session, bucket: str, name: str = "models_manifest.json") -> tuple[dict[str, Any], ...]:
    """The ``model_id``, ``version`` and ``spec_key`` of each model that this version of the SDK supports."""
    found = json.loads(session.read_s3_file(bucket, name))
    return tuple(one for one in found if Version(one.get("min_version", "0")) <= _SDK)


_TAGS = "sagemaker-sdk:jumpstart-model-id", "sagemaker-sdk:jumpstart-model-version"


class JumpStartEstimator(Estimator):
    """An estimator whose image, script, model and defaults are those of a model of JumpStart.

    Args:
        model_id: for example ``huggingface-tc-bert-base-cased``.
        model_version: defaults to the newest.
        region: the region of the models' descriptions; defaults to that of the session.
        tolerate_deprecated_model, tolerate_vulnerable_model: allow a version that AWS warns about.
        arguments: other arguments of `Estimator`, which override the model's. ``hyperparameters``, ``environment``
            and ``metric_definitions`` override them entry by entry.

    Raises:
        InvalidJob: as `Model` does.
        StorageError: the region has no JumpStart, or S3 denies access.
    """

    def __init__(
        self,
        model_id: str | None = None,
        model_version: str | None = None,
        hub_name: str | None = None,
        tolerate_vulnerable_model: bool | None = None,
        tolerate_deprecated_model: bool | None = None,
        region: str | None = None,
        config_name: str | None = None,
        **arguments: Any,
    ) -> None:
        model = Model(
            model_id,
            model_version or "*",
            region,
            arguments.get("sagemaker_session"),
            SCOPE,
            (tolerate_deprecated_model, tolerate_vulnerable_model),
            hub_name=hub_name,
            config_name=config_name,
        )
        given = {name: value for name, value in arguments.items() if value is not None}
        found = model.arguments(given)
        for name in ("hyperparameters", "environment"):
            given[name] = {**found.get(name, {}), **given.get(name, {})}
        own = list(given.get("metric_definitions", ()))
        names = {one["Name"] for one in own}
        given["metric_definitions"] = [
            *own,
            *(one for one in found.get("metric_definitions", ()) if one["Name"] not in names),
        ]
        given["tags"] = _tags(given.get("tags"), str(model_id), model.version)
        super().__init__(**{**found, **given})
        self.model_id, self.model_version = model_id, model_version or "*"


def _tags(tags: Any, model_id: str, version: str) -> dict[str, str]:
    """The tags, and those with which the SDK names the model."""
    given = tags if isinstance(tags, Mapping) else {one["Key"]: one["Value"] for one in tags or ()}
    return {**given, **dict(zip(_TAGS, (model_id, version), strict=True))}


_CONSTANTS = {"true": True, "false": False, "unknown": None}
_PROPRIETARY = "proprietary-sdk-manifest.json"


def _equal(value: Any, given: str) -> bool:
    return str(value).lower() == given.lower() if isinstance(value, bool) else str(value) == given


def _within(value: Any, given: str) -> bool:
    try:
        found = literal_eval(given)
    except (ValueError, SyntaxError):
        found = given
    return not isinstance(value, list) and hasattr(found, "__iter__") and value in found


_TESTS: tuple[tuple[str, Callable[[Any, str], bool]], ...] = (
    (" begins with | starts with ", lambda value, given: str(value).startswith(given)),
    (" ends with ", lambda value, given: str(value).endswith(given)),
    (" not includes | not contains | includes | contains ", lambda value, given: given in value),
    ("!==|!=| not equals | is not ", _equal),
    (" not in ", _within),
    ("===|==| equals | is ", _equal),
    (" in ", _within),
)
"""The operators, in the order in which they are searched for in a filter, each with its test, without a "not"."""


class Identity:
    """A filter of models: a comparison, such as ``task == ic``, a constant, such as ``true``, or another filter."""

    def __init__(self, *operands: Identity | str) -> None:
        self.operands = [one if isinstance(one, Identity) else _Comparison(one) for one in operands]

    def decide(self, values: Mapping[str, Any]) -> bool | None:
        """Whether a model with these values passes; None if that depends on other values."""
        return self.operands[0].decide(values)


class And(Identity):
    """Passes if all of its operands pass."""

    def decide(self, values: Mapping[str, Any]) -> bool | None:
        found = [one.decide(values) for one in self.operands]
        return False if False in found else None if None in found else True


class Or(Identity):
    """Passes if one of its operands passes."""

    def decide(self, values: Mapping[str, Any]) -> bool | None:
        found = [one.decide(values) for one in self.operands]
        return True if True in found else None if None in found else False


class Not(Identity):
    """Passes if its operand does not."""

    def decide(self, values: Mapping[str, Any]) -> bool | None:
        found = self.operands[0].decide(values)
        return None if found is None else not found


class _Comparison(Identity):
    def __init__(self, text: str) -> None:
        self.constant = text.lower() if text.lower() in _CONSTANTS else None
        parsed = (
            (operator.strip(), test, text.split(operator))
            for operators, test in _TESTS
            for operator in operators.split("|")
            if text.count(operator) == 1
        )
        self.operator, self.test, words = next(parsed, ("", _equal, ["", ""]))
        self.key, self.value = (word.strip() for word in words)
        if self.constant is None and (not self.operator or "." in self.key):
            raise InvalidJob(
                f"filter: {text!r} does not compare a field of the models", hint="For example: 'task == ic'."
            )

    def decide(self, values: Mapping[str, Any]) -> bool | None:
        if self.constant is not None:
            return _CONSTANTS[self.constant]
        if self.key not in values:
            return None
        value = values[self.key]
        is_met = value is not None and self.test(value, self.value)
        return is_met != ("not" in self.operator or "!" in self.operator)


def list_jumpstart_models(
    filter: Identity | str = "true",
    region: str | None = None,
    list_incomplete_models: bool = False,
    list_old_models: bool = False,
    list_versions: bool = False,
    sagemaker_session: Any = None,
) -> list[Any]:
    """The names of the JumpStart models that pass a filter. The arguments have the SDK's names.

    Args:
        filter: ``And("task == ic", "training_supported == True")``, or one comparison.
        list_incomplete_models: include models that lack a field that the filter compares.
        list_old_models: with ``list_versions``, return all versions instead of the newest.
        list_versions: return pairs of a name and a version instead of names.
    """
    wanted = filter if isinstance(filter, Identity) else Identity(filter)
    session, _, bucket = place(sagemaker_session, region)

    def passes(header: Mapping[str, Any]) -> bool:
        found = wanted.decide(values := _values(header))
        if found is None:
            found = wanted.decide({**json.loads(session.read_s3_file(bucket, header["spec_key"])), **values})
        return list_incomplete_models if found is None else found

    headers = [*manifest(session, bucket), *manifest(session, bucket, _PROPRIETARY)]
    with ThreadPoolExecutor(16) as threads:
        passed = [header for header, good in zip(headers, threads.map(passes, headers), strict=True) if good]
    versions = defaultdict(set)
    for header in passed:
        versions[header["model_id"]].add(Version(header["version"]))
    if not list_versions:
        return sorted(versions)
    return [
        (name, str(version))
        for name in sorted(versions)
        for version in sorted(versions[name], reverse=True)[: None if list_old_models else 1]
    ]


def _values(header: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a model that are known without its description: its name is ``framework-task-...``."""
    parts = header["model_id"].split("-", 2)
    framework, task = parts[:2] if len(parts) == 3 else ("", "")
    is_proprietary = header["spec_key"].startswith("proprietary-models/")
    kind = "proprietary" if is_proprietary else "open_weights"
    return {**header, "framework": framework, "task": task, "model_type": kind}
