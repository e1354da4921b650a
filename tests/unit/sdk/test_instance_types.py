"""An instance type is never ignored silently."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cloudtrain import Estimator, InvalidJob
from cloudtrain.spec import TrainingJob
from cloudtrain.submission import default_platform, prepare

ROLE = "arn:aws:iam::123456789012:role/Train"


@pytest.mark.parametrize("kind", ["p3.2xlarge", "g5.xlarge", "c7i.metal-24xl"])
def test_a_missing_ml_is_refused_with_both_ways_out(kind: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('on the laptop')")
    estimator = Estimator(str(tmp_path / "train.py"), role=ROLE, instance_type=kind)
    with pytest.raises(InvalidJob) as caught:
        estimator.fit()
    assert f"{kind} is not an instance type of SageMaker, which begins with ml." in caught.value.message
    assert f"write ml.{kind}" in caught.value.hint
    assert "platform='local'" in caught.value.hint


@pytest.mark.parametrize("role", [{"role": ROLE}, {}])
@pytest.mark.parametrize(
    ("fields", "hint"),
    [
        ({"instance_type": "p3.2xlarge"}, "write ml.p3.2xlarge"),
        ({"instance_type": "local"}, "choose one such as ml.g5.xlarge"),
        (
            {
                "instance_groups": [
                    {"instance_group_name": "a", "instance_type": "g5.xlarge", "instance_count": 1}
                ]
            },
            "write ml.g5.xlarge",
        ),
    ],
)
def test_sagemaker_refuses_it_on_the_client(
    fields: dict[str, Any], hint: str, role: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "train.py").touch()
    job = {"entry_point": str(tmp_path / "train.py"), "platform": "sagemaker", **fields, **role}
    with pytest.raises(InvalidJob, match="is not an instance type of SageMaker") as caught:
        prepare(job, defaults={})
    assert hint in caught.value.hint


def test_a_type_of_a_cluster_names_the_platform_that_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        "slurm: {profiles: {kraken: {login: kraken, instance_types: {fat: {partition: fat}}}}}\n"
        "kubernetes: {instance_types: {a100: {gpus: 1}}}\n"
    )
    monkeypatch.setenv("CLOUDTRAIN_CONFIG", str(config))
    for kind, platform in (("fat", "slurm"), ("a100", "kubernetes"), ("elsewhere", "slurm")):
        with pytest.raises(InvalidJob, match=f"{kind} belongs to a cluster") as caught:
            default_platform(TrainingJob(instance_type=kind))
        assert f"platform='{platform}'" in caught.value.hint


@pytest.mark.parametrize(
    ("fields", "phrases"),
    [
        (
            {"instance_type": "ml.p3.2xlarge"},
            ["ml.p3.2xlarge has no effect on local: the job runs on this machine"],
        ),
        (
            {"role": ROLE, "use_spot_instances": True, "max_wait": 90000},
            ["role, use_spot_instances, max_wait have no effect on local: only SageMaker"],
        ),
        ({"enable_network_isolation": True}, ["enable_network_isolation has no effect on local"]),
        ({"image_uri": "python:3.12"}, ["image_uri has no effect on local"]),
        ({"instance_type": "local_gpu", "max_run": 10, "stop_grace": 1}, []),
    ],
)
def test_what_has_no_effect_on_local_is_named(
    fields: dict[str, Any], phrases: list[str], tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("print('x')")
    job = prepare({"entry_point": str(tmp_path / "train.py"), "platform": "local", **fields}, defaults={})
    assert len(job.warnings) == len(phrases)
    for warning, phrase in zip(job.warnings, phrases, strict=True):
        assert phrase in warning
