"""AWS simulated by moto in a separate process, which counts the calls of its clients."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

ACCOUNT = "123456789012"
REGION = "us-east-1"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/SageMakerRole"
BUCKET = f"sagemaker-{REGION}-{ACCOUNT}"

_COUNT_PATH = "/calls"
_SERVICE = re.compile(r"Credential=[^,]*/([a-z0-9-]+)/aws4_request")
_DECISION = "<member><EvalActionName>{}</EvalActionName><EvalDecision>allowed</EvalDecision></member>"
_SIMULATION = (
    '<SimulatePrincipalPolicyResponse xmlns="https://iam.amazonaws.com/doc/2010-05-08/">'
    "<SimulatePrincipalPolicyResult><EvaluationResults>{}</EvaluationResults><IsTruncated>false</IsTruncated>"
    "</SimulatePrincipalPolicyResult></SimulatePrincipalPolicyResponse>"
)


TELEMETRY_OFF = "SchemaVersion: '1.0'\nSageMaker:\n  PythonSDK:\n    Modules:\n      TelemetryOptOut: true\n"


def without_telemetry(folder: Path) -> dict[str, str]:
    """The environment that turns off the telemetry of SageMaker's SDKs, which would call another server."""
    config = folder / "sagemaker.yaml"
    config.write_text(TELEMETRY_OFF)
    return {"SAGEMAKER_USER_CONFIG_OVERRIDE": str(config)}


@dataclass(frozen=True)
class Aws:
    """A running server."""

    endpoint: str

    @property
    def env(self) -> dict[str, str]:
        """The environment of a client of this server."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_DEFAULT_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def remove_bucket(self) -> None:
        """Remove the default bucket and its objects, so that the account is like new."""
        import boto3

        session = boto3.Session("testing", "testing", region_name=REGION)
        bucket = session.resource("s3", endpoint_url=self.endpoint).Bucket(BUCKET)
        if bucket.creation_date:
            bucket.objects.all().delete()
            bucket.delete()
        self.calls()

    def calls(self) -> list[str]:
        """The calls since this method was last used: the service, and the operation or HTTP method."""
        with urllib.request.urlopen(self.endpoint + _COUNT_PATH, timeout=60) as answer:
            calls: list[str] = json.load(answer)
        return calls


@contextmanager
def running_aws() -> Iterator[Aws]:
    """A server with the role `ROLE`, which SageMaker may assume, and the default bucket."""
    with subprocess.Popen([sys.executable, __file__], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            aws = Aws(f"http://127.0.0.1:{process.stdout.readline().strip()}")
            _prepare(aws)
            yield aws
        finally:
            process.kill()


def _prepare(aws: Aws) -> None:
    import boto3

    session = boto3.Session("testing", "testing", region_name=REGION)
    allow = {
        "Effect": "Allow",
        "Principal": {"Service": "sagemaker.amazonaws.com"},
        "Action": "sts:AssumeRole",
    }
    trust = json.dumps({"Version": "2012-10-17", "Statement": [allow]})
    iam = session.client("iam", endpoint_url=aws.endpoint)
    iam.create_role(RoleName=ROLE.rpartition("/")[2], AssumeRolePolicyDocument=trust)
    session.client("s3", endpoint_url=aws.endpoint).create_bucket(Bucket=BUCKET)
    aws.calls()


def _serve() -> None:
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Quiet(WSGIRequestHandler):
        protocol_version = "HTTP/1.1"

        def log(self, *_: object) -> None:
            pass

    counted = _Counted(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, counted, threaded=True, request_handler=Quiet)
    print(server.server_port, flush=True)
    server.serve_forever()


class _Counted:
    """moto with a counter and SimulatePrincipalPolicy, which SDK v3 needs and moto lacks. It allows everything."""

    def __init__(self, moto: Callable[..., Iterable[bytes]]) -> None:
        self._moto = moto
        self._calls: list[str] = []

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["PATH_INFO"] == _COUNT_PATH:
            calls, self._calls = self._calls, []
            return _answer(json.dumps(calls), "application/json", start_response)
        service = _SERVICE.search(environ.get("HTTP_AUTHORIZATION", ""))
        form = self._form(environ) if service and service[1] in ("iam", "sts") else {}
        [operation] = form.get("Action", [environ.get("HTTP_X_AMZ_TARGET") or environ["REQUEST_METHOD"]])
        self._calls.append(f"{service[1] if service else '?'} {operation}")
        if operation == "SimulatePrincipalPolicy":
            actions = [value for key, [value] in form.items() if key.startswith("ActionNames.")]
            decisions = "".join(_DECISION.format(action) for action in actions)
            return _answer(_SIMULATION.format(decisions), "text/xml", start_response)
        return self._moto(environ, start_response)

    def _form(self, environ: dict[str, Any]) -> dict[str, list[str]]:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = io.BytesIO(body)
        return parse_qs(body.decode())


def _answer(text: str, kind: str, start_response: Callable[..., Any]) -> list[bytes]:
    data = text.encode()
    start_response("200 OK", [("Content-Type", kind), ("Content-Length", str(len(data)))])
    return [data]


if __name__ == "__main__":
    _serve()
