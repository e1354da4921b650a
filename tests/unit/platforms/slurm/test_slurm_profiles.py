"""Profiles of clusters in the config file, below the options of a job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cloudtrain.config import read_config
from cloudtrain.errors import InvalidJob
from cloudtrain.platforms.slurm.profile import instance_type_notes, login_of, with_profile
from cloudtrain.spec import TrainingJob

ONE = """
output_path: s3://bucket/out
slurm:
  profiles:
    kraken: {login: kraken.example.org, folder: $SCRATCH/ct, partition: gpu, mem: 4G, modules: [cuda], sbatch: {a: 1}}
  instance_types:
    ml.p4d.24xlarge: {partition: big, gpus: 8, gpu_type: a100}
    ml.raw: {gres: "gpu:v100:2"}
"""
TWO = """
slurm:
  profiles:
    kraken: {login: kraken, account: physics}
    theta:
      login: theta
      instance_types:
        ml.p4d.24xlarge: {partition: a100}
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "config.yaml"
    monkeypatch.setenv("CLOUDTRAIN_CONFIG", str(path))
    path.write_text("")
    return path


def options(own: dict[str, Any] | None = None, instance_type: str | None = None) -> dict[str, Any]:
    job = TrainingJob.from_dict(
        {"entry_point": "train.py", "platform_options": own or {}, "instance_type": instance_type}
    )
    return with_profile(job).platform_options


def refused(config: Path, text: str) -> str:
    config.write_text(text)
    with pytest.raises(InvalidJob) as caught:
        options()
    return str(caught.value).replace(str(config), "config.yaml")


def test_a_sole_profile_is_the_default(config: Path) -> None:
    config.write_text(ONE)
    base = {
        "profile": "kraken",
        "login": "kraken.example.org",
        "folder": "$SCRATCH/ct",
        "partition": "gpu",
        "mem": "4G",
        "modules": ["cuda"],
        "sbatch": {"a": 1},
    }
    assert options() == base
    own = {"partition": "debug", "mem_per_cpu": "1G", "sbatch": {"b": 2}, "modules": []}
    expected = {**base, **own, "sbatch": {"a": 1, "b": 2}}
    del expected["mem"]
    assert options(own) == expected
    assert options({"login": "other", "folder": "/x"}) == {"login": "other", "folder": "/x"}
    assert read_config() == {"output_path": "s3://bucket/out"}
    assert options() == options(options())  # an estimator may submit a resolved job again


def test_one_of_several_profiles_is_chosen(config: Path) -> None:
    config.write_text(TWO)
    assert options({"profile": "theta"}) == {"profile": "theta", "login": "theta"}
    assert options({"login": "kraken"})["account"] == "physics"
    with pytest.raises(InvalidJob, match="several profiles") as caught:
        options()
    assert "Known: kraken, theta." in str(caught.value)
    with pytest.raises(InvalidJob, match=r"no profile 'tetha'\n  Did you mean 'theta'\?"):
        options({"profile": "tetha"})
    assert [login_of(name) for name in ("theta", "me@host")] == ["theta", "me@host"]


def test_an_instance_type_is_a_row_of_the_table(config: Path) -> None:
    config.write_text(ONE)
    found = options(instance_type="ml.p4d.24xlarge")
    assert (found["partition"], found["gpus"], found["gpu_type"]) == ("big", 8, "a100")
    found = options({"gpus": 2}, "ml.p4d.24xlarge")
    assert (found["partition"], found["gpus"], found["gpu_type"]) == ("big", 2, "a100")
    found = options({"gpus": 2}, "ml.raw")
    assert found["gpus"] == 2
    assert "gres" not in found
    found = options({"gres": "gpu:1"}, "ml.p4d.24xlarge")
    assert found["gres"] == "gpu:1"
    assert "gpus" not in found
    config.write_text(TWO)
    assert options({"profile": "theta"}, "ml.p4d.24xlarge")["partition"] == "a100"


def test_an_instance_type_without_a_row(config: Path) -> None:
    assert options(instance_type="local") == {}
    with pytest.raises(InvalidJob, match="the cluster has no ml") as caught:
        options(instance_type="ml.p4d.24xlarge")
    assert "ml.p4d.24xlarge: {partition: gpu, gpus: 8}" in str(caught.value)
    assert options({"gpus": 4}, "ml.p4d.24xlarge") == {"gpus": 4}
    job = TrainingJob.from_dict(
        {"entry_point": "train.py", "platform_options": {"gpus": 4}, "instance_type": "ml.p4d.24xlarge"}
    )
    assert instance_type_notes(job) == [
        "instance_type: ml.p4d.24xlarge is not in the table of the cluster; the job gets what platform_options say"
    ]
    config.write_text(ONE.replace("partition: gpu, ", ""))
    with pytest.raises(InvalidJob, match=r"Did you mean 'ml.p4d.24xlarge'\?"):
        options(instance_type="ml.p4d.24xlage")


def test_a_mistake_is_named_with_its_place(config: Path) -> None:
    text = refused(config, "slurm: {profiles: {kraken: {partitoin: gpu}}}")
    assert text == (
        "config.yaml: slurm.profiles.kraken: there is no option 'partitoin'\n  Did you mean 'partition'?"
    )
    assert "config.yaml: slurm.profiles.kraken.gpus" in refused(
        config, "slurm: {profiles: {kraken: {gpus: many}}}"
    )
    assert "config.yaml: slurm.instance_types.x: there is no option" in refused(
        config, "slurm: {instance_types: {x: {gpu: 1}}}"
    )
    assert "a profile cannot name another" in refused(config, "slurm: {profiles: {a: {profile: b}}}")
    assert "config.yaml: slurm.profiles.a: expected a mapping, got" in refused(
        config, "slurm: {profiles: {a: }}"
    )
    assert "config.yaml: slurm.profiles.a: the name 1 is not text" in refused(
        config, "slurm: {profiles: {a: {1: 2}}}"
    )
    assert "a profile has an empty name" in refused(config, 'slurm: {profiles: {"": {login: kraken}}}')
    assert "slurm is not a mapping" in refused(config, "slurm: [a]")
    assert "profile" in refused(config, "slurm: {profile: {}}")
    assert "Did you mean 'slurm'?" in _config_error(config, "slrum: {}")


def _config_error(config: Path, text: str) -> str:
    config.write_text(text)
    with pytest.raises(InvalidJob) as caught:
        read_config()
    return str(caught.value)
