"""Names of jobs, and names of secrets."""

from __future__ import annotations

import pytest

from cloudtrain.errors import InvalidJob
from cloudtrain.spec import TrainingJob, base_name, check_job_name, is_secret_name, new_job_name, redact


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


LONG = "resnet50-imagenet-8-hosts-bf16-channels-last-cosine-warmup-ablation-17"
BREAKS_AT_HYPHENS = "resnet50-imagenet-8-hosts-bf16-channels--last-cosine-warmup-ablation-17"


@pytest.mark.parametrize("base", ["a", "a--b", "A-1", "x" * 42, "x" * 43, "x" * 64, LONG, BREAKS_AT_HYPHENS])
def test_a_base_name_loses_its_end_as_in_the_sdk(base: str) -> None:
    job = TrainingJob.from_dict({"entry_point": "train.py", "base_job_name": base})
    name = new_job_name(base_name(job) or "")
    check_job_name(name)
    suffix = "20261122-101112-k3f9"
    # sagemaker.utils.name_from_base: base[: max_length - len(suffix) - 1], a hyphen, the suffix
    assert name[: -len(suffix)] == base[: 63 - len(suffix) - 1] + "-"


def test_a_base_name_may_be_long_but_not_invalid() -> None:
    with pytest.raises(InvalidJob, match="only letters, digits"):
        TrainingJob.from_dict({"entry_point": "train.py", "base_job_name": "a_b" * 40})
    with pytest.raises(InvalidJob, match="63 are allowed"):
        TrainingJob.from_dict({"entry_point": "train.py", "job_name": LONG})


def test_secrets_are_recognised_by_name() -> None:
    secret = ["AWS_SECRET_ACCESS_KEY", "WANDB_API_KEY", "HF_TOKEN", "DB_PASSWORD", "my_secret", "GITHUB_AUTH"]
    plain = ["OMP_NUM_THREADS", "TOKENIZERS_PARALLELISM", "KEYBOARD", "PATH", "MONKEY"]
    assert [is_secret_name(name) for name in secret + plain] == [True] * len(secret) + [False] * len(plain)
    assert redact({"HF_TOKEN": "x", "A": "y"}) == {"HF_TOKEN": "***", "A": "y"}
