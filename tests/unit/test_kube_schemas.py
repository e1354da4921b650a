"""The helper with which tests check documents against the published schemas of Kubernetes."""

from __future__ import annotations

from typing import Any

import pytest
from kube_schemas import VERSIONS, schema_errors, validate_everywhere


def _job(**spec: Any) -> dict[str, Any]:
    container = {"name": "train", "image": "python"}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train"},
        "spec": {"template": template, **spec},
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_names_fields_that_it_does_not_have(version: str) -> None:
    job = _job(completionMode="Indexed", completionmode="Indexed")
    assert schema_errors(job, version) == [
        "spec: Additional properties are not allowed ('completionmode' was unexpected)"
    ]


def test_a_field_may_be_too_new_for_a_version() -> None:
    validate_everywhere([_job(completionMode="Indexed", suspend=True)])
    newer = _job(successPolicy={"rules": [{"succeededIndexes": "0"}]})
    assert schema_errors(newer, "1.37") == []
    with pytest.raises(AssertionError, match=r"Job train in Kubernetes 1.29: .*successPolicy"):
        validate_everywhere([newer])


def test_a_kind_of_a_crd_has_no_schema_here() -> None:
    with pytest.raises(LookupError, match=r"1.29 has no kind jobset"):
        schema_errors({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"}, "1.29")
