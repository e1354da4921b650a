"""Ranges of hyperparameters: intervals of numbers, and lists of values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from cloudtrain.errors import InvalidJob, nearest

SCALING_TYPES = ("Auto", "Linear", "Logarithmic", "ReverseLogarithmic")


class ParameterRange:
    """The base class of the three kinds of ranges."""

    kind: ClassVar[str]
    """``Continuous``, ``Categorical`` or ``Integer``: the start of the field's name in a request."""

    def as_tuning_range(self, name: str, *, as_json: bool = False) -> dict[str, Any]:
        """The range in the format of CreateHyperParameterTuningJob.

        Args:
            name: the name of the hyperparameter.
            as_json: encode values as JSON, for containers that decode them.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class _Numbers(ParameterRange):
    min_value: float
    max_value: float
    scaling_type: str = "Auto"

    def __post_init__(self) -> None:
        where = f"{type(self).__name__}({self.min_value!r}, {self.max_value!r})"
        if not _is_number(self.min_value) or not _is_number(self.max_value):
            raise InvalidJob(f"{where}: min_value and max_value must be numbers")
        if not self.min_value <= self.max_value:
            raise InvalidJob(f"{where}: min_value is greater than max_value")
        if self.scaling_type not in SCALING_TYPES:
            raise InvalidJob(
                f"{where}: unknown scaling_type {self.scaling_type!r}",
                hint=nearest(str(self.scaling_type), SCALING_TYPES),
            )

    def as_tuning_range(self, name: str, *, as_json: bool = False) -> dict[str, Any]:
        return {
            "Name": name,
            "MinValue": str(self.min_value),
            "MaxValue": str(self.max_value),
            "ScalingType": self.scaling_type,
        }


@dataclass(frozen=True)
class ContinuousParameter(_Numbers):
    """A number from ``min_value`` to ``max_value``.

    ``scaling_type`` is the scale of the search: ``Auto``, ``Linear``, ``Logarithmic`` or ``ReverseLogarithmic``.
    Raises InvalidJob if a bound is not a number, or ``min_value`` is greater than ``max_value``.
    """

    kind = "Continuous"


@dataclass(frozen=True)
class IntegerParameter(_Numbers):
    """An integer from ``min_value`` to ``max_value``, inclusive. Otherwise like `ContinuousParameter`."""

    kind = "Integer"

    def __post_init__(self) -> None:
        super().__post_init__()
        if int(self.min_value) != self.min_value or int(self.max_value) != self.max_value:
            raise InvalidJob(f"IntegerParameter({self.min_value!r}, {self.max_value!r}): not integers")


class CategoricalParameter(ParameterRange):
    """One of ``values``, which is a list or a single value. Raises InvalidJob if it is empty."""

    kind = "Categorical"

    def __init__(self, values: Any) -> None:
        values = list(values) if isinstance(values, (list, tuple)) else [values]
        if not values:
            raise InvalidJob("CategoricalParameter: values is empty")
        self.values = [_text(value) for value in values]

    def as_tuning_range(self, name: str, *, as_json: bool = False) -> dict[str, Any]:
        return {
            "Name": name,
            "Values": [json.dumps(text) for text in self.values] if as_json else self.values,
        }

    def __repr__(self) -> str:
        return f"CategoricalParameter({self.values!r})"


def range_fields(ranges: Mapping[str, ParameterRange], *, as_json: bool) -> dict[str, Any]:
    """``ParameterRanges`` of a request: all three kinds, each in the order of ``ranges``."""
    return {
        f"{kind.kind}ParameterRanges": [
            parameter.as_tuning_range(name, as_json=as_json)
            for name, parameter in ranges.items()
            if isinstance(parameter, kind)
        ]
        for kind in (ContinuousParameter, CategoricalParameter, IntegerParameter)
    }


def ranges_of(fields: Mapping[str, Any], *, as_json: bool) -> dict[str, ParameterRange]:
    """The inverse of `range_fields`."""
    found: dict[str, ParameterRange] = {}
    for kind, number in ((ContinuousParameter, float), (IntegerParameter, int)):
        for one in fields.get(f"{kind.kind}ParameterRanges", ()):
            low, high = number(one["MinValue"]), number(one["MaxValue"])
            found[one["Name"]] = kind(low, high, one.get("ScalingType", "Auto"))
    for one in fields.get("CategoricalParameterRanges", ()):
        found[one["Name"]] = CategoricalParameter(
            [json.loads(text) for text in one["Values"]] if as_json else one["Values"]
        )
    return found


def _is_number(value: Any) -> bool:
    try:
        return not isinstance(value, (bool, str)) and float(value) == float(value)
    except (TypeError, ValueError):
        return False


def _text(value: Any) -> str:
    """A value as a command-line argument of the script; lists and dicts are JSON."""
    return json.dumps(value) if isinstance(value, (list, dict)) else str(value)
