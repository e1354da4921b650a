"""A source archive that arrives altered is fetched again."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path

import pytest
from s3_proxy import Answer, Exchange, s3_proxy

from cloudtrain.contract import Paths
from cloudtrain.errors import StorageError
from cloudtrain.runtime.host_config import HostConfig
from cloudtrain.runtime.inputs.fetch import fetch_source
from cloudtrain.storage import open_store
from cloudtrain.testing import S3Server


@pytest.mark.parametrize(("altered", "fetched"), [(1, True), (1000, False)])
def test_a_source_archive_that_arrives_altered(
    altered: int, fetched: bool, s3: str, s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        tar.addfile(tarfile.TarInfo("train.py"))
    data = archive.getvalue()
    open_store(f"s3://{s3}").write("source.tar.gz", data)
    paths = Paths(tmp_path)
    paths.make()
    document = {"sagemaker_submit_directory": json.dumps(f"s3://{s3}/source.tar.gz")}
    (paths.input_config / "hyperparameters.json").write_text(json.dumps(document))
    config = HostConfig.read(paths, {"CLOUDTRAIN_SOURCE_SHA256": hashlib.sha256(data).hexdigest()})
    left = altered

    def fault(exchange: Exchange) -> Answer:
        nonlocal left
        status, headers, body = exchange.forward()
        if exchange.method == "GET" and left:
            left -= 1
            headers = [(name, value) for name, value in headers if "checksum" not in name.lower()]
            body = body[:-1] + bytes([body[-1] ^ 1])
        return status, headers, body

    with s3_proxy(s3_server.env["AWS_ENDPOINT_URL_S3"], fault) as (endpoint, _):
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", endpoint)
        if fetched:
            fetch_source(config)
            assert (paths.code / "train.py").exists()
        else:
            with pytest.raises(StorageError, match="does not have the SHA-256"):
                fetch_source(config)
    assert left == max(0, altered - 3)
