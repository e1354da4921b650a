"""The kubeconfig files, merged as kubectl does, and the choice of a context."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cloudtrain.errors import PlatformError, nearest

IN_CLUSTER = "in-cluster"
"""The name of the context of a pod without a kubeconfig."""

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds its token, its namespace and the cluster's certificate authority."""

_HOW = (
    "Get one from your cluster: aws eks update-kubeconfig --name CLUSTER, gcloud container clusters get-credentials "
    "CLUSTER, az aks get-credentials, or ask its administrators. KUBECONFIG names another file."
)


@dataclass(frozen=True)
class Entry:
    """A context, a cluster or a user, with the file that defines it. Paths in it are relative to that file."""

    values: Mapping[str, Any]
    file: Path

    def text(self, key: str) -> str:
        """The value of a field that is a string; empty if it is missing. Raises PlatformError."""
        value = self.values.get(key)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise PlatformError(f"{self.file}: {key} is not a string", hint="Quote it.")
        return value

    def path(self, key: str) -> str:
        """The absolute path in a field; empty if the field is missing."""
        value = self.text(key)
        return str(self.file.parent / Path(value).expanduser()) if value else ""


@dataclass(frozen=True)
class Login:
    """All settings of one context."""

    context: str
    namespace: str
    cluster: Entry
    user: Entry
    user_name: str = ""


@dataclass
class Kubeconfig:
    """All files merged. As with kubectl, the first file that defines a name wins."""

    files: list[Path] = field(default_factory=list)
    current: str = ""
    contexts: dict[str, Entry] = field(default_factory=dict)
    clusters: dict[str, Entry] = field(default_factory=dict)
    users: dict[str, Entry] = field(default_factory=dict)

    @property
    def where(self) -> str:
        return ", ".join(map(str, self.files))

    def choose(self, context: str | None) -> Login:
        """The context of this name, or the current one. Raises PlatformError."""
        known = f"Contexts: {', '.join(sorted(self.contexts)) or 'none'}."
        name = context or self.current
        if not name:
            raise PlatformError(
                f"{self.where} has no current context",
                hint=f"Set platform_options.context, or run kubectl config use-context NAME. {known}",
            )
        if name not in self.contexts:
            word = "context" if context else "current context"
            near = nearest(name, self.contexts) if self.contexts else ""
            hint = f"{near} {known}" if near.startswith("Did") else known
            raise PlatformError(f"there is no {word} {name} in {self.where}", hint=hint)
        entry = self.contexts[name]
        cluster, user, namespace = entry.text("cluster"), entry.text("user"), entry.text("namespace")
        if cluster not in self.clusters:
            raise PlatformError(f"the context {name} names the cluster {cluster!r}, which {self.where} lacks")
        if user and user not in self.users:
            raise PlatformError(f"the context {name} names the user {user!r}, which {self.where} lacks")
        found = self.users.get(user) or Entry({}, entry.file)
        return Login(name, namespace or "default", self.clusters[cluster], found, user)


def login(context: str | None = None) -> Login:
    """The settings of a context in the kubeconfig, or of the pod that this process runs in. Raises PlatformError."""
    config = read()
    if context == IN_CLUSTER and IN_CLUSTER not in config.contexts:
        return in_cluster()
    if config.contexts or config.current:
        return config.choose(context)
    if is_in_cluster() and not context:
        return in_cluster()
    if config.files:
        return config.choose(context)
    raise PlatformError("there is no kubeconfig, and this is not a pod of a cluster", hint=_HOW)


def read() -> Kubeconfig:
    """Read the files in ``KUBECONFIG``, or ``~/.kube/config``. As with kubectl, a file may be missing.

    Raises PlatformError for a file that cannot be read.
    """
    listed = [part for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    paths = [Path(part).expanduser() for part in listed] or [Path("~/.kube/config").expanduser()]
    config = Kubeconfig()
    for path in paths:
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            continue
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not text"
            raise PlatformError(f"the kubeconfig {path} cannot be read: {reason}") from None
        config.files.append(path)
        _merge(config, path, text)
    return config


def _merge(config: Kubeconfig, path: Path, text: str) -> None:
    import yaml

    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)  # not the message, which quotes the file with its secrets
        place = f", line {mark.line + 1}" if mark else ""
        raise PlatformError(f"the kubeconfig {path} is not valid YAML{place}", hint=_HOW) from None
    if document is None:
        return
    if not isinstance(document, dict):
        raise PlatformError(f"{path} is not a kubeconfig", hint=_HOW)
    current = document.get("current-context")
    if not config.current and isinstance(current, str):
        config.current = current
    kinds = {"contexts": config.contexts, "clusters": config.clusters, "users": config.users}
    for plural, found in kinds.items():
        entries = document.get(plural) or []
        for number, entry in enumerate(entries if isinstance(entries, list) else [None], start=1):
            values = entry.get(plural[:-1]) if isinstance(entry, dict) else None
            if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
                raise PlatformError(f"{path}: entry {number} of {plural} has no name", hint=_HOW)
            found.setdefault(entry["name"], Entry(values if isinstance(values, dict) else {}, path))


def is_in_cluster() -> bool:
    """Whether this process runs in a pod that has a service account."""
    return bool(os.environ.get("KUBERNETES_SERVICE_HOST")) and (SERVICE_ACCOUNT / "token").is_file()


def in_cluster() -> Login:
    """The settings of a pod, from its service account. Raises PlatformError."""
    folder = SERVICE_ACCOUNT
    if not is_in_cluster():
        raise PlatformError(
            "this process does not run in a pod with a service account",
            hint=f"{folder}/token and KUBERNETES_SERVICE_HOST are missing. {_HOW}",
        )
    host = os.environ["KUBERNETES_SERVICE_HOST"]
    port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    try:
        namespace = (folder / "namespace").read_text().strip()
    except OSError:
        namespace = ""
    cluster = {"server": server, "certificate-authority": str(folder / "ca.crt")}
    user = {"tokenFile": str(folder / "token")}
    entries = Entry(cluster, folder / "token"), Entry(user, folder / "token")
    return Login(IN_CLUSTER, namespace or "default", *entries, "service account")
