"""What the answers of an image mean, and what pip would do in it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cloudtrain.platforms import CheckStatus
from cloudtrain.platforms.container import _verdicts
from cloudtrain.platforms.container._answers import Answers, Trouble, read_answers
from cloudtrain.platforms.container._image import is_guarded
from cloudtrain.platforms.container._requirements import plan

INSTALLED = {"torch": "2.13.0+cpu", "NumPy": "2.1.0", "typing_extensions": "4.12"}
MARKERS = {"python_version": "3.11", "sys_platform": "linux"}


@pytest.mark.parametrize(
    ("line", "becomes"),
    [
        ("torch", None),
        ("torch==2.13.0  # the image's", None),
        ("numpy >= 2 ; python_version > '3.9'", None),
        ("typing-extensions", None),
        ("tomli ; python_version < '3.11'", None),
        ("# nothing", None),
        ("", None),
        ("scipy[all]>=1.2", "missing"),
        ("torch==2.4.0", "replaced"),
        ("torch @ https://example.com/torch.whl", "replaced"),
        ("-r more.txt", "unknown"),
        ("./local", "unknown"),
        ("git+https://example.com/a.git", "unknown"),
        ("torch=2.4.0", "wrong"),
        ("import torch", "wrong"),
    ],
)
def test_what_becomes_of_a_line(line: str, becomes: str | None) -> None:
    found = vars(plan([line], INSTALLED, MARKERS))
    assert [kind for kind, lines in found.items() if lines] == ([becomes] if becomes else [])


def answers(**told: Any) -> Answers:
    return Answers(**{"python": (3, 11, 7), "markers": MARKERS, "installed": INSTALLED, **told})


MISSING = Trouble(("ModuleNotFoundError", "ImportError", "Exception"), "No module named 'a'")
REMOVED = Trouble(("AttributeError", "Exception"), "module 'a' has no attribute 'b'")
NEEDS_DATA = Trouble(("KeyError", "Exception"), "'SM_CHANNEL_TRAIN'")


@pytest.mark.parametrize(
    ("finding", "outcome", "words"),
    [
        (_verdicts.on_python(answers()), CheckStatus.OK, "Python 3.11.7"),
        (_verdicts.on_python(answers(python=(3, 8, 1))), CheckStatus.FAILED, "Python 3.8.1"),
        (_verdicts.on_requirements(["numpy"], True, answers()), CheckStatus.OK, "has all"),
        (_verdicts.on_requirements(["scipy"], False, answers()), CheckStatus.OK, "scipy"),
        (_verdicts.on_requirements(["scipy"], True, answers()), CheckStatus.FAILED, "scipy"),
        (_verdicts.on_requirements(["numpy<2"], False, answers()), CheckStatus.OK, "numpy<2 for 2.1.0"),
        (
            _verdicts.on_requirements(["torch<2"], False, answers()),
            CheckStatus.WARNING,
            "torch<2 for 2.13.0+cpu",
        ),
        (_verdicts.on_requirements(["a=1"], False, answers()), CheckStatus.FAILED, "'a=1'"),
        (_verdicts.on_imports([], answers(modules={"a": None})), CheckStatus.OK, "import a"),
        (_verdicts.on_imports([], answers(modules={"a": MISSING})), CheckStatus.FAILED, "No module"),
        (_verdicts.on_imports(["c"], answers(modules={"a": MISSING})), CheckStatus.WARNING, "No module"),
        (_verdicts.on_imports([], answers(modules={}, stuck="a")), CheckStatus.FAILED, "a crashes"),
        (_verdicts.on_script("t.py", True, [], answers()), CheckStatus.OK, "import t.py"),
        (_verdicts.on_script("t.py", False, [], answers()), CheckStatus.OK, "compile t.py"),
        (_verdicts.on_script("t.py", True, [], answers(script=MISSING)), CheckStatus.FAILED, "No module"),
        (_verdicts.on_script("t.py", True, ["a"], answers(script=MISSING)), CheckStatus.WARNING, "No module"),
        (_verdicts.on_script("t.py", True, ["a"], answers(script=REMOVED)), CheckStatus.FAILED, "attribute"),
        (
            _verdicts.on_script("t.py", True, [], answers(script=NEEDS_DATA)),
            CheckStatus.WARNING,
            "SM_CHANNEL",
        ),
        (_verdicts.on_script("t.py", True, [], answers(stuck="t.py")), CheckStatus.FAILED, "t.py crashes"),
        (_verdicts.on_gpu("", answers(gpu_builds={"torch": "12.8"})), CheckStatus.OK, "torch for CUDA 12.8"),
        (_verdicts.on_gpu("ml.p5.4xlarge", answers(gpu_builds={"torch": "12.8"})), CheckStatus.OK, "12.8"),
        (
            _verdicts.on_gpu("ml.p5.4xlarge", answers(gpu_builds={"torch": None})),
            CheckStatus.WARNING,
            "ml.p5",
        ),
        (_verdicts.on_gpu("", answers()), CheckStatus.UNKNOWN, "no framework"),
        (_verdicts.on_mpirun(answers(mpirun="/usr/bin/mpirun")), CheckStatus.OK, "/usr/bin/mpirun"),
        (_verdicts.on_mpirun(answers()), CheckStatus.FAILED, "no mpirun"),
    ],
)
def test_verdicts(finding: Any, outcome: CheckStatus, words: str) -> None:
    assert finding.status == outcome
    assert words in finding.what
    assert finding.hint or outcome in (CheckStatus.OK, CheckStatus.UNKNOWN)


def test_a_probe_that_ends_early_is_stuck_where_it_was() -> None:
    told = [{"python": [3, 11, 7]}, {"trying": "a"}, {"module": "a", "error": None}, {"trying": "b"}]
    found = read_answers(json.dumps(line) for line in told)
    assert (found.python, found.modules, found.stuck) == ((3, 11, 7), {"a": None}, "b")
    assert read_answers(iter(())) == Answers()


@pytest.mark.parametrize(
    ("script", "is_it"),
    [
        ("if __name__ == '__main__':\n    main()", True),
        ("train()", False),
        ("def f():\n    if __name__ == '__main__': pass", False),
    ],
)
def test_a_script_that_can_be_imported(script: str, is_it: bool) -> None:
    assert is_guarded(script.encode()) is is_it
