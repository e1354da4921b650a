"""The findings of the scan of packed sources, and what it leaves alone."""

from __future__ import annotations

import functools
import sysconfig
from pathlib import Path

import pytest
from packaging_trees import make_tree
from secret_shapes import secret_files

from cloudtrain.errors import InvalidSource
from cloudtrain.packaging import pack
from cloudtrain.packaging._secrets import secret_contents, secret_name

SEEDS = range(20)
REPOSITORY = Path(__file__).parents[3]
PUBLIC = (
    "click",
    "rich",
    "packaging",
    "pathspec",
    "yaml",
    "msgspec",
    "boto3",
    "s3transfer",
    "jmespath",
    "urllib3",
)
"""Installed packages that a user might send along."""


@pytest.mark.parametrize("kind", secret_files(0))
def test_every_kind_of_secret_is_found(kind: str) -> None:
    """Of random values, a few look like plain text: at least 17 of 20 must be found, and 98% of all."""
    assert sum(_is_found(*_files(seed)[kind]) for seed in SEEDS) >= 17


def test_nearly_all_are_found() -> None:
    found = [_is_found(*file) for seed in SEEDS for file in _files(seed).values()]
    assert sum(found) >= 0.98 * len(found)


_files = functools.cache(secret_files)


def _is_found(name: str, text: str) -> bool:
    return bool(secret_name(name) or list(secret_contents(name, text.encode())))


@pytest.mark.parametrize("kind", ["AWS secret key, exported", "pip.conf", "password in YAML", "GitLab token"])
def test_the_message_names_file_and_line_and_shows_no_secret(tmp_path: Path, kind: str) -> None:
    name, text = secret_files(1)[kind]
    root = make_tree(tmp_path / "src", {"train.py": "", name: f"# one\n# two\n{text}"})
    line = 3 + text.splitlines().index(max(text.splitlines(), key=len))
    with pytest.raises(InvalidSource) as caught:
        pack(root, cache_dir=tmp_path / "cache")
    assert f"\n    {name}:{line} (" in str(caught.value)
    secret = max(text.replace(":", " ").replace("=", " ").replace("@", " ").split(), key=len)
    assert secret not in str(caught.value)


@pytest.mark.parametrize("comment", ["# pragma: allowlist secret", "# gitleaks:allow"])
def test_a_comment_allows_a_line(tmp_path: Path, comment: str) -> None:
    _, text = secret_files(2)["password in Python"]
    root = make_tree(tmp_path / "src", {"train.py": f"{text.rstrip()}  {comment}\n"})
    pack(root, cache_dir=tmp_path / "cache")
    (root / "train.py").write_text(f"# pragma: allowlist nextline secret\n{text}")
    pack(root, cache_dir=tmp_path / "cache")
    (root / "train.py").write_text(f"{text.rstrip()}  {comment}\n{text}")
    with pytest.raises(InvalidSource, match=r"train\.py:2 "):
        pack(root, cache_dir=tmp_path / "cache")


HARMLESS = {
    "tokens.py": 'pad_token = "[PAD]"\neos_token = "</s>"\ntokenizer = "bert-base"\ntoken = self.tokens2index[3]\n',
    "config.json": '{"num_tokens": 50257, "tokenizer_class": "GPT2TokenizerFast", "bos_token_id": 50256}\n',
    "reference.py": 'key = os.environ["WANDB_API_KEY"]\npassword = getpass("password 2: ")\ntoken = "${HF_TOKEN1}"\n',
    "setup.sh": 'export HF_TOKEN=$HF_TOKEN_2\nexport AWS_SECRET_ACCESS_KEY="$(pass show aws2)"\n',
    "values.yaml": "password: <your-password-1>\napi_key: {{ secrets.api_key1 }}\ntoken: changeme123\n",
    "hashes.txt": "numpy==2.1 --hash=sha256:" + "0123456789abcdef" * 4 + "\n",
    "lock.json": '{"integrity": "sha512-' + "aB3" * 28 + '==", "commit": "' + "0a1b2" * 8 + '"}\n',
    "urls.md": "postgres://user:password@localhost/db https://user:pass@example.com redis://:${PW1}@cache:6379\n",
    "Dockerfile": "FROM python:3.12\nENV API_TOKEN $TOKEN1\nENV PATH_TO_KEY /run/secrets2/key\n",
    "connect.py": 'connect(host=h1, password=vault.read2(x))\nurl = f"host={h} user=u1 password={pw} dbname=x"\n',
    "arguments.py": 'add_argument("--token", type=int, default=32768)\napi_key: str = field2("abc1")\n',
    "commands.sh": 'curl -u "$USER:$PASSWORD_1" https\ncurl -u user:<password1> https://x\nsshpass -p "$PW123456"\n',
    "ids.json": '{"ChangeToken": "abcd12f2-46da-4fdb-b8d5-fbd4c466928f", "sort_key": "Field2Name"}\n',
    "model.py": 'PRIMARY_KEY = "user_id_2"\nmonkey = "Bananas4Ever"\nauthor = "Ann 3rd"\nkeyboard = "Qwertz104Keys"\n',
}


@pytest.mark.parametrize("name", HARMLESS)
def test_harmless(name: str) -> None:
    assert not secret_name(name)
    assert list(secret_contents(name, HARMLESS[name].encode())) == []


def test_public_code_raises_no_alarm() -> None:
    """Also measured once over 6,500 files of 13 larger packages: see docs/security.md."""
    installed = Path(sysconfig.get_paths()["purelib"])
    roots = [*(installed / name for name in PUBLIC), REPOSITORY / "cloudtrain", REPOSITORY / "examples"]
    files = [file for root in roots for file in root.rglob("*.py")]
    found = [(file, hit) for file in files for hit in secret_contents(file.name, file.read_bytes())]
    assert len(files) > 500
    assert found == []
