"""Requirements are installed by the real pip: once for each content, with progress, and with the right blame."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from local_jobs import make_wheel

from cloudtrain import Job
from cloudtrain.platforms.supervised.leftovers import ENVIRONMENTS, UNUSED_SECONDS, JobEnds, environments
from cloudtrain.runtime.inputs import requirements
from cloudtrain.runtime.inputs.installer import REQUIREMENTS, RequirementsFailed, run
from cloudtrain.runtime.inputs.overlay import COMPLETE, Overlay, overlays_in
from cloudtrain.runtime.inputs.requirements import install
from cloudtrain.runtime.run_folder import RANK_PROGRAM
from cloudtrain.storage import state_home

ENDS = JobEnds(lambda _, name: Job.attach(name).describe())


def test_jobs_with_the_same_requirements_share_one_environment_until_it_is_cleaned(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, "wanted_by_test")
    cache = state_home() / ENVIRONMENTS
    code = tmp_path / "code"
    code.mkdir()
    (code / "requirements.txt").write_text(f"{wheel}\n")
    said: list[str] = []
    python = install(code, package=False, cache=str(cache), say=said.append)
    assert said[0] == "Installing requirements.txt"
    assert any(line.startswith("Installing collected packages: wanted") for line in said), said
    assert said[-2].startswith("Installed requirements.txt in ")
    overlay = Overlay(Path(python).parents[1])
    assert overlay.size > 50_000
    size = f"{overlay.size / 1e6:,.1f} MB in {overlay.path}"
    assert said[-1] == f"The environment has {size}. Remove it with: cloudtrain clean --caches"

    (code / "requirements.txt").write_text(f"# what the script needs\n\n{wheel}  # this\n")
    (code / "notes.txt").write_text("other")
    (code / "train.py").write_text("print('edited')")
    said.clear()
    assert install(code, package=False, cache=str(cache), say=said.append) == python
    assert said == [f"requirements.txt: installed before, {size}"]
    said.clear()
    install(code, package=False, cache=str(cache), say=said.append, leads=False)
    assert said == []
    assert subprocess.check_output([python, "-c", "import wanted_by_test as w; print(w.x)"]) == b"5\n"

    assert list(environments(time.time() - UNUSED_SECONDS, ENDS)) == []
    [leftover] = environments(time.time() + 1, ENDS)
    assert (leftover.kind, leftover.name, leftover.size) == ("environment", str(overlay.path), overlay.size)
    leftover.remove()
    assert list(cache.iterdir()) == []


def test_a_damaged_environment_is_made_again(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, "damaged_by_test")
    code = tmp_path / "code"
    code.mkdir()
    (code / "requirements.txt").write_text(f"{wheel}\n")
    said: list[str] = []

    def ask() -> str:
        said.clear()
        return install(code, package=False, cache=str(tmp_path / "cache"), say=said.append)

    python = ask()
    overlay = Overlay(Path(python).parents[1])
    module = overlay.site_packages / "damaged_by_test.py"
    text = module.read_bytes()
    module.unlink()
    assert not overlay.is_intact
    module.write_bytes(text)  # at another time
    assert not overlay.is_intact
    module.write_text("")
    assert ask() == python
    assert "was changed or damaged after it was built" in said[0]
    program = "import damaged_by_test as d; print(d.x)"
    assert subprocess.check_output([python, "-B", "-c", program]) == b"5\n"
    ask()
    assert said[0].startswith("requirements.txt: installed before")


def test_the_wait_for_another_job_that_installs_the_same_is_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    code = tmp_path / "code"
    code.mkdir()
    (code / "requirements.txt").write_text(f"{make_wheel(tmp_path, 'waited_for_by_test')}\n")
    said: list[str] = []
    monkeypatch.setattr(requirements, "HAS_COMMAND", False)
    overlay = Overlay(Path(install(code, package=False, cache=str(cache), say=said.append)).parents[1])
    assert said[-1].startswith("The environment has ")
    assert "cloudtrain clean" not in said[-1], "a bundled runtime names a command that its host lacks"

    expected = ["Waiting for another host or job, which installs requirements.txt"]
    for leads in (True, False):
        (overlay.path / COMPLETE).unlink()  # as while the other job installs
        said.clear()
        with ThreadPoolExecutor() as pool:
            with overlay.locked():
                options = {"say": said.append, "leads": leads}
                waits = pool.submit(install, code, package=False, cache=str(cache), **options)
                time.sleep(0.3)
                while leads and not said and not waits.done():
                    time.sleep(0.01)
                overlay.complete()
            assert waits.result(timeout=60) == overlay.python
        assert said == (expected if leads else [])


def test_an_incomplete_environment_is_removed_unless_a_process_works_on_it() -> None:
    overlay = Overlay(state_home() / ENVIRONMENTS / "0123")
    overlay.path.mkdir(parents=True)
    (overlay.path / "half").write_bytes(b"123")
    [leftover] = environments(0, ENDS)
    assert leftover.size == 3
    with overlay.locked():
        leftover.remove()
    assert overlay.path.exists()
    leftover.remove()
    assert not overlay.path.exists()


SETUP = "raise ValueError('no such flag: -mfoo')\n"


def build_with_installed_setuptools(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pip build packages without a new environment, which takes 4 s of CPU time."""
    monkeypatch.setenv("PIP_NO_BUILD_ISOLATION", "0")  # pip reads it as --no-build-isolation


