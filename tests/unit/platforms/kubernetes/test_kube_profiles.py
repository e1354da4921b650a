"""Instance types and profiles become options of a job, below its own."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import moto
import pytest

from cloudtrain.errors import InvalidJob
from cloudtrain.platforms.kubernetes.options import NODE_LABEL, known_type, with_profile
from cloudtrain.spec import TrainingJob

CONFIG = """
kubernetes:
  profiles:
    research:
      context: research
      namespace: vision
      node_selector: {pool: gpu}
      instance_types:
        a100: {gpus: 1, node_selector: {product: A100}}
    other: {context: other, namespace: ops}
  instance_types:
    ml.p4d.24xlarge: {resources: {vpc.amazonaws.com/efa: 4}, memory: 1000Gi}
"""
KUBECONFIG = """
current-context: research
contexts:
- {name: research, context: {cluster: c, user: u}}
- {name: other, context: {cluster: c, user: u}}
clusters:
- {name: c, cluster: {server: "https://localhost:1"}}
users:
- {name: u, user: {token: t}}
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(KUBECONFIG)
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG)
    return path


def options(own: dict[str, Any] | None = None, instance_type: str | None = None) -> dict[str, Any]:
    job = TrainingJob.from_dict({"platform_options": own or {}, "instance_type": instance_type})
    return with_profile(job).platform_options


def test_the_profile_of_the_context_is_the_default(config: Path) -> None:
    found = options()
    assert (found["profile"], found["namespace"]) == ("research", "vision")
    assert options({"context": "other"})["namespace"] == "ops"
    assert options({"profile": "other", "namespace": "mine"})["namespace"] == "mine"
    with pytest.raises(InvalidJob, match=r"no profile 'researhc'\n  Did you mean 'research'\?"):
        options({"profile": "researhc"})
    assert options() == options(options())


def test_an_instance_type_is_a_row_of_the_table(config: Path) -> None:
    found = options({"node_selector": {"zone": "a"}}, "a100")
    assert found["gpus"] == 1
    assert found["node_selector"] == {"pool": "gpu", "product": "A100", "zone": "a"}
    found = options(instance_type="ml.p4d.24xlarge")
    assert found["gpus"] == 8
    assert found["resources"] == {"vpc.amazonaws.com/efa": 4}
    assert found["node_selector"] == {"pool": "gpu", NODE_LABEL: "p4d.24xlarge"}
    assert options({"gpus": 4}, "ml.p4d.24xlarge")["gpus"] == 4


def test_an_unknown_instance_type() -> None:
    with pytest.raises(InvalidJob, match="the GPUs and nodes of Standard_ND96 are unknown") as raised:
        options(instance_type="Standard_ND96")
    assert "kubernetes: {instance_types: {Standard_ND96: {gpus: 8}}}" in raised.value.hint
    assert options({"gpus": 8}, "Standard_ND96") == {"gpus": 8}
    assert options(instance_type="local") == {}


def test_a_mistake_is_named_with_its_place(config: Path) -> None:
    config.write_text("kubernetes: {instance_types: {a100: {gpu: 1}}}")
    with pytest.raises(InvalidJob, match=r"kubernetes\.instance_types\.a100: there is no option 'gpu'"):
        options()
    config.write_text("kubernetes: {profiles: {a: {gpus: many}}}")
    with pytest.raises(InvalidJob, match=r"kubernetes\.profiles\.a\.gpus"):
        options()


def test_types_of_ec2_have_the_gpus_of_the_documentation() -> None:
    """moto carries the answer to DescribeInstanceTypes for all types."""
    table = Path(moto.__file__).parent / "ec2" / "resources" / "instance_types.json.gz"
    described = json.loads(gzip.decompress(table.read_bytes()))
    known = {name: known_type(name) for name in described}
    wrong = {
        name: found
        for name, found in known.items()
        if found and found.get("gpus", 0) != _nvidia(described[name])
    }
    assert wrong == {}
    unknown = [name for name, found in known.items() if found is None]
    assert {name.partition(".")[0][:3] for name in unknown} <= {
        *(
            "dl1",
            "dl2",
            "f1",
            "f2",
            "g3",
            "g3s",
            "g4a",
            "g6f",
            "gr6",
            "in",
            "inf",
            "mac",
            "p2",
            "trn",
            "u-",
            "vt1",
        ),
        *("u-3", "u-6"),
    }


def _nvidia(described: dict[str, Any]) -> int:
    others = ("InferenceAcceleratorInfo", "NeuronInfo", "FpgaInfo", "MediaAcceleratorInfo")
    if any(described.get(name) for name in others):
        return -1
    gpus = described.get("GpuInfo", {}).get("Gpus", [])
    return sum(gpu["Count"] if gpu["Manufacturer"] == "NVIDIA" else -100 for gpu in gpus)


@pytest.mark.parametrize(
    ("name", "gpus"), [("a2-highgpu-4g", 4), ("a3-megagpu-8g", 8), ("n2-standard-16", None)]
)
def test_types_of_google(name: str, gpus: int | None) -> None:
    found = known_type(name)
    assert found is not None
    assert (found.get("gpus"), found["node_selector"]) == (gpus, {NODE_LABEL: name})
