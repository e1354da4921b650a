"""The page about JobSet, TrainJob and MPIJob says what the code does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from kube_operators import jobset_after_failure, jobset_jobs, trainjob_jobset
from kube_renderings import rendered
from kube_schemas import validate_everywhere

from cloudtrain.errors import InvalidJob

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "kubernetes.md"
_, _, TEXT = PAGE.read_text(encoding="utf-8").partition("\n## Jobs as JobSet, TrainJob and MPIJob\n")


def _block(language: str) -> Any:
    return yaml.safe_load(TEXT.partition(f"```{language}\n")[2].partition("```")[0])


def test_the_training_runtime_of_the_page() -> None:
    """It is valid, and retries as a JobSet of cloudtrain does."""
    from kubeflow_trainer_api import models  # 0.8 s of CPU time, in every worker

    runtime = _block("yaml training-runtime.yaml")
    assert models.TrainerV1alpha1ClusterTrainingRuntime.from_dict(runtime)
    options = {"rendering": "trainjob", "training_runtime": runtime["metadata"]["name"]}
    assert _block("yaml") == {"platform_options": options}
    jobset = trainjob_jobset(rendered(instance_count=2, platform_options=options).body["objects"][0], runtime)
    assert models.JobsetV1alpha2JobSet.from_dict(jobset)
    validate_everywhere(jobset_jobs(jobset))
    assert jobset_after_failure(jobset, "PodFailurePolicy", 0) == ("restart", False)
    assert jobset_after_failure(jobset, "BackoffLimitExceeded", 0) == ("fail", False)
    ours = rendered(platform_options={"rendering": "jobset"}).body["objects"][0]["spec"]
    theirs = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]
    mine = ours["replicatedJobs"][0]["template"]["spec"]
    for field in ("podFailurePolicy", "backoffLimit", "backoffLimitPerIndex"):
        assert theirs[field] == mine[field]


def test_the_longest_names_of_the_page() -> None:
    """Of jobs with at most ten hosts."""
    row = next(line for line in TEXT.splitlines() if line.startswith("| longest name"))
    numbers = [int(cell) for cell in row.split("|")[2:-1]]
    for rendering, most in zip(("job", "jobset", "trainjob", "mpijob"), numbers, strict=True):
        options = {"rendering": rendering}
        rendered(job_name="j" * most, instance_count=10, platform_options=options)
        with pytest.raises(InvalidJob, match=r"has .* characters"):
            rendered(job_name="j" * (most + 1), instance_count=10, platform_options=options)
