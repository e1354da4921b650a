"""Uploads that a killed process left unfinished in a bucket."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import boto3
from s3_proxy import Answer, Exchange, s3_proxy

from cloudtrain.storage import open_store
from cloudtrain.storage.opening import ABANDONED_SECONDS, abort_abandoned_uploads
from cloudtrain.testing import S3Server

UPLOAD = """
    import os, sys
    from pathlib import Path
    from cloudtrain.storage import open_store

    # threads call back: one write for a line
    open_store(sys.argv[1]).upload(Path(sys.argv[2]), "model.tar.gz", lambda count: os.write(1, b"part\\n"))
"""


def unfinished(bucket: str) -> list[str]:
    found: Any = boto3.client("s3").list_multipart_uploads(Bucket=bucket)
    return sorted(upload["Key"] for upload in found.get("Uploads", []))


def test_the_upload_of_a_killed_process_is_aborted_and_others_are_not(
    s3: str, s3_server: S3Server, tmp_path: Path
) -> None:
    (tmp_path / "model").write_bytes(os.urandom(40 << 20))

    def only_the_first_part(exchange: Exchange) -> Answer | None:
        number = exchange.path.partition("partNumber=")[2].partition("&")[0]
        return exchange.forward() if number in ("", "1") else None

    with s3_proxy(s3_server.env["AWS_ENDPOINT_URL_S3"], only_the_first_part) as (endpoint, _):
        command = [
            sys.executable,
            "-c",
            textwrap.dedent(UPLOAD),
            f"s3://{s3}/job/output",
            str(tmp_path / "model"),
        ]
        environ = {**os.environ, "AWS_ENDPOINT_URL_S3": endpoint, "CLOUDTRAIN_STORAGE_PATIENCE": "60"}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ) as upload:
            assert upload.stdout
            assert upload.stdout.readline() == "part\n"
            upload.send_signal(signal.SIGKILL)
    client = boto3.client("s3")
    client.create_multipart_upload(Bucket=s3, Key="job/output-2/model.tar.gz")
    assert unfinished(s3) == ["job/output-2/model.tar.gz", "job/output/model.tar.gz"]
    assert (
        abort_abandoned_uploads(f"s3://{s3}/job/output") == 0
    )  # its writer may live: it is not two hours old
    assert ABANDONED_SECONDS > 3600
    time.sleep(2.5)  # the server's times are whole seconds
    assert abort_abandoned_uploads(f"s3://{s3}/job/output", idle=1) == 1
    assert unfinished(s3) == ["job/output-2/model.tar.gz"]
    assert open_store(f"s3://{s3}/job/output").stat("model.tar.gz") is None


def test_abandoned_uploads_of_a_folder_or_missing_bucket_are_ignored(s3: str, tmp_path: Path) -> None:
    assert abort_abandoned_uploads(tmp_path.as_uri()) == 0
    assert abort_abandoned_uploads("s3://no-such-bucket-here/job") == 0
