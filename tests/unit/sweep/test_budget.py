"""The caps of trials: together, they never exceed that of their sweep."""

from __future__ import annotations

import random

import pytest

from cloudtrain import InvalidJob
from cloudtrain.sweep.plan import make_plan
from cloudtrain.sweep.trials import COMPLETED, Trials


def trials_of(cap: float | None, parallel: int) -> Trials:
    plan = make_plan("opt", {"lr": "0.0..1.0"}, "loss", parallel=parallel, max_cost=cap)
    return Trials([{"event": "created", "time": 0.0, "plan": plan.to_dict()}])


def ask(trials: Trials) -> float | None:
    cap = trials.next_cap()
    if cap != 0:
        number = len(trials.all)
        trials.add({"event": "asked", "time": 0.0, "trial": number, "parameters": {}, "max_cost": cap})
    return cap


def end(trials: Trials, number: int, cost: float | None, currency: str | None = None) -> None:
    ended = {
        "status": COMPLETED,
        "value": 1.0,
        "why": "",
        "failure_class": None,
        "values": {},
        "attributes": {},
    }
    trials.add({"event": "ended", "time": 1.0, "trial": number, "cost": cost, "currency": currency, **ended})


def test_what_is_left_is_shared_by_the_free_places() -> None:
    trials = trials_of(12.0, 3)
    assert [ask(trials) for _ in range(3)] == [4.0, 4.0, 4.0]
    end(trials, 0, 1.0)
    assert ask(trials) == 3.0, "4 of the first, less its cost"
    end(trials, 1, None)
    assert trials.committed == 1 + 4 + 4 + 3, "an unknown cost counts as its cap"
    assert ask(trials) == 0.0


def test_less_than_a_usual_trial_starts_none() -> None:
    trials = trials_of(10.0, 1)
    assert ask(trials) == 10.0
    end(trials, 0, 6.0)
    assert trials.next_cap() == 0.0


def test_costs_in_two_currencies_are_not_added() -> None:
    trials = trials_of(12.0, 3)
    assert [ask(trials) for _ in range(3)] == [4.0, 4.0, 4.0]
    end(trials, 0, 1.0, "EUR")
    end(trials, 1, 0.0)  # it was refused: nothing ran
    assert (trials.cost, trials.currencies) == (1.0, ["EUR"])
    end(trials, 2, 2.0, "USD")
    assert (trials.cost, trials.next_cap()) == (None, 0.0)


def test_trials_have_no_cap_if_the_sweep_has_none() -> None:
    assert trials_of(None, 3).next_cap() is None


def test_the_cap_holds_for_any_order_of_ends() -> None:
    source = random.Random(1)
    for _ in range(200):
        trials = trials_of(100.0, source.randint(1, 8))
        for _ in range(60):
            running = trials.open
            assert trials.committed <= 100.0 + 1e-9
            if running and source.random() < 0.5:
                trial = source.choice(running)
                end(trials, trial.number, source.choice([None, source.uniform(0, trial.max_cost or 0)]))
            elif trials.plan and len(running) < trials.plan.parallel:
                ask(trials)
        assert trials.all


@pytest.mark.parametrize("cap", [0, -1.0, float("nan"), float("inf"), "much"])
def test_caps_that_are_refused(cap: object) -> None:
    with pytest.raises(InvalidJob, match=r"^max_cost: .* is not a number above 0"):
        make_plan("opt", {"lr": "0.0..1.0"}, "loss", max_cost=cap)  # type: ignore[arg-type]
