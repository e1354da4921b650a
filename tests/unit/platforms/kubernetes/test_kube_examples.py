"""Each job file of examples/kubernetes is one that Kubernetes accepts."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from kube_schemas import validate_everywhere

from cloudtrain.submission import prepare

FOLDER = Path(__file__).parents[4] / "examples" / "kubernetes"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda path: path.name)
def test_an_example_is_valid(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_real")
    fields = {**yaml.safe_load(path.read_text()), "entry_point": str(FOLDER / "train.py")}
    request = prepare(fields, defaults={}).request
    validate_everywhere(request.body["objects"])
    assert "hf_real" not in request.to_json()
