"""Pods download their source, the runtime and boto3 from S3, and retry while it fails."""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import boto3
import pytest
from botocore.config import Config

from cloudtrain.contract.ending import Ending
from cloudtrain.packaging import runtime_sha256
from cloudtrain.platforms.kubernetes import pod_start
from cloudtrain.platforms.kubernetes.labels import BOTO3_URL, POD_START, RUNTIME_URL, SOURCE_URL
from cloudtrain.platforms.kubernetes.submit import deliver
from cloudtrain.storage import open_store

SCRIPT = """
import os
from pathlib import Path
from cloudtrain.storage import open_store

open_store(os.environ["FOLDER"]).write("from-rank", b"rank")
import boto3
print("boto3 of", boto3.__file__)
(Path(os.environ["SM_MODEL_DIR"]) / "model").write_text("trained")
"""


class Answers(http.server.BaseHTTPRequestHandler):
    """Gives each of the server's answers once, and the last one forever."""

    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, Server)
        server.paths.append(self.path)
        if "Authorization" in self.headers:
            server.tokens.append(self.headers["Authorization"])
        code, body, length = server.answers.pop(0) if len(server.answers) > 1 else server.answers[0]
        self.send_response(code)
        self.send_header("Content-Length", str(length or len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        assert isinstance(self.server, Server)
        self.server.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.do_GET()

    def log_message(self, *_arguments: object) -> None: ...


class Server(http.server.ThreadingHTTPServer):
    """Called with answers: status, body, and the length that the header claims (0: the true one)."""

    def __init__(self, answers: list[tuple[int, bytes, int]]) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.answers, self.paths = answers, list[str]()
        self.tokens, self.bodies = list[str](), list[bytes]()
        self.url = f"http://127.0.0.1:{self.server_port}/bucket/key?X-Amz-Signature=secret"
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    servers: list[Server] = []

    def start(*answers: tuple[int, bytes, int]) -> Server:
        servers.append(Server(list(answers)))
        return servers[-1]

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_start, "FIRST_PAUSE", 0.01)


@pytest.mark.usefixtures("impatient")
def test_a_download_survives_an_outage(
    serve: Callable[..., Server], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data = b"the source" * 1000
    server = serve(
        (503, b"<Error><Code>SlowDown</Code></Error>", 0),
        (200, data[:500], len(data)),
        (200, b"altered", 0),
        (429, b"", 0),
        (200, data, 0),
    )
    digest = hashlib.sha256(data).hexdigest()
    target = tmp_path / "new" / "sourcedir.tar.gz"
    pod_start.download(f"{server.url}\ns3://bucket/key\n{digest}\n", target)
    assert target.read_bytes() == data
    said = capfd.readouterr().err
    assert [part in said for part in ("503 SlowDown", "500 of 10,000 bytes", "expected", "429")] == [True] * 4
    assert "s3://bucket/key: " in said
    assert "secret" not in said


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ((500, b"", 0), r"cannot be downloaded, after \d s: 500 Internal Server Error"),
        (
            (403, b"<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>", 0),
            "its URL is refused with 403 Request has expired, and this pod has no credentials in its environment, and ",
        ),
    ],
)
def test_a_failed_download_has_a_reason_and_no_signature(
    serve: Callable[..., Server],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    answer: tuple[int, bytes, int],
    why: str,
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setattr(pod_start, "PATIENCE", 0.1)
    with pytest.raises(pod_start.CannotStart) as caught:
        pod_start.download(f"{serve(answer).url}\ns3://bucket/key", tmp_path / "target")
    assert str(caught.value).startswith("s3://bucket/key")
    assert re.search(why, str(caught.value))
    assert "secret" not in f"{caught.value}{caught.value.hint}"


@pytest.mark.parametrize("link", ["", "nonsense?secret", "http://[::1/x?secret", "ftp://x y?secret"])
def test_a_damaged_url_is_not_shown(tmp_path: Path, link: str) -> None:
    with pytest.raises(pod_start.CannotStart) as caught:
        pod_start.download(link, tmp_path / "target")
    assert "secret" not in str(caught.value)


def test_a_proxy_is_used(
    serve: Callable[..., Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = serve((200, b"data", 0))
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.server_port}")
    pod_start.download("http://s3.example.com/bucket/key?X-Amz-Signature=x", tmp_path / "target")
    assert proxy.paths == ["http://s3.example.com/bucket/key?X-Amz-Signature=x"]


class PodFiles:
    """The files that are mounted in a pod, and its folders."""

    def __init__(self, folder: Path) -> None:
        self.mounts, self.base = folder / "mounted", folder / "ml"
        self.message = folder / "termination-log"
        documents = {
            "hyperparameters.json": {
                "sagemaker_program": "train.py",
                "sagemaker_submit_directory": "s3://a-bucket/of-the-user/own.tar.gz",
            },
            "inputdataconfig.json": {},
            "resourceconfig.json": {"hosts": ["job-0"], "network_interface_name": "lo"},
        }
        for name in ("config", "secret", "tmp"):
            (self.mounts / name).mkdir(parents=True)
        for name, content in documents.items():
            (self.mounts / "config" / name).write_text(json.dumps(content))
        shutil.copy(POD_START, self.mounts / "config" / "start.py")

    def start(self, python: str, environ: Mapping[str, str]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [python, "-S", str(self.mounts / "config" / "start.py")],
            env={
                **{name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "HOME")},
                "SAGEMAKER_BASE_DIR": str(self.base),
                "TMPDIR": str(self.mounts / "tmp"),
                "JOB_COMPLETION_INDEX": "0",
                "CLOUDTRAIN_TERMINATION_MESSAGE": str(self.message),
                "CLOUDTRAIN_SOURCE_CHANNEL": "code",
                **environ,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, python: str, environ: Mapping[str, str]) -> tuple[int, str]:
        """The exit code, and what was printed."""
        with self.start(python, environ) as process:
            output = process.communicate(timeout=120)[0]
        return process.returncode, output


@pytest.mark.parametrize(("variables", "code"), [({}, 143), ({"CLOUDTRAIN_RESTART_EXIT_CODE": "75"}, 75)])
def test_a_pod_that_waits_for_its_files_ends_when_it_is_deleted(
    serve: Callable[..., Server], tmp_path: Path, variables: dict[str, str], code: int
) -> None:
    pod = PodFiles(tmp_path)
    for name in (SOURCE_URL, RUNTIME_URL):
        (pod.mounts / "secret" / name).write_text(serve((503, b"", 0)).url)
    with pod.start(sys.executable, variables) as process:
        assert process.stdout
        assert "tries again" in process.stdout.readline()
        process.terminate()
        assert process.wait(120) == code


def test_a_pod_without_boto3_works_with_s3(
    s3: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client uploads and signs; the pod downloads, trains, and uploads with the boto3 that it got."""
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "train.py").write_text(SCRIPT)
    archive = Path(shutil.make_archive(str(tmp_path / "sourcedir"), "gztar", tmp_path / "source"))
    location = f"s3://{s3}/jobs/cloudtrain/source"
    open_store(f"{location}/abc").upload(archive, "sourcedir.tar.gz")
    body = {
        "files": {
            "delivery": "s3",
            "source": f"{location}/abc/sourcedir.tar.gz",
            "source_sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
            "location": location,
            "runtime_sha256": runtime_sha256(),
        }
    }
    links = deliver(body)
    shared = {item.key.rpartition("/")[2] for item in open_store(f"s3://{s3}/jobs/cloudtrain/runtime").list()}
    assert shared == {"boto3.zip", "cloudtrain.pyz"}
    assert deliver(body).keys() == links.keys()  # everything is there now

    pod = PodFiles(tmp_path)
    for name, link in links.items():
        (pod.mounts / "secret" / name).write_text(link)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "image"], check=True)
    python = str(tmp_path / "image" / "bin" / "python")
    environ = {"FOLDER": f"s3://{s3}/rank", "CLOUDTRAIN_OUTPUT_URI": f"s3://{s3}/out"}
    code, output = pod.run(python, environ)
    assert code == 0, output
    assert f"boto3 of {pod.base}/input/boto3/boto3/__init__.py" in output
    assert open_store(f"s3://{s3}/rank").read("from-rank") == b"rank"
    assert Ending.from_json(pod.message.read_bytes()).uploaded["model"] == f"s3://{s3}/out/model.tar.gz"

    # the URLs have expired, and the pod has no credentials
    for name, link in links.items():
        (pod.mounts / "secret" / name).write_text(
            link.replace("X-Amz-Expires=604800", "X-Amz-Expires=604799")
        )
    shutil.rmtree(pod.base)
    code, output = pod.run(python, {**environ, "AWS_ACCESS_KEY_ID": ""})
    assert code == 1
    failure = Ending.from_json(pod.message.read_bytes()).failure
    assert failure is not None
    assert "its URL is refused with 403" in failure.message
    assert failure.message.endswith("no credentials in its environment, and this image has no boto3")
    assert "submit the job again" in failure.hint.lower()
    assert "Signature=" not in output + pod.message.read_text()

    # other credentials of the pod, and boto3 where there are none in its environment
    target = tmp_path / "downloaded"
    link = (pod.mounts / "secret" / SOURCE_URL).read_text()
    pod_start.download(link, target)
    assert target.read_bytes() == archive.read_bytes()
    assert (
        "its URL is refused with 403 SignatureDoesNotMatch; tries the credentials of this pod"
        in capfd.readouterr().err
    )
    (tmp_path / "credentials").write_text(
        "[default]\naws_access_key_id = {AWS_ACCESS_KEY_ID}\naws_secret_access_key = {AWS_SECRET_ACCESS_KEY}\n".format(
            **os.environ
        )
    )
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    target.unlink()
    pod_start.download(link, target)
    assert target.read_bytes() == archive.read_bytes()


def test_the_credentials_of_a_service_account(
    serve: Callable[..., Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    assert pod_start.own_credentials() is None
    (tmp_path / "token").write_text("the token\n")
    sts = serve(
        (
            200,
            b"<Credentials><AccessKeyId>AK</AccessKeyId><SecretAccessKey>a/b+c=</SecretAccessKey>"
            b"<SessionToken>IQo//8=</SessionToken></Credentials>",
            0,
        )
    )
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/training")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", sts.url)
    assert pod_start.own_credentials() == ("AK", "a/b+c=", "IQo//8=")
    assert sts.bodies[0].endswith(b"WebIdentityToken=the+token")

    monkeypatch.delenv("AWS_ROLE_ARN")
    agent = serve((200, b'{"AccessKeyId": "AK", "SecretAccessKey" : "s", "Token": "t"}', 0), (403, b"", 0))
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", agent.url)
    monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(tmp_path / "token"))
    assert pod_start.own_credentials() == ("AK", "s", "t")
    assert agent.tokens == ["the token"]
    refused = serve((403, b"<Code>AccessDenied</Code>", 0))
    with pytest.raises(
        pod_start.CannotStart, match=r"its own credentials are refused with 403 Forbidden"
    ) as caught:
        pod_start.download(f"{refused.url}\ns3://bucket/key", tmp_path / "target")
    assert "Submit the job again" in caught.value.hint


@pytest.mark.parametrize(
    ("key", "token"), [("a b/ü?&+%.txt", "IQo//8="), ("plain", ""), ("x=1&y=2/%41~*'()!", "t")]
)
def test_a_url_is_signed_again_as_boto3_signs_it(
    monkeypatch: pytest.MonkeyPatch, key: str, token: str
) -> None:
    """With the time of the other signature, and its expiry: the signatures are the same."""
    for region, endpoint in (("eu-central-1", None), ("us-east-1", "https://minio.example.com:9000")):
        client = boto3.client(
            "s3",
            region_name=region,
            endpoint_url=endpoint,
            aws_access_key_id="AKID",
            aws_secret_access_key="secret/+",
            aws_session_token=token or None,
            config=Config(signature_version="s3v4"),
        )
        url = client.generate_presigned_url(
            "get_object", Params={"Bucket": "bucket", "Key": key}, ExpiresIn=3600
        )
        given = dict(parse_qsl(urlsplit(url).query))
        monkeypatch.setattr(pod_start.time, "strftime", lambda *_, moment=given["X-Amz-Date"]: moment)
        again = pod_start.sign(url.replace("AKID", "OTHER"), ("AKID", "secret/+", token))
        assert dict(parse_qsl(urlsplit(again).query)) == given


def test_urls_lead_to_the_endpoint_of_the_client(s3: str) -> None:
    open_store(f"s3://{s3}/a b").write("ü?&.txt", b"data")
    from cloudtrain.platforms.kubernetes.submit import presign

    url = presign(f"s3://{s3}/a b/ü?&.txt")
    assert urlsplit(url).netloc == urlsplit(os.environ["AWS_ENDPOINT_URL_S3"]).netloc
    target = Path(os.environ["CLOUDTRAIN_HOME"]).parent / "downloaded"
    pod_start.download(url, target)
    assert target.read_bytes() == b"data"
    assert {SOURCE_URL, RUNTIME_URL, BOTO3_URL} == {"source-url", "runtime-url", "boto3-url"}