def test_a_failing_setup_is_not_blamed_on_the_requirements(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_with_installed_setuptools(monkeypatch)
    code = tmp_path / "code"
    code.mkdir()
    (code / "requirements.txt").write_text("click\n")  # installed already
    (code / "setup.py").write_text(SETUP)
    with pytest.raises(RequirementsFailed) as caught:
        install(code, package=True, cache=str(tmp_path / "cache"))
    report = caught.value.report
    assert report.message == (
        "the package of the source (setup.py) cannot be installed: ValueError: no such flag: -mfoo"
    )
    assert report.hint == "Fix setup.py. Try it first: pip install . in the source folder"
    assert any("no such flag" in line for line in report.log_tail)
    assert list((tmp_path / "cache").glob("*/")) == []
    for overlay in overlays_in(tmp_path / "cache"):
        overlay.remove()
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.parametrize(
    ("isolated", "setup", "failed"),
    [
        (True, SETUP, "./lib cannot be built: "),
        (False, SETUP, "./lib cannot be built: "),
        (
            False,
            "import setuptools, sys\nif {'bdist_wheel', 'install'} & {*sys.argv}:\n"
            f"    {SETUP}\nsetuptools.setup(name='tokens')",
            "tokens cannot be built: ",
        ),
    ],
    ids=["isolated", "metadata", "wheel"],
)
def test_a_requirement_whose_setup_fails_is_named_as_such(
    isolated: bool, setup: str, failed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not isolated:
        build_with_installed_setuptools(monkeypatch)
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "setup.py").write_text(setup)
    (tmp_path / "requirements.txt").write_text("./lib\n")
    with pytest.raises(RequirementsFailed) as caught:
        install(tmp_path, package=False, cache=str(tmp_path / "cache"))
    report = caught.value.report
    assert report.message == f"requirements.txt cannot be installed: {failed}ValueError: no such flag: -mfoo"
    assert "its own setup failed" in report.hint


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (
            "import os; print('Collecting x', flush=True); os.kill(os.getpid(), 9)",
            ("was killed by signal 9", "memory"),
        ),
        (
            "print('ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device'); exit(1)",
            ("No space left on device", "cloudtrain clean --caches"),
        ),
    ],
)
def test_a_shortage_on_the_host_is_not_blamed_on_the_requirements(
    tmp_path: Path, program: str, expected: tuple[str, str]
) -> None:
    command = [sys.executable, RANK_PROGRAM, "--", sys.executable, "-c", program]
    with pytest.raises(RequirementsFailed) as caught:
        run(command, str(tmp_path), "requirements.txt cannot be installed", part=REQUIREMENTS)
    report = caught.value.report
    assert expected[0] in report.message
    assert expected[1] in report.hint
    assert "requirements.txt" not in report.hint


def test_a_repository_that_cannot_be_cloned_is_the_reason(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text(f"git+file://{tmp_path}/gone\n")
    with pytest.raises(RequirementsFailed, match=r"cannot be installed: fatal: .*gone"):
        install(tmp_path, package=False, cache=str(tmp_path / "cache"))


def test_credentials_of_an_index_are_never_shown(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text(
        "--index-url http://me:sesame@127.0.0.1:9/simple\n--no-index\nno-such-distribution\n"
    )
    said: list[str] = []
    with pytest.raises(RequirementsFailed) as caught:
        install(tmp_path, package=False, cache=str(tmp_path / "cache"), say=said.append)
    shown = "\n".join([*said, *caught.value.report.log_tail, caught.value.report.message])
    assert "no-such-distribution" in shown
    assert "sesame" not in shown
