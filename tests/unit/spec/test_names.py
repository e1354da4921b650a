"""Names of jobs, and names of secrets."""

from __future__ import annotations

import pytest

from cloudtrain.errors import InvalidJob
from cloudtrain.spec import check_job_name, is_secret_name, new_job_name, redact


@pytest.mark.parametrize("name", ["a", "A-1", "a" * 63, "a--b", "1"])
def test_valid_names(name: str) -> None:
    check_job_name(name)


@pytest.mark.parametrize("name", ["", "-a", "a-", "a_b", "a.b", "a b", "é", "a/b", "a" * 64, "a\n"])
def test_invalid_names(name: str) -> None:
    with pytest.raises(InvalidJob):
        check_job_name(name)


@pytest.mark.parametrize("base", ["train", "my_script.v2", "x" * 100, "---", "日本"])
def test_new_names_are_valid_and_differ(base: str) -> None:
    names = {new_job_name(base) for _ in range(20)}
    assert len(names) == 20
    for name in names:
        check_job_name(name)


def test_secrets_are_recognised_by_name() -> None:
    secret = ["AWS_SECRET_ACCESS_KEY", "WANDB_API_KEY", "HF_TOKEN", "DB_PASSWORD", "my_secret", "GITHUB_AUTH"]
    plain = ["OMP_NUM_THREADS", "TOKENIZERS_PARALLELISM", "KEYBOARD", "PATH", "MONKEY"]
    assert [is_secret_name(name) for name in secret + plain] == [True] * len(secret) + [False] * len(plain)
    assert redact({"HF_TOKEN": "x", "A": "y"}) == {"HF_TOKEN": "***", "A": "y"}
