"""Population based training, without jobs: who ends, who is a parent, what children try, and that it helps."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import numpy
import pytest

from cloudtrain.checkpoint import Checkpointer
from cloudtrain.checkpoint.inspect import list_checkpoints
from cloudtrain.contract import JobStatus
from cloudtrain.errors import InvalidJob
from cloudtrain.platforms import JobDescription
from cloudtrain.storage import FileStore
from cloudtrain.sweep.controller import _outcome
from cloudtrain.sweep.plan import SweepPlan, changed, make_plan
from cloudtrain.sweep.population import Population, check_checkpoints, explored, hand_on
from cloudtrain.sweep.space import Choices, Range
from cloudtrain.sweep.trials import COMPLETED, NO_VALUE, PRUNED, RUNNING, Trial

SPACE = {"lr": "log:1e-5..1e-1"}
STEPS, INTERVAL = 60, 5


def plan_of(**options: Any) -> SweepPlan:
    given = {"trials": 100, "parallel": 8, "seed": 1, "prune_after": INTERVAL, **options}
    return make_plan("opt", SPACE, "score", sampler="pbt", **given)


def running(number: int, values: dict[int, float], lr: float = 0.01) -> Trial:
    return Trial(number, f"opt-{number:04d}", {"lr": lr}, 0.0, status=RUNNING, values=values)


def ends(population: list[Trial], **options: Any) -> list[int]:
    """The trials that would end now."""
    sampler = Population(plan_of(**options), population)
    steps = {one.number: max(one.values) for one in population if one.values and not one.has_ended}
    return [number for number, step in steps.items() if sampler.report(number, step, 0.0)]


def test_the_worst_quarter_ends_at_a_boundary() -> None:
    trials = [running(number, {3: 9.0, 5: float(number)}) for number in range(8)]
    assert ends(trials) == [0, 1]
    assert ends(trials, goal="minimize") == [6, 7]
    trials[0].status, trials[0].pruned_at, trials[0].ended_at = PRUNED, 5, 1.0
    assert ends(trials) == [1], "at one boundary, no more than a quarter end"
    assert ends([running(number, {4: float(number)}) for number in range(8)]) == []


def test_all_are_compared_at_the_same_boundary() -> None:
    trials = [running(number, {5: float(number), 10: -float(number)}) for number in range(3)]
    trials += [running(3, {4: 3.0})]
    assert ends(trials) == [], "one has not reached the first boundary"
    trials[3].values[6] = 3.0
    assert ends(trials) == [0], "which is the last that all have reached"
    child = running(4, {})
    child.attributes = {"parent": 3}
    assert ends([*trials, child]) == [0], "a child without values holds no trial up"
    child.values = {6: -99.0}
    assert ends([*trials, child]) == [0], "nor is it compared where it has not trained"


def test_a_trial_ends_only_if_another_can_replace_it() -> None:
    trials = [running(number, {5: float(number)}) for number in range(4)]
    assert ends(trials, trials=5) == [0]
    assert ends(trials, trials=4) == []
    trials[0].pruned_at = 5  # it is being stopped, and will be replaced
    assert ends(trials, trials=5) == []
    for trial in trials[1:]:
        trial.status, trial.ended_at = COMPLETED, 1.0
    assert ends([*trials[1:], running(4, {5: -1.0})]) == [], "no other trains: none could be its parent"


def test_parents_are_of_the_best_quarter_and_chosen_by_the_seed() -> None:
    trials = [running(number, {5: float(number)}, 10.0 ** -(number + 1)) for number in range(4)]
    trials += [Trial(4, "opt-0004", {"lr": 0.1}, 0.0, status=PRUNED, values={5: 99.0}, ended_at=1.0)]
    population = Population(plan_of(parallel=4), trials)
    asked = [population.ask(number) for number in range(5, 30)]
    assert {attributes["parent"] for _, attributes in asked} == {3}
    assert asked == [Population(plan_of(parallel=4), trials).ask(number) for number in range(5, 30)]
    assert population.ask(0)[1] == {}, "the first trials have no parents"
    assert any(parameters["lr"] == pytest.approx(1.2e-4) for parameters, _ in asked)
    assert len({parameters["lr"] for parameters, _ in asked}) > 5, "some are resampled"


def test_explored_values_are_in_the_space() -> None:
    source = random.Random(1)
    whole, choices = Range(1, 4, is_whole=True), Choices((8, 2, 4))
    assert {explored(whole, 1, source) for _ in range(200)} == {1, 2, 3, 4}
    assert {explored(choices, 2, source) for _ in range(200)} == {2, 4, 8}
    assert all(0.1 <= explored(Range(0.1, 0.5), 0.5, source) <= 0.5 for _ in range(200))
    assert Range(0.1, 0.5).contains(explored(Range(0.1, 0.5), 7.0, source)), "the space was changed"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"pruner": "asha"}, "pruner: the sampler pbt itself ends the worst"),
        ({"parallel": 1}, "parallel: the sampler pbt compares trials"),
        ({"space": {"kind": ["sgd", "adam"]}}, "search kind: the sampler pbt changes values a little"),
        ({"space": {"on": [True, False]}}, "search on: the sampler pbt changes values a little"),
    ],
)
def test_what_is_refused(options: dict[str, Any], problem: str) -> None:
    space = options.pop("space", SPACE)
    with pytest.raises(InvalidJob) as error:
        make_plan("opt", space, "score", sampler="pbt", **{"parallel": 4, **options})
    assert problem in str(error.value)
    with pytest.raises(InvalidJob, match="search kind"):
        changed(plan_of(), space={"kind": ["sgd", "adam"]})


def test_a_population_needs_checkpoints() -> None:
    with pytest.raises(InvalidJob, match="checkpoint_s3_uri: the sampler pbt hands checkpoints on"):
        check_checkpoints({}, "Checkpointer()")
    with pytest.raises(InvalidJob, match="sampler: pbt hands checkpoints on, and the source saves none"):
        check_checkpoints({"checkpoint_s3_uri": "s3://b/c"}, "print('loss')")


def test_a_child_without_a_value_has_a_reason() -> None:
    child = Trial(4, "opt-0004", {}, 0.0, status=RUNNING, attributes={"parent": 3})
    found = JobDescription(name=child.name, platform="local", status=JobStatus.COMPLETED, submitted_at=0.0)
    status, why = _outcome(child, found, "score")
    assert status == NO_VALUE
    assert why.endswith("It continued from trial 3, and may have had nothing left to train")
    assert "It continued" not in _outcome(Trial(0, "opt-0000", {}, 0.0), found, "score")[1]


def test_a_checkpoint_is_handed_on_once(tmp_path: Path) -> None:
    parent, child = tmp_path / "parent", tmp_path / "child"
    assert hand_on(parent.as_uri(), child.as_uri(), None, tmp_path) is None
    with Checkpointer(parent, asynchronous=False) as checkpointer:
        checkpointer.save(1, {"x": numpy.zeros(1000)})
        checkpointer.save(2, {"x": numpy.ones(1000)})
    (parent / "step-3").mkdir(exist_ok=True)
    object_of = next(path for path in parent.rglob("*.safetensors"))
    partial = child / object_of.relative_to(parent)
    partial.parent.mkdir(parents=True)
    partial.write_bytes(object_of.read_bytes())  # a controller was killed here
    assert hand_on(parent.as_uri(), child.as_uri(), None, tmp_path) == 2
    assert [info.step for info in list_checkpoints(FileStore(child))] == [2]
    with Checkpointer(parent, asynchronous=False) as checkpointer:
        checkpointer.restore()
        checkpointer.save(3, {"x": numpy.ones(1000)})
    assert hand_on(parent.as_uri(), child.as_uri(), None, tmp_path) == 2, "the child has begun there"
    with Checkpointer(child) as checkpointer:
        restored = checkpointer.restore()
    assert restored
    assert (restored.step, restored.state["x"].sum()) == (2, 1000)


@pytest.mark.parametrize(("wanted", "copied"), [(None, 9), (9, 9), (8, 6), (5, 3), (2, 3)])
def test_a_child_continues_from_the_step_at_which_it_was_asked_for(
    wanted: int | None, copied: int, tmp_path: Path
) -> None:
    """Also if its parent has trained on meanwhile, and has deleted its first checkpoints."""
    with Checkpointer(tmp_path / "parent", asynchronous=False, keep=None) as checkpointer:
        for step in (3, 6, 9):
            checkpointer.save(step, {"x": numpy.zeros(10)})
    uris = [(tmp_path / name).as_uri() for name in ("parent", "child")]
    assert hand_on(*uris, wanted, tmp_path) == copied


def test_a_child_continues_from_the_last_boundary_that_all_have_reached() -> None:
    trials = [running(number, {5: float(number), 9 + 6 * number: float(number)}) for number in range(4)]
    assert Population(plan_of(parallel=4), trials).ask(5)[1] == {"parent": 3, "parent_step": 5}
    trials[0].values[10] = 0.0
    assert Population(plan_of(parallel=4), trials).ask(5)[1] == {"parent": 3, "parent_step": 10}
    trials[0].values = {}
    assert Population(plan_of(parallel=4), trials).ask(5)[1] == {"parent": 3, "parent_step": 27}


def best_score(seed: int, *, replaces: bool) -> float:
    """The best score of a population whose best learning rate falls while it trains, from 0.1 to 1e-5."""
    plan = plan_of(seed=seed, trials=100 if replaces else 8)
    trials: list[Trial] = []
    population = Population(plan, trials)

    def start() -> None:
        parameters, attributes = population.ask(len(trials))
        trial = running(len(trials), {}, parameters["lr"])
        trials.append(trial)
        scores[trial.number] = scores[attributes["parent"]] if "parent" in attributes else 0.0

    scores: dict[int, float] = {}
    for _ in range(plan.parallel):
        start()
    for step in range(1, STEPS + 1):
        best = -1 - 4 * step / STEPS
        for trial in [one for one in trials if not one.has_ended]:
            scores[trial.number] += math.exp(-((math.log10(trial.parameters["lr"]) - best) ** 2))
            trial.values[step] = scores[trial.number]
        for trial in [one for one in trials if not one.has_ended]:
            if population.report(trial.number, step, trial.values[step]):
                trial.status, trial.pruned_at, trial.ended_at = PRUNED, step, 1.0
                start()
    for trial in trials:
        trial.status = trial.status if trial.has_ended else COMPLETED
    return max(scores[trial.number] for trial in trials if trial.status == COMPLETED)


def test_a_population_beats_random_search_where_the_best_value_changes() -> None:
    """Both train eight trials at a time for 60 steps."""
    gains = [best_score(seed, replaces=True) / best_score(seed, replaces=False) for seed in range(10)]
    assert sum(gain > 1.2 for gain in gains) >= 7, gains
    assert sum(gains) / len(gains) > 1.3, gains
