"""Every kind of thing that a job can run, and what it may need."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest
from local_jobs import TWO_RANKS, Run, events, folder, make_wheel, write

from cloudtrain import FailureClass, JobStatus
from cloudtrain.errors import InvalidSource
from cloudtrain.runtime.requirements import install
from cloudtrain.storage import state_home

PACKAGE = """
    [build-system]
    requires = ["setuptools"]
    build-backend = "setuptools.build_meta"
    [project]
    name = "{name}"
    version = "1.0"
    [tool.setuptools]
    py-modules = ["{name}"]
"""


def local_package(folder: Path, name: str, text: str) -> Path:
    write(folder, "pyproject.toml", PACKAGE.format(name=name))
    return write(folder, f"{name}.py", text)


def test_a_shell_script_gets_its_arguments_unharmed(run: Run) -> None:
    job = run(
        'for a in "$@"; do echo "<$a>"; done; echo rank $RANK of $WORLD_SIZE',
        name="run.sh",
        hyperparameters={"text": "a  b; $(id) 'q'"},
        distribution=TWO_RANKS,
    )
    assert [line for line in job.logs().splitlines() if line.startswith("[rank 1]")] == [
        "[rank 1] <--text>",
        "[rank 1] <a  b; $(id) 'q'>",
        "[rank 1] rank 1 of 2",
    ]


def test_a_shell_script_passes_its_code_on(run: Run) -> None:
    job = run("#!/bin/bash\necho no; exit 3", name="run.sh")
    assert job.failure
    assert (job.failure.exit_code, job.failure.log_tail) == (3, ("no",))


def test_a_shell_script_has_the_signals_of_a_plain_shell(run: Run) -> None:
    """bash cannot restore a SIGPIPE that was ignored at its start: yes would then fail with code 1 and a message."""
    job = run("#!/bin/bash\nyes | head -1\necho ${PIPESTATUS[0]}", name="run.sh")
    assert job.logs() == "[rank 0] y\n[rank 0] 141\n"


def test_a_script_finds_itself_and_its_arguments_as_under_plain_python(run: Run) -> None:
    job = run("import os, sys; os.chdir('/'); print(__file__, sys.argv[0], sys.path[0])")
    code = folder(job).host("algo-1").code
    plain = subprocess.check_output([sys.executable, "train.py"], cwd=code, text=True)
    assert plain == f"{code.resolve()}/train.py train.py {code.resolve()}\n"
    assert job.logs() == f"[rank 0] {plain}"


def test_the_children_of_a_shell_script_receive_sigterm(run: Run) -> None:
    from local_jobs import wait_for_end, wait_until

    script = """
        python -c "
        import signal, sys, time
        signal.signal(signal.SIGTERM, lambda *_: (print('stopping', flush=True), sys.exit()))
        print('on', flush=True)
        time.sleep(60)"
    """
    job = run(
        "\n".join(line.strip() if "import" in line else line[8:] for line in script.splitlines()),
        name="r.sh",
        wait=False,
    )
    wait_until(lambda: "on" in job.logs(), "the child")
    job.stop()
    wait_for_end(job)
    assert "stopping" in job.logs()


def test_any_executable(run: Run, tmp_path: Path) -> None:
    folder = write(tmp_path / "src", "tool", f"#!{sys.executable}\nimport sys; print(sys.argv[1:])\n")
    (folder / "tool").chmod(0o755)
    job = run(folder, name="tool", hyperparameters={"x": 1})
    assert job.logs() == "[rank 0] ['-x', '1']\n"


def test_a_module_of_a_package(run: Run, tmp_path: Path) -> None:
    folder = local_package(tmp_path / "src", "trainer", "print('module', __name__, __package__)")
    job = run(folder, name="trainer", hyperparameters={"x": 1})
    assert job.status == JobStatus.COMPLETED
    *installing, printed = job.logs().splitlines()
    assert printed == "[rank 0] module __main__ "
    assert installing[0] == "[cloudtrain] Installing the package of the source (pyproject.toml)"
    assert all(line.startswith("[cloudtrain] ") for line in installing)


def test_modules_next_to_the_script_and_dependencies_can_be_imported(run: Run, tmp_path: Path) -> None:
    folder = write(tmp_path / "src", "train.py", "import helper, lib.extra; print(helper.x + lib.extra.y)")
    write(folder, "helper.py", "x = 1")
    write(tmp_path / "lib", "extra.py", "y = 2")
    job = run(folder, dependencies=[str(tmp_path / "lib")])
    assert job.logs() == "[rank 0] 3\n"


def test_multiprocessing_with_spawn_works_in_a_script(run: Run) -> None:
    job = run(
        """
        import multiprocessing
        def double(x):
            return 2 * x
        if __name__ == "__main__":
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print(pool.map(double, [1, 2]))
        """
    )
    assert job.logs() == "[rank 0] [2, 4]\n"


@pytest.mark.parametrize("name", ["train.py", "run.sh"])
def test_requirements_are_installed_for_every_kind_and_only_for_the_job(
    run: Run, tmp_path: Path, name: str
) -> None:
    wheel = make_wheel(tmp_path, "wanted_by_test")
    script = "import wanted_by_test; print(wanted_by_test.x)"
    folder = write(tmp_path / "src", name, script if name == "train.py" else f'python -c "{script}"')
    write(folder, "requirements.txt", f"{wheel}\n")
    for _ in range(2):  # the second time from the cache
        job = run(folder, name=name, instance_count=2)
        ranks = sorted(line for line in job.logs().splitlines() if line.startswith("[rank"))
        assert ranks == ["[rank 0] 5", "[rank 1] 5"], job.failure
    assert subprocess.run(
        [sys.executable, "-c", "import wanted_by_test"], capture_output=True, check=False
    ).returncode


def test_requirements_are_installed_on_top_of_this_environment_without_changing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job, inside a rank of another job, requires another version of an installed package."""
    here = importlib.metadata.version("click")
    wheel = make_wheel(tmp_path, "click", "99.0")
    code = write(tmp_path / "code", "requirements.txt", f"{wheel}\n")
    (tmp_path / "outer").mkdir()
    monkeypatch.setenv("CLOUDTRAIN_RUN_DIR", str(tmp_path / "outer"))
    python = install(code, package=False, cache=str(tmp_path / "cache"))
    show = "import importlib.metadata as m, click; print(m.version('click'), click.__file__)"
    version, file = subprocess.check_output([python, "-c", show], text=True).split()
    assert (version, Path(file).is_relative_to(tmp_path / "cache")) == ("99.0", True)
    assert subprocess.check_output([sys.executable, "-c", show], text=True).split()[0] == here
    assert list((tmp_path / "outer").iterdir()) == []


