"""Uses of ``/opt/ml`` in a source, and the hint for a script that failed because of one."""

from __future__ import annotations

import pytest

from cloudtrain.contract import FailureClass, FailureReport
from cloudtrain.contract.opt_ml import advice, find_uses, show_uses, variable_for, with_hint

WHY = "the machine has no namespaces"


@pytest.mark.parametrize(
    ("name", "text", "paths"),
    [
        ("train.py", "torch.save(model, '/opt/ml/model/model.pt')", ["/opt/ml/model/model.pt"]),
        ("train.py", "prefix = '/opt/ml/'", ["/opt/ml/"]),
        ("train.py", "path = f'/opt/ml/model/{name}'", ["/opt/ml/model/"]),
        ("train.py", "parser.add_argument('--model_dir', default='/opt/ml/model')", ["/opt/ml/model"]),
        ("train.py", "uri = 'file:///opt/ml/checkpoints'", ["/opt/ml/checkpoints"]),
        ("train.py", "os.system('cp weights /opt/ml/model')", ["/opt/ml/model"]),
        ("train.py", "print '/opt/ml/model'", ["/opt/ml/model"]),
        ("train.py", "os.environ.get('SM_MODEL_DIR', '/opt/ml/model')", []),
        ("train.py", "os.getenv('SM_CHANNEL_TRAIN', default='/opt/ml/input/data/train')", []),
        ("train.py", "os.environ.get('SM_MODEL_DIR') or '/opt/ml/model'", []),
        (
            "train.py",
            "d = os.environ['SM_MODEL_DIR'] if 'SM_MODEL_DIR' in os.environ else '/opt/ml/model'",
            [],
        ),
        ("train.py", "args.get('model', '/opt/ml/model')", ["/opt/ml/model"]),
        ("train.py", "# saves to /opt/ml/model", []),
        ("train.py", "'''Saves to /opt/ml/model.'''", []),
        ("train.py", "parser.add_argument('--dir', help='such as /opt/ml/model')", []),
        ("train.py", "'/opt/mlflow', '/opt/ml-data', '/srv/opt/ml'", []),
        ("train.sh", "# notes\ncp weights /opt/ml/model/\n", ["/opt/ml/model/"]),
        ("train.sh", 'cp weights "${SM_MODEL_DIR:-/opt/ml/model}"', []),
        ("conf/config.yaml", "out: /opt/ml/output/data  # kept", ["/opt/ml/output/data"]),
        ("data.csv", "/opt/ml/model", []),
        ("broken.py", b"\xff\x00 '/opt/ml/model'", ["/opt/ml/model"]),
    ],
)
def test_only_what_the_script_would_use_is_found(name: str, text: str | bytes, paths: list[str]) -> None:
    content = text if isinstance(text, bytes) else text.encode()
    assert [use.path for use in find_uses([(name, content)])] == paths


def test_uses_are_shown_in_one_line() -> None:
    uses = find_uses([("b.py", b"\n".join(b"'/opt/ml/model'" for _ in range(4))), ("a.sh", b"ls /opt/ml")])
    assert show_uses(uses[:1]) == "a.sh:1 uses /opt/ml"
    assert show_uses(uses).endswith("b.py:2 uses /opt/ml/model, and 2 more")


@pytest.mark.parametrize(
    ("path", "variable"),
    [
        ("/opt/ml", "SM_MODEL_DIR"),
        ("/opt/ml/model/1/saved_model.pb", "SM_MODEL_DIR"),
        ("/opt/ml/input/data/train/x.csv", "SM_CHANNEL_TRAIN"),
        ("/opt/ml/input/data", "SM_INPUT_DIR"),
        ("/opt/ml/output/data/plot.png", "SM_OUTPUT_DATA_DIR"),
        ("/opt/ml/output/failure", "SM_OUTPUT_DIR"),
        ("/opt/ml/checkpoints", "SAGEMAKER_BASE_DIR"),
        ("/opt/ml/modeling", "SM_MODEL_DIR"),
    ],
)
def test_the_advice_names_the_variable(path: str, variable: str) -> None:
    assert variable_for(path) == variable
    assert advice(path).startswith(f"Use the variable {variable} ") and "--platform container" in advice(path)


def report(message: str, exception_type: str | None = "FileNotFoundError", *tail: str) -> FailureReport:
    return FailureReport(
        FailureClass.MISSING_DATA, message, "other", exception_type=exception_type, log_tail=tail
    )


@pytest.mark.parametrize(
    ("failure", "hinted"),
    [
        (report("[Errno 2] No such file or directory: '/opt/ml/model/a'"), True),
        (report("[Errno 13] Permission denied: '/opt/ml'", "PermissionError"), True),
        (report("", None, "mkdir: cannot create directory '/opt/ml': Permission denied"), True),
        (report("no batches", "ValueError", "reads /opt/ml/input/data/train"), False),
        (report("[Errno 2] No such file or directory: '/opt/mlflow'"), False),
    ],
)
def test_the_hint_is_for_failures_because_of_such_a_path(failure: FailureReport, hinted: bool) -> None:
    hint = with_hint(failure, WHY).hint
    assert hint == failure.hint if not hinted else WHY in hint
    assert not hinted or ("SM_MODEL_DIR" in hint and "--platform container" in hint)
