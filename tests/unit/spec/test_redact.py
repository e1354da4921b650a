"""Secrets are recognised by name and by value, and URLs are shown without credentials."""

from __future__ import annotations

import pytest

from cloudtrain._secrets.urls import hide_credentials
from cloudtrain.errors import StorageError
from cloudtrain.spec import is_secret_name, redact

SECRET = """
    PGPASSWORD DB_PASS GITHUB_PAT DATABASE_URL wandbApiKey AWS_SECRET_ACCESS_KEY WANDB_API_KEY HF_TOKEN DB_PASSWORD
    my_secret GITHUB_AUTH HFToken hf-token auth.token dbPassword DBPass MYSQL_PWD SSHPASS AUTHTOKEN APIKEY apikey apiKey
    clientSecret client-secret GOOGLE_APPLICATION_CREDENTIALS AZURE_STORAGE_CONNECTION_STRING SENTRY_DSN REDIS_URL
    MONGODB_URI SQLALCHEMY_DATABASE_URI SLACK_WEBHOOK_URL AZURE_STORAGE_SAS API_KEYS API_TOKENS PASSWORDS PASSWORD1
    DB_PASSWORD_2 OAuthToken JWT SESSION_COOKIE SSH_KEY_PASSPHRASE STRIPE_SK_KEY NPM_CONFIG__AUTH KEY encryption_key
"""
PLAIN = """
    OMP_NUM_THREADS TOKENIZERS_PARALLELISM KEYBOARD PATH MONKEY tokenizer num_tokens author authors AUTHOR_NAME PWD
    OLDPWD max_new_tokens pad_token eos_token bos_token_id token_type_ids image_token MAX_TOKEN_LENGTH num_pass
    forward_pass pass_rate COMPASS bypass PATTERN path patience primary_key sort_key PUBLIC_KEY turkey
    AWS_ENDPOINT_URL BASE_URL
    passage secretary tokenize monkeypatch
"""


@pytest.mark.parametrize("name", SECRET.split())
def test_secret_names(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize("name", PLAIN.split())
def test_false_friends(name: str) -> None:
    assert not is_secret_name(name)


def test_secrets_are_recognised_by_value_too() -> None:
    environment = {
        "HTTPS_PROXY": "http://ann:" + "pw@proxy.net:3128",
        "MODEL": "hf" + "_" + "aB1" * 11 + "z",
        "SERVER": "https://corp.net/?page=2",
        "LR": "0.1",
    }
    shown = {**environment, "HTTPS_PROXY": "***", "MODEL": "***"}
    assert redact(environment) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://ann:pw@host/a", "https://***@host/a"),
        ("index https://token@pypi.net/simple, then", "index https://***@pypi.net/simple, then"),
        ("git+https://ann:pw@git.net/x.git@main#egg=x", "git+https://***@git.net/x.git@main#egg=x"),
        ("postgresql://app:p@ss:w0rd@db:5432/x", "postgresql://***@db:5432/x"),
        ("redis://:pw@cache:6379", "redis://***@cache:6379"),
        ("'http://ann:pw@proxy:3128'", "'http://***@proxy:3128'"),
        ("ssh://git@host/x and git+ssh://git@host/y", "ssh://git@host/x and git+ssh://git@host/y"),
        ("ssh://git:pw@host/x", "ssh://***@host/x"),
        ("https://host/a?page=1&access_token=x&b=2", "https://host/a?page=1&access_token=***&b=2"),
        (
            "https://b.s3.amazonaws.com/k?X-Amz-Signature=0a1b",
            "https://b.s3.amazonaws.com/k?X-Amz-Signature=***",
        ),
        (
            "https://x.blob.core.windows.net/c?sv=1&sig=ab%3D",
            "https://x.blob.core.windows.net/c?sv=1&sig=***",
        ),
        ("https://host/@scope/package", "https://host/@scope/package"),
        ("s3://bucket/key@2x.png", "s3://bucket/key@2x.png"),
        ("a@b.net, no URL", "a@b.net, no URL"),
    ],
)
def test_urls_are_shown_without_credentials(text: str, shown: str) -> None:
    assert hide_credentials(text) == shown


def test_no_error_shows_credentials_of_a_url() -> None:
    error = StorageError("http://ann:pw@s3.net: no answer", hint="Check http://ann:pw@s3.net.")
    assert "pw" not in f"{error} {error!r} {error.message} {error.hint}"
