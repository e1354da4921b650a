"""Findings from the report of a probe, and predictions of what pip installs in an image."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cloudtrain.platforms import CheckStatus
from cloudtrain.platforms.container import _image_findings
from cloudtrain.platforms.container._image import ImportFailure, ProbeResult, is_guarded, read_result
from cloudtrain.platforms.container._image_findings import plan

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
def test_the_plan_for_a_line(line: str, becomes: str | None) -> None:
    found = vars(plan([line], INSTALLED, MARKERS))
    assert [kind for kind, lines in found.items() if lines] == ([becomes] if becomes else [])


def probed(**values: Any) -> ProbeResult:
    return ProbeResult(**{"python": (3, 11, 7), "markers": MARKERS, "installed": INSTALLED, **values})


MISSING = ImportFailure(("ModuleNotFoundError", "ImportError", "Exception"), "No module named 'a'")
REMOVED = ImportFailure(("AttributeError", "Exception"), "module 'a' has no attribute 'b'")
NEEDS_DATA = ImportFailure(("KeyError", "Exception"), "'SM_CHANNEL_TRAIN'")


@pytest.mark.parametrize(
    ("finding", "outcome", "phrase"),
    [
        (_image_findings.on_python(probed()), CheckStatus.OK, "Python 3.11.7"),
        (_image_findings.on_python(probed(python=(3, 8, 1))), CheckStatus.FAILED, "Python 3.8.1"),
        (_image_findings.on_requirements(["numpy"], True, probed()), CheckStatus.OK, "has all"),
        (_image_findings.on_requirements(["scipy"], False, probed()), CheckStatus.OK, "scipy"),
        (_image_findings.on_requirements(["scipy"], True, probed()), CheckStatus.FAILED, "scipy"),
        (_image_findings.on_requirements(["numpy<2"], False, probed()), CheckStatus.OK, "numpy<2 for 2.1.0"),
        (
            _image_findings.on_requirements(["torch<2"], False, probed()),
            CheckStatus.WARNING,
            "torch<2 for 2.13.0+cpu",
        ),
        (_image_findings.on_requirements(["a=1"], False, probed()), CheckStatus.FAILED, "'a=1'"),
        (_image_findings.on_imports([], probed(modules={"a": None})), CheckStatus.OK, "import a"),
        (_image_findings.on_imports([], probed(modules={"a": MISSING})), CheckStatus.FAILED, "No module"),
        (_image_findings.on_imports(["c"], probed(modules={"a": MISSING})), CheckStatus.WARNING, "No module"),
        (_image_findings.on_imports([], probed(modules={}, stuck="a")), CheckStatus.FAILED, "a crashes"),
        (_image_findings.on_script("t.py", True, [], probed()), CheckStatus.OK, "import t.py"),
        (_image_findings.on_script("t.py", False, [], probed()), CheckStatus.OK, "compile t.py"),
        (
            _image_findings.on_script("t.py", True, [], probed(script=MISSING)),
            CheckStatus.FAILED,
            "No module",
        ),
        (
            _image_findings.on_script("t.py", True, ["a"], probed(script=MISSING)),
            CheckStatus.WARNING,
            "No module",
        ),
        (
            _image_findings.on_script("t.py", True, ["a"], probed(script=REMOVED)),
            CheckStatus.FAILED,
            "attribute",
        ),
        (
            _image_findings.on_script("t.py", True, [], probed(script=NEEDS_DATA)),
            CheckStatus.WARNING,
            "SM_CHANNEL",
        ),
        (
            _image_findings.on_script("t.py", True, [], probed(stuck="t.py")),
            CheckStatus.FAILED,
            "t.py crashes",
        ),
        (
            _image_findings.on_gpu("", probed(gpu_builds={"torch": "12.8"})),
            CheckStatus.OK,
            "torch for CUDA 12.8",
        ),
        (
            _image_findings.on_gpu("ml.p5.4xlarge", probed(gpu_builds={"torch": "12.8"})),
            CheckStatus.OK,
            "12.8",
        ),
        (
            _image_findings.on_gpu("ml.p5.4xlarge", probed(gpu_builds={"torch": None})),
            CheckStatus.WARNING,
            "ml.p5",
        ),
        (_image_findings.on_gpu("", probed()), CheckStatus.UNKNOWN, "no framework"),
        (_image_findings.on_mpirun(probed(mpirun="/usr/bin/mpirun")), CheckStatus.OK, "/usr/bin/mpirun"),
        (_image_findings.on_mpirun(probed()), CheckStatus.FAILED, "no mpirun"),
    ],
)
def test_findings(finding: Any, outcome: CheckStatus, phrase: str) -> None:
    assert finding.status == outcome
    assert phrase in finding.what
    assert finding.hint or outcome in (CheckStatus.OK, CheckStatus.UNKNOWN)


def test_a_probe_that_ends_early_is_stuck_at_its_last_import() -> None:
    report = [{"python": [3, 11, 7]}, {"trying": "a"}, {"module": "a", "error": None}, {"trying": "b"}]
    found = read_result(json.dumps(line) for line in report)
    assert (found.python, found.modules, found.stuck) == ((3, 11, 7), {"a": None}, "b")
    assert read_result(iter(())) == ProbeResult()


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


def test_a_missing_module_may_be_the_users_own() -> None:
    hint = _image_findings.on_imports([], probed(modules={"a": MISSING})).hint
    assert hint.startswith("Your own modules: pack their folder, with --source-dir.")
