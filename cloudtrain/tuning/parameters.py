"""What a hyperparameter may be: a range of numbers, or one of some values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from cloudtrain.errors import InvalidJob, nearest

SCALING_TYPES = ("Auto", "Linear", "Logarithmic", "ReverseLogarithmic")


class ParameterRange:
    """What the three kinds of ranges have in common."""

    kind: ClassVar[str]
    """``Continuous``, ``Categorical`` or ``Integer``: the beginning of its field in a request."""

    def as_tuning_range(self, name: str, *, as_json: bool = False) -> dict[str, Any]:
        """The range as CreateHyperParameterTuningJob wants it.

        Args:
            name: of the hyperparameter.
            as_json: whether the container reads hyperparameters as JSON.
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
            raise InvalidJob(f"{where}: both ends must be numbers")
        if not self.min_value <= self.max_value:
            raise InvalidJob(f"{where}: the first end is above the second")
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
    """Any number from ``min_value`` to ``max_value``.

    ``scaling_type`` is how the range is searched: ``Auto``, ``Linear``, ``Logarithmic``, ``ReverseLogarithmic``.
    Raises InvalidJob where the ends are no numbers, or the wrong way round.
    """

    kind = "Continuous"


@dataclass(frozen=True)
class IntegerParameter(_Numbers):
    """Any integer from ``min_value`` to ``max_value``, both included. Else as `ContinuousParameter`."""

    kind = "Integer"

    def __post_init__(self) -> None:
        super().__post_init__()
        if int(self.min_value) != self.min_value or int(self.max_value) != self.max_value:
            raise InvalidJob(f"IntegerParameter({self.min_value!r}, {self.max_value!r}): not integers")


class CategoricalParameter(ParameterRange):
    """One of ``values``; a single one stands for a list of itself. Raises InvalidJob where there is none."""

    kind = "Categorical"

    def __init__(self, values: Any) -> None:
        values = list(values) if isinstance(values, (list, tuple)) else [values]
        if not values:
            raise InvalidJob("CategoricalParameter: there is no value to choose")
        self.values = [_text(value) for value in values]

    def as_tuning_range(self, name: str, *, as_json: bool = False) -> dict[str, Any]:
        return {
            "Name": name,
            "Values": [json.dumps(text) for text in self.values] if as_json else self.values,
        }

    def __repr__(self) -> str:
        return f"CategoricalParameter({self.values!r})"


def range_fields(ranges: Mapping[str, ParameterRange], *, as_json: bool) -> dict[str, Any]:
    """``ParameterRanges`` of a request: all three kinds, each in the order in which its names were given."""
    return {
        f"{kind.kind}ParameterRanges": [
            parameter.as_tuning_range(name, as_json=as_json)
            for name, parameter in ranges.items()
            if isinstance(parameter, kind)
        ]
        for kind in (ContinuousParameter, CategoricalParameter, IntegerParameter)
    }


def _is_number(value: Any) -> bool:
    try:
        return not isinstance(value, (bool, str)) and float(value) == float(value)
    except (TypeError, ValueError):
        return False


def _text(value: Any) -> str:
    """A value as the script's command line shows it; lists and dicts as JSON, which it can read."""
    return json.dumps(value) if isinstance(value, (list, dict)) else str(value)
