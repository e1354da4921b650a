"""The metrics of a job in the status of a TrainJob, by the protocol of Trainer's status server."""

from __future__ import annotations

import datetime
import json
import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from cloudtrain.contract import Paths
from cloudtrain.runtime.trainer_status import LONGEST_NAME, MOST_METRICS

PATH = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/ml/trainjobs/job/status"
SCRIPT = """
import json, os, pathlib
for step in range(300):
    print("m%03d=%d" % (step, step))
print("m000=0.25")
event = {"event": "step", "step": 41, "time": 1, "source": "j"}
with pathlib.Path(os.environ["SM_OUTPUT_DIR"], "events.jsonl").open("a") as file:
    file.write(json.dumps(event) + "\\n")
"""


class StatusServer(ThreadingHTTPServer):
    """Trainer's status server: HTTPS, a token of the job, one path."""

    def __init__(self, certificate: Path, key: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self.reports: list[dict[str, Any]] = []
        self.answer = 200


class _Handler(BaseHTTPRequestHandler):
    server: StatusServer

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == PATH and self.headers["Authorization"] == "Bearer token-of-the-job":
            self.server.reports.append(body)
            self.send_response(self.server.answer)
        else:
            self.send_response(403)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing."""


def write_certificate(certificate: Path, key: Path) -> None:
    """A certificate for localhost that is its own authority."""
    private, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.timezone.utc)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    signed = (
        x509.CertificateBuilder(name, name, private.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(private, hashes.SHA256())
    )
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    certificate.write_bytes(signed.public_bytes(encoding))
    key.write_bytes(private.private_bytes(encoding, form, serialization.NoEncryption()))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[StatusServer]:
    certificate, key = tmp_path / "ca.crt", tmp_path / "key.pem"
    write_certificate(certificate, key)
    (tmp_path / "token").write_text("token-of-the-job\n")
    with StatusServer(certificate, key) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def run(folder: Path, script: str, url: str) -> subprocess.CompletedProcess[str]:
    paths = Paths(folder / "ml")
    paths.make()
    (paths.code / "train.py").write_text(script)
    (paths.input_config / "hyperparameters.json").write_text(json.dumps({"sagemaker_program": "train.py"}))
    variables = {
        "KUBEFLOW_TRAINER_SERVER_URL": url,
        "KUBEFLOW_TRAINER_SERVER_CA_CERT": str(folder / "ca.crt"),
        "KUBEFLOW_TRAINER_SERVER_TOKEN": str(folder / "token"),
        "HTTPS_PROXY": "http://127.0.0.1:9",
        "CLOUDTRAIN_METRIC_DEFINITIONS": json.dumps([[f"m{n:03}", f"m{n:03}=(.+)"] for n in range(300)]),
        "SAGEMAKER_BASE_DIR": str(paths.base),
    }
    return subprocess.run(
        [sys.executable, "-m", "cloudtrain.runtime"],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=240,
    )


def test_the_status_has_the_last_values_within_the_limits_of_the_api(
    server: StatusServer, tmp_path: Path
) -> None:
    from kubeflow_trainer_api import models

    done = run(tmp_path, SCRIPT, f"https://localhost:{server.server_port}{PATH}")
    assert done.returncode == 0, done.stderr
    report = server.reports[-1]
    models.TrainerV1alpha1UpdateTrainJobStatusRequest.from_dict(report)
    status = report["trainerStatus"]
    assert status["progressPercentage"] == 100 and status["estimatedRemainingSeconds"] == 0
    assert status["lastUpdatedTime"].endswith("Z")
    metrics = {metric["name"]: metric["value"] for metric in status["metrics"]}
    assert len(status["metrics"]) == len(metrics) == MOST_METRICS
    assert metrics["m000"] == "0.25" and metrics["m007"] == "7.0"
    assert all(0 < len(text) <= LONGEST_NAME for pair in metrics.items() for text in pair)


def test_a_failed_job_is_not_complete(server: StatusServer, tmp_path: Path) -> None:
    script = SCRIPT.replace("300", "1") + "raise SystemExit(3)"
    done = run(tmp_path, script, f"https://localhost:{server.server_port}{PATH}")
    assert done.returncode == 3
    status = server.reports[-1]["trainerStatus"]
    values = {metric["name"]: metric["value"] for metric in status["metrics"]}
    assert values == {"m000": "0.25", "step": "41"} and "progressPercentage" not in status


@pytest.mark.parametrize("path", [PATH, "/elsewhere"])
def test_a_job_does_not_fail_with_the_server(server: StatusServer, tmp_path: Path, path: str) -> None:
    server.answer = 500
    done = run(tmp_path, "print('m001=2')", f"https://localhost:{server.server_port}{path}")
    assert done.returncode == 0 and "Traceback" not in done.stderr
