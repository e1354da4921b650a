"""How clients prove who they are: each way is tried on a real API server, and its failures are sentences."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from kube_fixtures import Namespace
from kube_in_cluster import as_pod

from cloudtrain.errors import PlatformError
from cloudtrain.platforms.kubernetes.api.client import Api
from cloudtrain.platforms.kubernetes.api.errors import KubeForbidden, KubeUnauthorized
from cloudtrain.platforms.kubernetes.api.kinds import CONFIG_MAP, POD

V1 = "client.authentication.k8s.io/v1"


def write_config(path: Path, place: Namespace, users: dict[str, Any], **cluster: Any) -> Path:
    """A kubeconfig with one context for each user."""
    server = {"server": place.server.url, "certificate-authority": str(place.server.authority), **cluster}
    document = {
        "current-context": next(iter(users)),
        "contexts": [
            {"name": name, "context": {"cluster": "test", "user": name, "namespace": place.name}}
            for name in users
        ],
        "clusters": [{"name": "test", "cluster": server}],
        "users": [{"name": name, "user": user} for name, user in users.items()],
    }
    path.write_text(json.dumps(document))
    return path


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of a kubeconfig that the test writes."""
    path = tmp_path / "config"
    monkeypatch.setenv("KUBECONFIG", str(path))
    return path


def write_plugin(path: Path, text: str) -> None:
    path.write_text(f"#!{sys.executable}\n{textwrap.dedent(text)}")
    path.chmod(0o755)


PLUGIN = """
import json, os, pathlib, sys
told = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
assert told["spec"]["cluster"]["server"].startswith("https://"), told
runs = pathlib.Path(__file__).with_name("runs")
number = len(runs.read_text()) if runs.exists() else 0
runs.write_text("x" * (number + 1))
token = os.environ["FIRST"] if number == 0 else sys.argv[1]
print(json.dumps({"apiVersion": told["apiVersion"], "kind": "ExecCredential", "status": {"token": token}}))
"""


@pytest.mark.parametrize("version", [V1, pytest.param(f"{V1}beta1", marks=pytest.mark.soak)])
def test_a_program_that_prints_a_token(
    kubernetes: Namespace, config: Path, tmp_path: Path, version: str
) -> None:
    write_plugin(tmp_path / "get-token", PLUGIN)
    program = {
        "apiVersion": version,
        "command": "./get-token",
        "args": ["alice-token"],
        "interactiveMode": "Never",
        "env": [{"name": "FIRST", "value": "expired-token"}],
        "provideClusterInfo": True,
    }
    write_config(config, kubernetes, {"alice": {"exec": program}})
    api = Api.connect()
    assert api.list(POD)[0] == []  # the first token is refused, so the program runs again
    assert api.list(POD)[0] == []
    assert len((tmp_path / "runs").read_text()) == 2
    assert api.method == "the program ./get-token"


def test_a_program_that_prints_a_certificate(kubernetes: Namespace, config: Path, tmp_path: Path) -> None:
    pki = kubernetes.server.certificates
    status = {
        "clientCertificateData": (pki / "admin.crt").read_text(),
        "clientKeyData": (pki / "admin.key").read_text(),
        "expirationTimestamp": "2999-01-01T00:00:00Z",
    }
    (tmp_path / "credential").write_text(json.dumps({"apiVersion": V1, "status": status}))
    program = {"apiVersion": V1, "command": "cat", "args": [str(tmp_path / "credential")]}
    write_config(config, kubernetes, {"admin": {"exec": program}})
    assert Api.connect().allowed("delete", POD)


@pytest.mark.parametrize(
    ("program", "message", "hint"),
    [
        (
            {"command": "no-such-program", "installHint": "apt install it"},
            "is not installed",
            "apt install it",
        ),
        (
            {"command": "sh", "args": ["-c", "echo no session >&2; exit 3"]},
            "exit code 3: no session",
            "Log in",
        ),
        ({"command": "echo", "args": ["sesame"]}, "did not print an ExecCredential", ""),
        ({"command": "true", "apiVersion": "client.authentication.k8s.io/v9"}, "apiVersion '.*v9'", ""),
        ({"command": "true", "interactiveMode": "Always"}, "needs a terminal", "Log in with kubectl"),
    ],
)
def test_a_program_that_fails(
    kubernetes: Namespace, config: Path, program: dict[str, Any], message: str, hint: str
) -> None:
    write_config(config, kubernetes, {"alice": {"exec": {"apiVersion": V1, **program}}})
    with pytest.raises(PlatformError, match=message) as caught:
        Api.connect().list(POD)
    assert "which gets the credentials of the context alice" in caught.value.message
    assert hint in caught.value.hint
    assert "sesame" not in str(caught.value)


