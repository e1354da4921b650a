"""Population based training: the worst trials end, and new ones continue from the checkpoints of the best.

It follows Jaderberg et al., "Population Based Training of Neural Networks", 2017 (arXiv:1711.09846), with truncation
selection of a quarter instead of 20 %, and perturbation by 0.8 or 1.2. The concurrent trials are the population.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cloudtrain.checkpoint import inspect
from cloudtrain.checkpoint.format.layout import manifest_key
from cloudtrain.errors import InvalidJob, NotFound
from cloudtrain.storage import FileStore, Store, open_store
from cloudtrain.sweep.plan import SweepPlan
from cloudtrain.sweep.space import Choices, Range
from cloudtrain.sweep.trials import Trial

SHARE = 4
"""The worst of this many trials ends, and the best of this many is a parent."""
RESAMPLED = 0.25
"""The probability that a hyperparameter of a child is resampled, instead of perturbed from its parent's value."""
FACTORS = (0.8, 1.2)


class Population:
    """The sampler ``pbt``, and its pruner. It is stateless: everything is derived from the trials.

    Args:
        plan: the plan of the sweep.
        trials: all trials, with the values of those that are running. The controller keeps this list up to date.
    """

    compares = True

    def __init__(self, plan: SweepPlan, trials: Sequence[Trial]) -> None:
        self._plan = plan
        self._trials = trials
        self._sign = 1.0 if plan.goal == "minimize" else -1.0

    def ask(self, number: int) -> tuple[dict[str, Any], dict[str, Any]]:
        source = random.Random(f"{self._plan.seed} {number}")
        alive = [trial for trial in self._trials if trial.trains and trial.values]
        if number < self._plan.parallel or not alive:
            return {name: one.at(source.random()) for name, one in self._plan.space.items()}, {}
        alive.sort(key=lambda trial: (self._sign * trial.values[max(trial.values)], trial.number))
        parent = source.choice(alive[: max(len(alive) // SHARE, 1)])
        chosen = {
            name: explored(one, parent.parameters.get(name), source) for name, one in self._plan.space.items()
        }
        step = self._boundary() or max(parent.values)
        return chosen, {"parent": parent.number, "parent_step": step}

    def _boundary(self) -> int:
        """The last comparison step that all trials have reached; 0 if there is none yet.

        Only running trials count, and those with a parent only once they have values.
        """
        training = [trial for trial in self._trials if trial.trains]
        reached = [max(one.values, default=0) for one in training if one.values or one.parent is None]
        return min(reached, default=0) // self._plan.prune_after * self._plan.prune_after

    def report(self, number: int, step: int, value: float) -> bool:
        """Whether a trial is among the worst at the last boundary. No trial ends that no other could replace."""
        training = [trial for trial in self._trials if trial.trains]
        pending = sum(not trial.has_ended and trial.pruned_at is not None for trial in self._trials)
        if len(training) < 2 or len(self._trials) + pending >= self._plan.trials:
            return False
        boundary = self._boundary()
        there = {
            trial.number: found
            for trial in self._trials
            if boundary and (found := _value_at(trial, boundary)) is not None
        }
        ordered = sorted(there, key=lambda one: (self._sign * there[one], one))
        return len(ordered) > 1 and number in ordered[-max(len(ordered) // SHARE, 1) :]

    def tell(self, trial: Trial) -> None: ...

    def remembered(self, number: int) -> dict[str, Any]:
        return {}


def _value_at(trial: Trial, boundary: int) -> float | None:
    """The last value of a trial at or before a boundary; None if the trial has not reached it, or began after it."""
    before = max((step for step in trial.values if step <= boundary), default=None)
    return trial.values[before] if before is not None and max(trial.values) >= boundary else None


def explored(one: Range | Choices, value: Any, source: random.Random) -> Any:
    """A value near the parent's; sometimes, or if the parent's value is outside of the space, any value."""
    if not one.contains(value) or source.random() < RESAMPLED:
        return one.at(source.random())
    factor = source.choice(FACTORS)
    if isinstance(one, Choices):
        ordered = sorted(one.values)
        place = ordered.index(value) + (1 if factor > 1 else -1)
        return ordered[min(max(place, 0), len(ordered) - 1)]
    changed = value * factor
    if one.is_whole:
        changed = round(changed)
        if changed == value:
            changed += 1 if factor > 1 else -1
    found = min(max(changed, one.low), one.high)
    return int(found) if one.is_whole else float(found)


def check_checkpoints(fields: Mapping[str, Any], text: str) -> None:
    """Raises InvalidJob if the trials of a population save no checkpoints from which others can continue.

    Args:
        text: the source of the job.
    """
    if not fields.get("checkpoint_s3_uri"):
        raise InvalidJob(
            "checkpoint_s3_uri: the sampler pbt hands checkpoints on, and the job does not say where they are",
            hint="Name a bucket, or a folder that this machine and the hosts share: checkpoint_s3_uri: s3://...",
        )
    if "checkpoint" not in text.lower():
        raise InvalidJob(
            "sampler: pbt hands checkpoints on, and the source saves none",
            hint="Save and restore with cloudtrain.checkpoint.Checkpointer. See docs/guides/checkpoints.md.",
        )


def hand_on(parent_uri: str, uri: str, step: int | None, scratch: Path) -> int | None:
    """Copy an intact checkpoint of a parent to ``uri``: objects first, the manifest last.

    Nothing is copied if there is already a checkpoint, because an earlier controller has copied it.

    Args:
        parent_uri: the URI of the parent's checkpoints.
        uri: the URI of the child's checkpoints.
        step: the step from which the child continues. The newest checkpoint up to this step is copied, or the first
            one after it if the parent has deleted all of these. None: the newest of all.
        scratch: an empty folder for the temporary copy of a checkpoint that is uploaded to a bucket.

    Returns:
        The step of the checkpoint at ``uri``; None if the parent has no checkpoint yet.

    Raises:
        CheckpointError: the parent has deleted the checkpoint meanwhile, or the checkpoint is damaged.
        StorageError: the storage failed.
    """
    target = open_store(uri)
    if steps := _intact(target):
        return max(steps)
    source = open_store(parent_uri)
    infos = _intact(source)
    if not infos:
        return None
    earlier = [one for one in infos if step is None or one <= step]
    info = infos[max(earlier) if earlier else min(infos)]
    if isinstance(target, FileStore):
        inspect.download(source, info, target.folder)
        return info.step
    inspect.download(source, info, scratch)
    for stored in info.objects:
        target.upload(scratch / stored.key, stored.key)
    key = manifest_key(info.step)
    target.create(key, (scratch / key).read_bytes())
    return info.step


def _intact(store: Store) -> dict[int, inspect.CheckpointInfo]:
    try:
        return {info.step: info for info in inspect.list_checkpoints(store) if not info.problem}
    except NotFound:
        return {}
