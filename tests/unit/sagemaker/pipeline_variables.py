"""Variables of pipelines with the interface of the SageMaker SDK's: what cloudtrain uses of them.

The SDK takes long to install. `tests/soak/test_sdk_pipelines.py` runs the same cases with it.
"""

from __future__ import annotations

from typing import Any


class Variable:
    """A pipeline variable. Like the SDK's, it refuses to be text or a number."""

    def __init__(self, expression: dict[str, Any]) -> None:
        self.expr = expression

    def __str__(self) -> str:
        raise TypeError("Pipeline variables do not support __str__ operation.")

    def __int__(self) -> int:
        raise TypeError("Pipeline variables do not support __int__ operation.")

    expr: Any = None

    def to_string(self) -> Variable:
        return Join(on="", values=[self])


class Parameter(Variable):
    def __init__(self, name: str, default_value: Any = None) -> None:
        super().__init__({"Get": f"Parameters.{name}"})
        self.default_value = default_value


class ParameterString(Parameter):
    def to_string(self) -> Variable:
        return self


class ExecutionVariable(Variable):
    def to_string(self) -> Variable:
        return self


class Join(Variable):
    def __init__(self, on: str = "", values: Any = ()) -> None:
        shown = [value.expr if isinstance(value, Variable) else value for value in values]
        super().__init__({"Std:Join": {"On": on, "Values": shown}})

    def to_string(self) -> Variable:
        return self


for kind in (Variable, Parameter, ParameterString, ExecutionVariable, Join):
    kind.__module__ = "sagemaker.workflow.entities"


class ExecutionVariables:
    PIPELINE_EXECUTION_ID = ExecutionVariable({"Get": "Execution.PipelineExecutionId"})


NAMES = {
    "ExecutionVariables": ExecutionVariables,
    "Join": Join,
    "ParameterString": ParameterString,
    **dict.fromkeys(("ParameterBoolean", "ParameterFloat", "ParameterInteger"), Parameter),
}
"""The names that recorded cases use."""


def evaluated(value: Any) -> Any:
    """``value`` with the expression of each variable, as a pipeline's definition has it."""
    if isinstance(value, Variable):
        return value.expr
    if isinstance(value, dict):
        return {key: evaluated(item) for key, item in value.items()}
    return [evaluated(item) for item in value] if isinstance(value, list) else value
