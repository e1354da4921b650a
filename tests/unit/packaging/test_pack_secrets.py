"""Files that look like secrets are refused. The samples are assembled here, to not alarm secret scanners."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from packaging_trees import make_tree, names

from cloudtrain.errors import InvalidSource
from cloudtrain.packaging import pack

BODY = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj" * 4
PRIVATE = "PRIVATE" + " KEY-----"
PEM = f"-----BEGIN {PRIVATE}\n{BODY}\n-----END {PRIVATE}\n"
ENCRYPTED = f"-----BEGIN RSA {PRIVATE}\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES,00\n\n{BODY}\n"
SERVICE_ACCOUNT = '{"type": "service_account", "private_key": "' + PEM.replace("\n", "\\n") + '"}'
AWS_ID = "AK" + "IAQYLPMN5HHHFPZAM2"
AWS_SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYzZ" + "k3yk3yk3"

SECRETS = {
    ".env": "A=b",
    "config/.env.production": "A=b",
    "id_rsa": "x",
    "keys/id_ed25519": "x",
    "server.key": "x",
    "store.P12": "x",
    "store.pfx": "x",
    ".netrc": "x",
    ".pypirc": "x",
    ".git-credentials": "x",
    "kubeconfig": "x",
    ".aws/credentials": "x",
    ".kube/config": "x",
    "cert.pem": PEM,
    "encrypted.txt": ENCRYPTED,
    "account.json": SERVICE_ACCOUNT,
    "settings.py": f'ID = "{AWS_ID}"\nSECRET = "{AWS_SECRET}"\n',
    "github.py": "token = 'gh" + "p_" + "a1B2" * 9 + "'",
    "github2.py": "token = 'github" + "_pat_" + "a" * 82 + "'",
    "hub.sh": "export HF_TOKEN=h" + "f_" + "aB" * 17,
    "slack.yaml": "token: xo" + "xb-123456789012-1234567890123-abcdefghijkl",
}
HARMLESS = {
    ".env.example": "A=b",
    "id_rsa.pub": "ssh-rsa AAAA",
    "cert.pem": "-----BEGIN CERTIFICATE-----\n" + BODY,
    "credentials": "x",
    "monkey.py": "x",
    "scanner.py": f'MARK = "-----BEGIN {PRIVATE}"\n',
    "id.py": f'ID = "{AWS_ID}"\n',
    "commit.py": f'ID = "{AWS_ID}"\nCOMMIT = "{"0123456789" * 4}"\n',
    "aws_docs.md": f"AKIAIOSFODNN7EXAMPLE and {AWS_SECRET}\n",
    "names.py": "ghp_count = 1\nhf_model_for_everything = 2\nxoxo = 3\n",
    "binary.bin": b"\0\1" + PEM.encode(),
}


@pytest.mark.parametrize("name", SECRETS)
def test_refused_by_path_and_rule_and_never_shown(tmp_path: Path, name: str) -> None:
    root = make_tree(tmp_path / "src", {"train.py": "", name: SECRETS[name]})
    with pytest.raises(InvalidSource) as caught:
        pack(root, cache_dir=tmp_path / "cache")
    assert re.search(rf"\n    {re.escape(name)}(:\d+)? \(", str(caught.value))
    assert ".cloudtrainignore" in caught.value.hint and "allow_secrets" in caught.value.hint
    assert not any(part in str(caught.value) for part in (BODY, AWS_ID, AWS_SECRET, "a1B2", "aBaB", "123456"))


@pytest.mark.parametrize("name", HARMLESS)
def test_harmless(tmp_path: Path, name: str) -> None:
    root = make_tree(tmp_path / "src", {name: HARMLESS[name]})
    assert names(pack(root, cache_dir=tmp_path / "cache").path) == [name]


def test_all_are_listed_and_the_cache_stays_empty(tmp_path: Path) -> None:
    root = make_tree(tmp_path / "src", SECRETS)
    with pytest.raises(InvalidSource) as caught:
        pack(root, cache_dir=tmp_path / "cache")
    assert all(re.search(rf"\n    {re.escape(name)}(:\d+)? \(", str(caught.value)) for name in SECRETS)
    assert list((tmp_path / "cache").iterdir()) == []


def test_secrets_can_be_ignored_or_allowed(tmp_path: Path) -> None:
    root = make_tree(tmp_path / "src", {"train.py": "", ".env": "A=b"})
    cache = tmp_path / "cache"
    assert names(pack(root, cache_dir=cache, allow_secrets=True).path) == [".env", "train.py"]
    with pytest.raises(InvalidSource):  # an earlier allow_secrets is not remembered
        pack(root, cache_dir=cache)
    (root / ".cloudtrainignore").write_text(".env\n")
    assert names(pack(root, cache_dir=cache).path) == [".cloudtrainignore", "train.py"]


def test_a_link_does_not_hide_a_secret(tmp_path: Path) -> None:
    make_tree(
        tmp_path, {"src/train.py": "", "home/.netrc": "x", "home/.aws/credentials": "x", "home/plain": "x"}
    )
    (tmp_path / "src" / "notes").symlink_to("../home/.netrc")
    (tmp_path / "src" / "cloud").symlink_to("../home/.aws")
    (tmp_path / "src" / ".env").symlink_to("../home/plain")
    with pytest.raises(InvalidSource) as caught:
        pack(tmp_path / "src", cache_dir=tmp_path / "cache")
    listed = [line.split()[0] for line in caught.value.message.splitlines()[1:]]
    assert listed == [".env", "cloud/credentials", "notes"]


def test_dependencies_are_checked_too(tmp_path: Path) -> None:
    make_tree(tmp_path, {"src/train.py": "", "lib/deep/key.txt": PEM})
    with pytest.raises(InvalidSource, match=r"lib/deep/key\.txt"):
        pack(tmp_path / "src", [tmp_path / "lib"], cache_dir=tmp_path / "cache")
