"""Names of files that hold secrets."""

from __future__ import annotations

from fnmatch import fnmatchcase

_NAMES = {
    ".env": "environment file",
    ".env.*": "environment file",
    "id_rsa": "SSH private key",
    "id_dsa": "SSH private key",
    "id_ecdsa": "SSH private key",
    "id_ed25519": "SSH private key",
    "*.key": "private key",
    "*.ppk": "private key",
    "secring.gpg": "private key",
    "*.p12": "key store",
    "*.pfx": "key store",
    "*.jks": "key store",
    "*.keystore": "key store",
    "*.kdbx": "password database",
    ".netrc": "passwords",
    "_netrc": "passwords",
    ".pgpass": "database password",
    "pgpass.conf": "database password",
    ".my.cnf": "database password",
    ".mylogin.cnf": "database password",
    ".htpasswd": "passwords",
    ".pypirc": "package index password",
    ".git-credentials": "git password",
    ".dockercfg": "registry password",
    ".s3cfg": "S3 credentials",
    ".boto": "S3 credentials",
    ".passwd-s3fs": "S3 credentials",
    ".vault-token": "Vault token",
    ".databrickscfg": "Databricks token",
    "kaggle.json": "Kaggle API key",
    "kubeconfig": "Kubernetes credentials",
    "credentials.tfrc.json": "Terraform token",
    "application_default_credentials.json": "Google credentials",
}
_PATHS = {
    ".aws/credentials": "AWS credentials",
    ".azure/accesstokens.json": "Azure credentials",
    ".cargo/credentials": "package index password",
    ".cargo/credentials.toml": "package index password",
    ".gem/credentials": "package index password",
    ".huggingface/token": "Hugging Face token",
    "huggingface/token": "Hugging Face token",
    ".kube/config": "Kubernetes credentials",
    "gh/hosts.yml": "GitHub token",
}
_TEMPLATES = (".example", ".sample", ".template", ".dist")


def secret_name(name: str) -> str | None:
    """The rule that a file's path matches, or None."""
    parts = name.lower().split("/")
    if parts[-1].endswith(_TEMPLATES):
        return None
    for pattern, rule in _NAMES.items():
        if fnmatchcase(parts[-1], pattern):
            return rule
    return _PATHS.get("/".join(parts[-2:]))
