"""The helper with which tests check custom resources against their definitions."""

from __future__ import annotations

from typing import Any

import pytest
from custom_resources import definition, resource_errors


def _train_job(name: str = "job", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name},
        "spec": {"runtimeRef": {"name": "torch-distributed"}, **spec},
    }


def test_rules_in_cel_are_evaluated() -> None:
    assert resource_errors(_train_job()) == []
    assert resource_errors(_train_job("1job")) != []
    assert resource_errors(_train_job("j" * 64)) != []
    (broken,) = resource_errors(_train_job(managedBy="me"))
    assert broken.startswith(
        ".spec.managedBy: ManagedBy must be trainer.kubeflow.org/trainjob-controller or kueue"
    )


def test_unknown_fields_and_repeated_keys_are_errors() -> None:
    assert resource_errors(_train_job(podTemplateOverrides=[])) == [
        "spec: Additional properties are not allowed ('podTemplateOverrides' was unexpected)"
    ]
    patches = [{"manager": "a/b"}, {"manager": "a/b"}]
    assert resource_errors(_train_job(runtimePatches=patches)) == [
        ".spec.runtimePatches: has two entries with the same ['manager']"
    ]


@pytest.mark.parametrize("plural", ["jobsets", "trainjobs", "mpijobs"])
def test_a_definition_names_its_source(plural: str) -> None:
    assert definition(plural)["metadata"]["name"].startswith(f"{plural}.")
