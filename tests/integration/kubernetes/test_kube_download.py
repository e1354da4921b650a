"""Outputs on a volume of the cluster are copied to a machine that does not mount it."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest
from click.testing import CliRunner
from kube_fixtures import Namespace
from kube_training import estimator

from cloudtrain.cli import cli
from cloudtrain.errors import NotFound
from cloudtrain.platforms.kubernetes import KubernetesPlatform

SAVES = """
import os, pathlib
if os.environ["RANK"] == "0":
    folder = pathlib.Path(os.environ["SM_MODEL_DIR"], "parts")
    folder.mkdir()
    (folder / "weights").write_bytes(bytes(range(256)) * 1000)
    (folder / "empty").touch()
    (folder / "caf\\u00e9 1").write_text("x")
"""


def test_a_model_on_a_claim_can_be_downloaded(kubernetes: Namespace, tmp_path: Path) -> None:
    claim = kubernetes.claim("outputs")
    estimator(tmp_path, SAVES, instance_count=1).fit(job_name="packed")
    estimator(tmp_path, SAVES, instance_count=1, disable_output_compression=True).fit(job_name="loose")
    target = tmp_path / "here"
    for name in ("packed", "loose"):
        done = CliRunner().invoke(cli, ["download", name, "--to", str(target)])
        assert done.exit_code == 0, done.output
    with tarfile.open(target / "model.tar.gz") as archive:
        assert "parts/weights" in [name.removeprefix("./") for name in archive.getnames()]
    found = {path.name: path.read_bytes() for path in (target / "model" / "parts").iterdir()}
    assert found == {"weights": bytes(range(256)) * 1000, "empty": b"", "caf\u00e9 1": b"x"}
    assert sorted(os.listdir(target)) == ["model", "model.tar.gz"]
    kubernetes.wait_until(
        lambda: (
            sorted(job["metadata"]["name"] for job in kubernetes.bench.list("jobs", kubernetes.name))
            == ["loose", "packed"]
        ),
        "the removal of the Jobs that read the volume",
    )
    (claim / "out/packed/output/model.tar.gz").unlink()
    with pytest.raises(NotFound, match="is not on the volume"):
        KubernetesPlatform().download("packed", "file:///outputs/out/packed/output/model.tar.gz", target)