@pytest.mark.parametrize("is_inline", [pytest.param(False, marks=pytest.mark.soak), True])
def test_a_client_certificate(kubernetes: Namespace, config: Path, is_inline: bool) -> None:
    pki = kubernetes.server.certificates
    names = {"certificate-authority": "ca.crt", "client-certificate": "admin.crt", "client-key": "admin.key"}
    if is_inline:
        values = {
            f"{key}-data": base64.b64encode((pki / name).read_bytes()).decode() for key, name in names.items()
        }
    else:  # paths are relative to the kubeconfig
        values = {key: os.path.relpath(pki / name, config.parent) for key, name in names.items()}
    cluster = {key: values.pop(key) for key in list(values) if key.startswith("certificate-authority")}
    write_config(config, kubernetes, {"admin": values}, **{"certificate-authority": None, **cluster})
    api = Api.connect()
    assert api.allowed("delete", POD)
    assert api.method == "a client certificate"


def test_contexts_of_two_files(
    kubernetes: Namespace, config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = tmp_path / "second"
    write_config(config, kubernetes, {"alice": {"token": "alice-token"}})
    write_config(second, kubernetes, {"bob": {"token": "bob-token"}, "alice": {"token": "of no use"}})
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join(map(str, (config, tmp_path / "missing", second))))
    assert Api.connect().list(POD)[0] == []
    assert Api.connect("alice", "default").namespace == "default"
    with pytest.raises(KubeForbidden, match="bob may not list pods in the namespace"):
        Api.connect("bob").list(POD)
    with pytest.raises(PlatformError, match="there is no context alicia in") as caught:
        Api.connect("alicia")
    assert caught.value.hint == "Did you mean 'alice'? Contexts: alice, bob."


IN_CLUSTER = """
import pathlib, sys
from cloudtrain.platforms.kubernetes.api.client import Api
from cloudtrain.platforms.kubernetes.api.errors import KubeUnauthorized
from cloudtrain.platforms.kubernetes.api.kinds import CONFIG_MAP
api = Api.connect()
print(api.context, api.namespace, api.method)
try:
    api.list(CONFIG_MAP)
except KubeUnauthorized as error:
    print(error.message)
folder = pathlib.Path("/var/run/secrets/kubernetes.io/serviceaccount")
(folder / "token").write_text((folder / "next").read_text())  # as the kubelet rotates it
print(len(api.list(CONFIG_MAP)[0]))
"""


def test_a_pod_uses_its_service_account_and_the_token_that_rotates(
    kubernetes: Namespace, tmp_path: Path
) -> None:
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]
    command, environ = as_pod(kubernetes, tmp_path, rules, token="expired")
    run = subprocess.run(
        [*command, sys.executable, "-c", IN_CLUSTER], env=environ, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    lines = run.stdout.splitlines()
    assert lines[0] == f"in-cluster {kubernetes.name} a token"
    assert "does not accept the credentials of the context in-cluster" in lines[1]
    assert len(lines) == 3


def test_a_token_that_is_refused(kubernetes: Namespace, config: Path) -> None:
    write_config(config, kubernetes, {"alice": {"token": "sesame-token"}})
    with pytest.raises(KubeUnauthorized) as caught:
        Api.connect().list(POD)
    assert "log in again" in caught.value.hint
    assert "sesame" not in str(caught.value)


@pytest.mark.parametrize(
    ("cluster", "message", "hint"),
    [
        ({"certificate-authority": None}, "is not valid: .*local issuer|self.signed", "get it again"),
        ({"tls-server-name": "kubernetes.test"}, "is not valid: .*[Hh]ostname mismatch", "tls-server-name"),
        ({"server": "http://127.0.0.1:{port}"}, "speaks HTTPS", "https://"),
        ({"server": "https://no-such-host.invalid"}, "there is no address for no-such-host.invalid", "VPN"),
    ],
)
def test_a_server_that_is_not_the_right_one(
    kubernetes: Namespace, config: Path, cluster: dict[str, Any], message: str, hint: str
) -> None:
    port = kubernetes.server.url.rpartition(":")[2]
    cluster = {key: value.format(port=port) if value else value for key, value in cluster.items()}
    write_config(config, kubernetes, {"alice": {"token": "alice-token"}}, **cluster)
    with pytest.raises(PlatformError, match=message) as caught:
        Api.connect().list(CONFIG_MAP)
    assert hint in caught.value.hint
    assert "alice-token" not in str(caught.value)


@pytest.mark.soak
def test_names_of_the_server_that_differ_from_its_address(kubernetes: Namespace, config: Path) -> None:
    users = {"alice": {"token": "alice-token"}}
    write_config(config, kubernetes, users, **{"tls-server-name": "localhost"})
    assert Api.connect().list(POD)[0] == []


@pytest.mark.soak
def test_certificates_that_are_not_checked_or_not_valid(kubernetes: Namespace, config: Path) -> None:
    users = {"alice": {"token": "alice-token"}}
    insecure = {"certificate-authority": None, "insecure-skip-tls-verify": True}
    write_config(config, kubernetes, users, **insecure)
    assert Api.connect().list(POD)[0] == []
    write_config(config, kubernetes, {"alice": {**users["alice"], "client-certificate": "/no/such"}})
    with pytest.raises(PlatformError, match="has a client certificate or a key, not both"):
        Api.connect()
    broken = {"client-certificate-data": "bm90IGEgY2VydA==", "client-key-data": "bm90IGEga2V5"}
    write_config(config, kubernetes, {"alice": broken})
    with pytest.raises(PlatformError, match="the certificates of the context alice are not valid"):
        Api.connect()
