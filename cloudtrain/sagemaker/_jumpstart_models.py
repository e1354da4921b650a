"""``list_jumpstart_models`` of the SageMaker SDK, and its filters."""

from __future__ import annotations

import json
from ast import literal_eval
from collections import defaultdict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from packaging.version import Version

from cloudtrain.errors import InvalidJob
from cloudtrain.sagemaker._jumpstart import manifest, place

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
"""The operators in the order in which a filter is searched for them, and what each compares, apart from a "not"."""


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
    """The models of JumpStart that pass a filter, by name. The names of its arguments are the SDK's.

    Args:
        filter: ``And("task == ic", "training_supported == True")``, or one comparison.
        list_incomplete_models: also those that lack a field that the filter compares.
        list_old_models: with ``list_versions``, all versions instead of the newest.
        list_versions: pairs of a name and a version instead of names.
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
    """The fields of a model that need no description: its name is ``framework-task-...``."""
    parts = header["model_id"].split("-", 2)
    framework, task = parts[:2] if len(parts) == 3 else ("", "")
    is_proprietary = header["spec_key"].startswith("proprietary-models/")
    kind = "proprietary" if is_proprietary else "open_weights"
    return {**header, "framework": framework, "task": task, "model_type": kind}
