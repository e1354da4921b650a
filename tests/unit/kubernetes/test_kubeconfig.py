"""Kubeconfig files as people have them: several, old, broken."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloudtrain.errors import PlatformError
from cloudtrain.platforms.kubernetes.api import kubeconfig
from cloudtrain.platforms.kubernetes.api.connection import open_connection

GOOD = """
current-context: prod
contexts:
- {name: prod, context: {cluster: c, user: u, namespace: research}}
- {name: bare, context: {cluster: c}}
- {name: lost, context: {cluster: nowhere}}
clusters:
- {name: c, cluster: {server: "https://10.0.0.1:6443/k8s/clusters/c-1"}}
users:
- {name: u, user: {token: sesame}}
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "config"
    monkeypatch.setenv("KUBECONFIG", str(path))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    return path


def test_the_current_context(config: Path) -> None:
    config.write_text(GOOD)
    login = kubeconfig.login()
    assert (login.context, login.namespace, login.user_name) == ("prod", "research", "u")
    assert kubeconfig.login("bare").namespace == "default"
    assert open_connection(login).server == "https://10.0.0.1:6443/k8s/clusters/c-1"


@pytest.mark.parametrize(
    ("text", "context", "message", "hint"),
    [
        ("", None, "has no current context", "kubectl config use-context NAME. Contexts: none."),
        ("- a", None, "is not a kubeconfig", "aws eks update-kubeconfig"),
        ("users: [{token: sesame", None, "is not valid YAML, line", "ask its administrators"),
        ("users: [{user: {token: sesame}}]", None, "entry 1 of users has no name", ""),
        (GOOD, "staging", "there is no context staging in", "Contexts: bare, lost, prod."),
        (GOOD, "lost", "the context lost names the cluster 'nowhere', which", ""),
        (
            GOOD.replace("current-context: prod", ""),
            None,
            "has no current context",
            "Contexts: bare, lost, prod.",
        ),
        (
            GOOD.replace("current-context: prod", "current-context: old"),
            None,
            "no current context old",
            "Contexts:",
        ),
    ],
)
def test_broken_files(config: Path, text: str, context: str | None, message: str, hint: str) -> None:
    config.write_text(text)
    with pytest.raises(PlatformError, match=message) as caught:
        kubeconfig.login(context)
    assert hint in caught.value.hint
    assert "sesame" not in str(caught.value)


def test_no_file_at_all(config: Path) -> None:
    with pytest.raises(PlatformError, match="there is no kubeconfig, and this is not a pod") as caught:
        kubeconfig.login()
    assert "aws eks update-kubeconfig --name CLUSTER" in caught.value.hint
    with pytest.raises(PlatformError, match="does not run in a pod"):
        kubeconfig.login("in-cluster")
    config.mkdir()
    with pytest.raises(PlatformError, match="cannot be read: Is a directory"):
        kubeconfig.login()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "{token: sesame}",
            "{auth-provider: {name: gcp}}",
            "auth-provider gcp, which Kubernetes has removed",
        ),
        ("{token: sesame}", "{token: 1234}", "token is not a string"),
        ("{token: sesame}", "{exec: [sesame]}", "exec of the user u is not a table"),
        ("{token: sesame}", "{token: sesame, as-groups: [admins]}", r"has as-groups: \['admins'\]"),
        ("https://10.0.0.1:6443", "10.0.0.1:6443", "is not a URL: '10.0.0.1:6443"),
        ('"https://10.0.0.1:6443/', '"https://[::1/', "is not a URL"),
        (
            'https://10.0.0.1:6443/k8s/clusters/c-1"',
            'https://a", proxy-url: "ftp://p"',
            "the proxy ftp://p of the",
        ),
        (
            'https://10.0.0.1:6443/k8s/clusters/c-1"',
            'https://a", certificate-authority: "x.crt"',
            "/x.crt: No such file",
        ),
    ],
)
def test_what_cannot_be_used(config: Path, old: str, new: str, message: str) -> None:
    config.write_text(GOOD.replace(old, new))
    with pytest.raises(PlatformError, match=message) as caught:
        open_connection(kubeconfig.login())
    assert "sesame" not in str(caught.value)


def test_impersonation_is_passed_on(config: Path) -> None:
    config.write_text(GOOD.replace("{token: sesame}", "{token: sesame, as: robot}"))
    assert open_connection(kubeconfig.login()).http.headers["Impersonate-User"] == "robot"


def test_a_network_without_proxy(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods often have HTTPS_PROXY, and NO_PROXY with the network of the services."""
    config.write_text(GOOD)
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.test:3128")
    monkeypatch.setenv("NO_PROXY", ".svc,10.0.0.0/8,bad/entry")
    assert not open_connection(kubeconfig.login()).http.trust_env
    monkeypatch.setenv("NO_PROXY", ".svc,10.96.0.0/16")
    assert open_connection(kubeconfig.login()).http.trust_env


@pytest.mark.parametrize(
    ("server", "is_sent"),
    [
        ("https://api.test", True),
        ("http://127.0.0.1:8001", True),
        ("http://10.0.0.1", False),
        ("http://a.test", False),
    ],
)
def test_credentials_go_where_no_one_on_the_way_can_read_them(
    config: Path, server: str, is_sent: bool
) -> None:
    config.write_text(GOOD.replace("https://10.0.0.1:6443/k8s/clusters/c-1", server))
    assert (open_connection(kubeconfig.login()).http.auth is not None) == is_sent