def test_requirements_that_cannot_be_installed(run: Run, tmp_path: Path) -> None:
    folder = write(tmp_path / "src", "train.py", "print('never')")
    write(folder, "requirements.txt", "./nosuch-folder\n")
    job = run(folder, instance_count=2)
    failure = job.failure
    assert failure
    assert (failure.failure_class, failure.rank, failure.phase) == (
        FailureClass.REQUIREMENTS,
        None,
        "requirements",
    )
    assert "nosuch-folder" in failure.message
    logs = job.logs()
    assert "never" not in logs
    assert logs.count("[cloudtrain] requirements on algo-") == 1, logs
    assert logs.count("[cloudtrain] Installing requirements.txt") == 1, logs
    assert list((state_home() / "environments").glob("*/")) == []
    assert {outcome["status"] for outcome in events(job, "outcome")} == {"Failed"}


@pytest.mark.parametrize(
    ("script", "name", "message"),
    [
        (None, "train.py", "train.py"),
        ("def f(:", "train.py", r"train.py:1|line 1"),
        ("", "../train.py", "outside source_dir"),
    ],
)
def test_invalid_entry_points(run: Run, tmp_path: Path, script: str | None, name: str, message: str) -> None:
    folder = tmp_path / "src"
    folder.mkdir()
    if script is not None:
        write(folder, "train.py", script)
    with pytest.raises(InvalidSource, match=message):
        run(folder, name=name)


def test_torchrun_sets_its_variables(run: Run) -> None:
    job = run(
        """
        import os
        names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "GROUP_RANK", "TORCHELASTIC_RESTART_COUNT")
        print(*(os.environ[name] for name in names))
        """,
        instance_count=2,
        distribution={"torch_distributed": {"enabled": True}},
    )
    ranks = sorted(line for line in job.logs().splitlines() if line.startswith("[rank"))
    assert ranks == ["[rank 0] 0 0 2 0 0", "[rank 1] 1 0 2 1 0"]


@pytest.mark.parametrize("name", ["json.py", "types.py", "cloudtrain.py", "logging.py"])
@pytest.mark.parametrize("distribution", [None, {"torch_distributed": {}}])
def test_a_script_may_have_the_name_of_a_module(run: Run, name: str, distribution: object) -> None:
    job = run("import os; print('ran', __name__)", name=name, distribution=distribution)
    assert "[rank 0] ran __main__" in job.logs().splitlines(), job.failure


def test_errors_of_the_interpreter_are_in_the_log(run: Run) -> None:
    job = run("print('never')", environment={"PYTHONHOME": "/nosuch"})
    assert job.status == JobStatus.FAILED
    assert "encodings" in job.logs()
