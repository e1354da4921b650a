"""Sweeps of local jobs: their trials, kills of their controller, stops, pruning and metrics that are missing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cloudtrain import Estimator, InvalidJob, Job, Sweep
from cloudtrain.cli import cli
from cloudtrain.errors import PlatformError
from cloudtrain.index import list_jobs
from cloudtrain.storage import uri_to_path
from cloudtrain.sweep import StartedSweep
from cloudtrain.sweep.plan import make_plan
from cloudtrain.sweep.start import create
from cloudtrain.sweep.trials import ASKED, COMPLETED, FAILED, NO_VALUE, PRUNED, STOPPED, Trials

SCRIPT = """
import argparse, os, time
parser = argparse.ArgumentParser()
parser.add_argument("-x", type=float)
x = parser.parse_args().x
line = f"{os.environ['CLOUDTRAIN_TRIAL']} {os.environ.get('CUDA_VISIBLE_DEVICES')}\\n"
descriptor = os.open(os.environ["RUNS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
os.write(descriptor, line.encode())
print(f"loss={(x - 0.3) ** 2}")
"""
LOSS = [{"Name": "loss", "Regex": "loss=([0-9.e+-]+|nan)"}]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT)
    return tmp_path


def fields_of(folder: Path, **more: Any) -> dict[str, Any]:
    return {
        "entry_point": str(folder / "train.py"),
        "platform": "local",
        "environment": {"RUNS": str(folder / "runs")},
        "metric_definitions": LOSS,
        "samples": False,
        **more,
    }


def start(folder: Path, space: Any = None, metric: str = "loss", **plan: Any) -> StartedSweep:
    fields = fields_of(folder, **plan.pop("fields", {}))
    return create(fields, make_plan("opt", space or {"x": "0.0..1.0"}, metric, **{"seed": 1, **plan}))


def control(name: str, *at: str) -> int:
    program = str(Path(__file__).with_name("controlled.py"))
    return subprocess.run([sys.executable, program, name, *at], timeout=200).returncode


def until(condition: Any, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


KILLS = [
    (event, when) for event in ("asked", "submitted", "ended", "finished") for when in ("before", "after")
]


def test_a_controller_that_is_killed_at_every_event_loses_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each trial runs once, and the suggestions are those of no kill."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    started = start(folder, trials=6, parallel=2)
    for event, when in KILLS:
        assert control("opt", event, when) == -signal.SIGKILL, (event, when)
        if event != "finished":
            assert started.status == "Interrupted"
        assert len(started.trials.open) <= 2
    trials = started.trials
    assert (started.status, trials.finished) == ("Completed", "completed")
    assert [trial.status for trial in trials.all] == [COMPLETED] * 6
    runs = [line.split() for line in (folder / "runs").read_text().splitlines()]
    assert {gpus for _, gpus in runs} == {"0,1", "2,3"}, "trials at the same time share the GPUs"
    assert sorted(trial for trial, _ in runs) == [str(number) for number in range(6)], (
        "a trial was lost, or ran twice"
    )
    listed = CliRunner().invoke(cli, ["list"], prog_name="cloudtrain")
    assert listed.stderr == "Trials of sweeps. See: cloudtrain sweep describe opt\n"
    assert sorted(entry.name for entry in list_jobs()) == [f"opt-{number:04d}" for number in range(6)]
    again = create(fields_of(folder), make_plan("whole", {"x": "0.0..1.0"}, "loss", seed=1, trials=6))
    again.run_here()
    chosen, whole = ([trial.parameters for trial in one.trials.all] for one in (started, again))
    assert chosen == whole
    best = started.best()
    assert best.value == min(trial.value for trial in trials.all if trial.value is not None)
    assert json.loads(json.dumps(started.describe()))["best"]["name"] == best.name


def test_a_sweep_in_the_background(folder: Path) -> None:
    """Python's API; the source is that of the start; it continues with more trials."""
    estimator = Estimator(
        "train.py", platform="local", environment={"RUNS": str(folder / "runs")}, metric_definitions=LOSS,
        hyperparameters={"sagemaker_region": "nowhere"},
    )  # fmt: skip
    sweep = Sweep(estimator, {"x": [0.1, 0.2, 0.4]}, "loss", sampler="grid", trials=2, name="opt")
    with pytest.warns(UserWarning, match="hyperparameters that begin with sagemaker_") as warned:
        started = sweep.fit(wait=False)
    assert warned[0].filename == __file__
    (folder / "train.py").write_text("raise SystemExit('changed')")
    lines: list[str] = []
    trials = started.wait(lines.append)
    assert [trial.parameters["x"] for trial in trials.all] == [0.1, 0.2]
    assert len(lines) == 2
    assert "the best so far" in lines[0]
    with pytest.raises(InvalidJob, match="there is already a sweep opt"):
        sweep.fit()
    with pytest.raises(InvalidJob, match="has all of its 2 trials"):
        started.continue_()
    started.continue_(more=5, parallel=2)
    started.start_controller()
    assert [trial.parameters["x"] for trial in started.wait().all] == [0.1, 0.2, 0.4]
    job = started.best_job()
    assert job.name == "opt-0001"
    assert job.metrics["loss"] == pytest.approx(0.01)
    assert started.best_fields("longer")["hyperparameters"]["x"] == 0.2
    assert started.best_fields("longer")["checkpoint_s3_uri"] == job.describe().checkpoint_uri


def test_the_best_trial_trains_on_from_its_checkpoint_and_the_space_changes(folder: Path) -> None:
    (folder / "train.py").write_text(
        "import argparse, cloudtrain\n"
        "from cloudtrain.checkpoint import Checkpointer\n"
        "parser = argparse.ArgumentParser()\n"
        "parser.add_argument('-x', type=float)\n"
        "parser.add_argument('--epochs', type=int)\n"
        "options = parser.parse_args()\n"
        "checkpointer = Checkpointer()\n"
        "found = checkpointer.restore()\n"
        "first = found.step if found else 0\n"
        "for step in range(first + 1, options.epochs + 1):\n"
        "    cloudtrain.log(step=step, loss=options.x / step)\n"
        "    checkpointer.save(step, {'x': options.x})\n"
        "checkpointer.close()\n"
        "print(f'x={options.x} from step {first}')\n"
    )
    started = start(folder, trials=2, fields={"hyperparameters": {"epochs": 2}, "metric_definitions": []})
    started.run_here()
    best = started.best().parameters["x"]
    command = ["sweep", "best", "opt", "--submit", "--set", "hyperparameters.epochs=3"]
    longer = CliRunner().invoke(cli, command, prog_name="cloudtrain")
    assert longer.exit_code == 0, longer.output
    assert f"x={best} from step 2" in Job.attach("opt-best").logs()
    assert Job.attach("opt-best").metrics["loss"] == pytest.approx(best / 3)
    more = ["sweep", "continue", "opt", "--trials", "2", "--search", "x=5.0..6.0"]
    continued = CliRunner().invoke(cli, more, prog_name="cloudtrain")
    assert continued.exit_code == 0, continued.output
    assert [trial.parameters["x"] >= 5 for trial in started.trials.all] == [False, False, True, True]


def test_trials_that_fail_do_not_end_the_sweep(folder: Path) -> None:
    """One fails, one has NaN, one reports nothing, one is out of memory: each is named, and the others count."""
    (folder / "train.py").write_text(
        "import argparse\n"
        "parser = argparse.ArgumentParser()\n"
        "parser.add_argument('--kind')\n"
        "kind = parser.parse_args().kind\n"
        "if kind == 'fail': raise ValueError('no')\n"
        "if kind == 'memory': raise MemoryError()\n"
        "print({'nan': 'loss=nan', 'silent': 'hello'}.get(kind, 'loss=0.5'))\n"
    )
    kinds = ["fail", "nan", "silent", "memory", "good"]
    started = start(folder, {"kind": kinds}, sampler="grid", parallel=3)
    started.run_here()
    found = {trial.parameters["kind"]: trial for trial in started.trials.all}
    assert {kind: found[kind].status for kind in kinds} == {
        "fail": FAILED, "nan": NO_VALUE, "silent": NO_VALUE, "memory": FAILED, "good": COMPLETED,
    }  # fmt: skip
    assert "ValueError: no [user-error]" in found["fail"].why
    assert found["memory"].failure_class == "out-of-memory"
    assert "nan" in found["nan"].why
    assert "never reported loss" in found["silent"].why
    assert started.best().parameters == {"kind": "good"}


def test_a_metric_that_no_trial_reports_ends_the_sweep(folder: Path) -> None:
    (folder / "train.py").write_text("print('accuracy of 1, not the loss')")
    started = start(folder, trials=20)
    started.run_here()
    assert len(started.trials.all) == 3
    assert started.status == "Failed"
    assert "3 trials have completed, and none has a value of loss" in started.describe()["why"]


SLOW = """
import argparse, time, cloudtrain
from cloudtrain import environment
(environment.model_dir() / "model").write_text("weights")
parser = argparse.ArgumentParser()
parser.add_argument("-x", type=float)
x = parser.parse_args().x
for step in range(1, 400):
    cloudtrain.log(step=step, loss=x / step)
    time.sleep(0.05 if x > 0.5 else 0.0)
"""


def test_a_pruned_trial_is_stopped_immediately_and_keeps_its_model(folder: Path) -> None:
    """The first two are good; the others are worse at the same step, and would take 20 s."""
    (folder / "train.py").write_text(SLOW)
    started = start(folder, {"x": [0.1, 0.2, 0.8, 0.9]}, sampler="grid", pruner="asha", prune_after=5)
    began = time.monotonic()
    started.run_here()
    statuses = [trial.status for trial in started.trials.all]
    assert statuses[0] == COMPLETED
    assert statuses[2:] == [PRUNED, PRUNED], [trial.to_dict() for trial in started.trials.all]
    for trial in started.trials.all[2:]:
        assert trial.pruned_at is not None
        assert trial.value == pytest.approx(trial.parameters["x"] / trial.pruned_at)
        job = Job.attach(trial.name)
        assert str(job.status) == "Stopped"
        with tarfile.open(uri_to_path(str(job.describe().model_data))) as model:
            assert "model" in {Path(name).name for name in model.getnames()}
    assert time.monotonic() - began < 120
    assert started.best().parameters == {"x": 0.1}


def test_interrupts_stop_asking_and_then_the_trials(folder: Path) -> None:
    (folder / "train.py").write_text("import time; print('loss=1', flush=True); time.sleep(300)")
    started = start(folder, trials=9, parallel=2)
    program = str(Path(__file__).with_name("controlled.py"))
    with subprocess.Popen([sys.executable, program, "opt"]) as process:
        running = lambda: [entry for entry in started.trials.all if str(entry.status) == "Running"]  # noqa: E731
        until(lambda: len(running()) == 2)
        process.send_signal(signal.SIGINT)
        until(lambda: started.status == "Stopping")
        assert [str(Job.attach(trial.name).status) for trial in running()] != ["Stopped"] * 2
        process.send_signal(signal.SIGINT)
        assert process.wait(100) == 0
    assert [trial.status for trial in started.trials.all] == [STOPPED] * 2
    assert started.status == "Stopped"


def test_a_controller_that_is_paused_keeps_others_out(folder: Path) -> None:
    """As on a laptop that sleeps, or under a debugger: trials run on, and none is submitted twice."""
    started = start(folder, trials=4, parallel=2)
    program = str(Path(__file__).with_name("controlled.py"))
    with subprocess.Popen([sys.executable, program, "opt"]) as process:
        until(lambda: started.trials.all)
        process.send_signal(signal.SIGSTOP)
        try:
            assert started.status == "Running"
            with pytest.raises(PlatformError, match=f"has a controller: process {process.pid} on"):
                started.run_here()
            with pytest.raises(PlatformError, match="has a controller"):
                started.continue_(more=3)
            before = len(started.trials.all)
            time.sleep(3)
            assert len(started.trials.all) == before
        finally:
            process.send_signal(signal.SIGCONT)
        assert process.wait(100) == 0
    assert [trial.status for trial in started.trials.all] == [COMPLETED] * 4
    assert sorted(line.split()[0] for line in (folder / "runs").read_text().splitlines()) == [*"0123"]


def test_trials_per_host_divides_the_gpus(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    with pytest.raises(InvalidJob, match="parallel: 3 trials at the same time, and this machine"):
        start(folder, trials_per_host=2, parallel=3)
    started = start(folder, trials=4, trials_per_host=4, parallel=2)
    started.run_here()
    runs = [line.split()[1] for line in (folder / "runs").read_text().splitlines()]
    assert {*runs} == {"4", "5"}


def test_trials_are_stopped_also_without_a_controller(folder: Path) -> None:
    (folder / "train.py").write_text("import time; print('loss=1', flush=True); time.sleep(300)")
    started = start(folder, trials=3)
    assert control("opt", "submitted", "after") == -signal.SIGKILL
    with pytest.raises(PlatformError, match="sweep opt has no controller"):
        started.wait()
    with pytest.raises(InvalidJob, match="parallel: opt-0000 still runs, or may, in its share of the hosts"):
        started.continue_(parallel=2)
    started.stop(trials=True)
    assert [trial.status for trial in started.trials.all] == [STOPPED]
    assert started.status == "Stopped"
    started.continue_(parallel=2)


def test_a_trial_that_was_never_submitted_does_not_hold_a_stop_up(folder: Path) -> None:
    started = start(folder, trials=3)
    assert control("opt", "asked", "after") == -signal.SIGKILL
    started.stop(trials=True)
    assert (started.status, [trial.status for trial in started.trials.all]) == ("Stopped", [ASKED])
    started.continue_()
    started.run_here()
    assert [trial.status for trial in started.trials.all] == [COMPLETED] * 3


def test_a_sweep_that_ended_for_a_problem_continues(folder: Path) -> None:
    (folder / "train.py").write_text(
        "import sys\nif float(sys.argv[2]) > 0.5: print('loss=1')\nelse: print('hello')\n"
    )
    started = start(folder, {"x": [0.1, 0.2, 0.3, 0.9]}, sampler="grid")
    started.run_here()
    assert [trial.status for trial in started.trials.all] == [NO_VALUE] * 3
    started.continue_()
    started.run_here()
    assert [trial.status for trial in started.trials.all] == [NO_VALUE] * 3 + [COMPLETED]


def test_steps_below_zero_are_not_shown_to_a_pruner(folder: Path) -> None:
    """Optuna refuses them."""
    (folder / "train.py").write_text(
        "import cloudtrain, time\n"
        "for step in (-1, 0, 1): cloudtrain.log(step=step, loss=1.0); time.sleep(0.5)\n"
    )
    started = start(folder, trials=2, pruner="median")
    started.run_here()
    assert [(trial.status, sorted(trial.values)) for trial in started.trials.all] == [(COMPLETED, [0, 1])] * 2


def test_a_job_of_this_name_that_is_another_is_not_adopted(folder: Path) -> None:
    (folder / "other.py").write_text("print('loss=0')")
    Estimator("other.py", platform="local").fit(job_name="opt-0000", logs=False)
    started = start(folder, trials=2)
    started.run_here()
    first, second = started.trials.all
    assert first.status == FAILED
    assert "there is already a job opt-0000, which does not belong to the sweep" in first.why
    assert second.status == COMPLETED


def test_a_sweep_continues_after_its_events_could_not_be_written(folder: Path) -> None:
    """The events cannot be written for a while: nothing is submitted that is not recorded."""
    started = start(folder, trials=2)
    events = started.journal.folder / "events.jsonl"
    hidden = events.with_name("hidden")
    os.rename(events, hidden)
    os.mkdir(events)
    code = "import sys; sys.argv = sys.argv[1:]; from pathlib import Path\n"
    code += "from cloudtrain.sweep.journal import Journal\nfrom cloudtrain.sweep.controller import control\n"
    code += "journal = Journal(Path(sys.argv[0]))\nwith journal.owned(): control(journal)\n"
    command = [sys.executable, "-c", code, str(started.journal.folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout
        process.stdout.close()  # its terminal is closed, too
        time.sleep(2)
        assert process.poll() is None
        os.rmdir(events)
        os.rename(hidden, events)
        assert process.wait(100) == 0
    assert [trial.status for trial in Trials(started.journal.read()[0]).all] == [COMPLETED] * 2


def test_the_cost_of_all_trials_is_capped(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour of this machine costs 0.6 EUR, and all trials together may take 18 s."""
    (folder / "prices.yaml").write_text("prices: {currency: EUR, rows: [{platform: local, node_hour: 0.6}]}")
    (folder / "train.py").write_text("import time; time.sleep(1); print('loss=1', flush=True)")
    with pytest.raises(InvalidJob, match="max_cost: there is no price for local"):
        start(folder, trials=50, max_cost=0.003)
    monkeypatch.setenv("CLOUDTRAIN_CONFIG", str(folder / "prices.yaml"))
    with pytest.raises(
        InvalidJob,
        match=r"19 s of this job may cost .*, which is more than the sweep's max_cost of 0.003 EUR",
    ):
        start(folder, trials=50, max_cost=0.003, fields={"max_run": 19})
    started = start(folder, trials=50, max_cost=0.003, fields={"max_run": 18})  # later trials have less
    started.run_here()
    trials = started.trials
    assert trials.finished == "max_cost"
    assert started.status == "Stopped"
    assert 1 <= len(trials.all) < 18
    costs = [trial.cost for trial in trials.all]
    assert all(costs)
    assert trials.cost is not None
    assert 0.0008 < trials.cost <= 0.006  # the last trial ends a poll and its grace after its cap
    assert Job.attach(started.best().name).platform.request(started.best().name).body["cost_terms"]["cap"]  # type: ignore[attr-defined]


def test_a_trial_that_was_only_asked_for_has_its_own_gpus_with_a_smaller_parallel(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3,4,5")
    (folder / "train.py").write_text(
        "import os, time\n"
        "from pathlib import Path\n"
        "runs = Path(os.environ['RUNS'])\n"
        "(runs / os.environ['CLOUDTRAIN_TRIAL']).write_text(os.environ['CUDA_VISIBLE_DEVICES'])\n"
        "wanted = 'asked' if os.environ['CLOUDTRAIN_TRIAL'] in '012' else '5'\n"
        "while not (runs / wanted).exists(): time.sleep(0.05)\n"
        "print('loss=1', flush=True)\n"
    )
    (folder / "runs").mkdir()
    started = start(folder, trials=6, parallel=4)
    for event in ("submitted", "submitted", "submitted", "asked"):
        assert control("opt", event, "after") == -signal.SIGKILL
    (folder / "runs" / "asked").touch()
    jobs = [Job.attach(f"opt-000{number}") for number in range(3)]
    until(lambda: all(job.status.is_final for job in jobs))
    assert [trial.status for trial in started.trials.all][3:] == [ASKED]
    started.continue_(parallel=3)
    started.run_here()
    assert [trial.status for trial in started.trials.all] == [COMPLETED] * 6
    gpus = [(folder / "runs" / str(number)).read_text() for number in (3, 4, 5)]
    assert sorted(gpus) == ["0,1", "2,3", "4,5"], "two trials used one GPU"
