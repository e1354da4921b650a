"""The state of a PyTorch training, through a real checkpoint and back."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler
from torch.utils.data import DistributedSampler, RandomSampler

from cloudtrain.checkpoint import Checkpointer
from cloudtrain.checkpoint.torch import ResumableSampler, apply, capture, restore_or_broadcast
from cloudtrain.errors import CheckpointError

SCHEDULERS = {
    "StepLR": lambda o: lr_scheduler.StepLR(o, 2),
    "MultiStepLR": lambda o: lr_scheduler.MultiStepLR(o, [2, 3, 3]),
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, 0.1, total_steps=20, cycle_momentum=False),
    "CosineAnnealingWarmRestarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 3),
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, lambda step: 0.9**step),
    "SequentialLR": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.ConstantLR(o), lr_scheduler.MultiStepLR(o, [1, 2])], [2]
    ),
}
OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
    "AdamW": lambda p: torch.optim.AdamW(p, 0.01, amsgrad=True),
    "Adagrad": lambda p: torch.optim.Adagrad(p, 0.1),
}


class Training:
    def __init__(self, optimizer: str = "SGD", scheduler: str = "StepLR", width: int = 4) -> None:
        self.model = nn.Sequential(
            nn.Linear(4, width), nn.BatchNorm1d(width), nn.Dropout(0.5), nn.Linear(width, 1)
        )
        self.optimizer = OPTIMIZERS[optimizer](self.model.parameters())
        self.scheduler = SCHEDULERS[scheduler](self.optimizer)
        self.scaler = torch.amp.GradScaler("cpu")
        self.sampler = ResumableSampler(DistributedSampler(range(40), 1, 0))  # type: ignore[arg-type]

    @property
    def parts(self) -> dict[str, Any]:
        return vars(self)

    def train(self, steps: int) -> list[Any]:
        """The samples and results of every step."""
        seen = []
        samples = iter(self.sampler)
        for step in range(steps):
            sample = next(samples)
            self.optimizer.zero_grad()
            noise = torch.rand(8, 4) + float(np.random.rand()) + random.random()
            loss = self.model(noise + sample / 40).square().mean()
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.scheduler.step()
            self.sampler.record_batch(step, 1)
            seen.append((sample, loss.item(), self.optimizer.param_groups[0]["lr"]))
        return seen


@pytest.mark.parametrize(
    ("optimizer", "scheduler"),
    [*(("SGD", scheduler) for scheduler in SCHEDULERS), ("AdamW", "StepLR"), ("Adagrad", "StepLR")],
)
def test_a_restored_training_continues_bit_for_bit(optimizer: str, scheduler: str, tmp_path: Path) -> None:
    torch.manual_seed(5)
    whole = Training(optimizer, scheduler)
    whole.train(4)
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(4, capture(**whole.parts))
    expected = whole.train(4)

    torch.manual_seed(99)
    resumed = Training(optimizer, scheduler)
    assert restore_or_broadcast(Checkpointer(tmp_path), **resumed.parts) == 4
    assert resumed.train(4) == expected
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(tensor, resumed.model.state_dict()[name]), name


def test_without_a_checkpoint_nothing_changes(tmp_path: Path) -> None:
    training = Training()
    before = {name: tensor.clone() for name, tensor in training.model.state_dict().items()}
    assert restore_or_broadcast(Checkpointer(tmp_path), **training.parts) is None
    assert all(torch.equal(before[name], now) for name, now in training.model.state_dict().items())


def test_other_ranks_derive_their_own_random_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    state = capture()
    drawn = []
    for rank in ("0", "1", "2", "1"):
        monkeypatch.setenv("RANK", rank)
        apply(state)
        drawn.append((torch.rand(1).item(), float(np.random.rand()), random.random()))
    assert drawn[1] == drawn[3]
    assert len(set(drawn)) == 3
    monkeypatch.setenv("RANK", "1")
    apply(state)
    apply(capture())  # exact on the rank that captured it
    assert (torch.rand(1).item(), float(np.random.rand()), random.random()) == drawn[1]


def test_a_mismatch_is_named_and_nothing_is_changed() -> None:
    state = capture(**Training().parts)
    wide = Training(width=5)
    before = wide.model[0].weight.clone()
    shape = (
        r"0.weight is float32 \[4, 4\] in the checkpoint and float32 \[5, 4\] in the model; .*, and 4 more"
    )
    with pytest.raises(CheckpointError, match=shape):
        apply(state, model=wide.model)
    half = Training().model.half()
    with pytest.raises(CheckpointError, match=r"0.weight is float32 \[4, 4\] .* float16"):
        apply(state, model=half)
    with pytest.raises(
        CheckpointError, match=r"2\.weight is not in the checkpoint; 3\.weight is not in the model"
    ):
        apply(
            {**state, "model": {"3.weight": torch.ones(1)}},
            model=nn.Sequential(nn.Identity(), nn.Identity(), nn.Linear(1, 1, bias=False)),
        )
    with pytest.raises(CheckpointError, match=r"does not fit the optimizer: .*parameter group"):
        apply(state, optimizer=torch.optim.SGD([torch.ones(1)]))
    assert torch.equal(before, wide.model[0].weight)


def test_a_missing_part_is_named() -> None:
    training = Training()
    with pytest.raises(CheckpointError, match="has no optimizer, rng\n  It has model"):
        apply(capture(model=training.model, rng=False), model=training.model, optimizer=training.optimizer)
    apply(capture(**training.parts), model=training.model, rng=False)


def test_ranks_must_be_initialized_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_RANK", "1")
    with pytest.raises(CheckpointError, match=r"not initialized\n  Call init\(\)"):
        restore_or_broadcast(Checkpointer(tmp_path))


@pytest.mark.parametrize(("before", "after"), [(1, 1), (2, 2), (4, 2), (2, 4), (3, 2)])
def test_a_sampler_resumes_on_a_different_number_of_ranks(before: int, after: int) -> None:
    def samplers(ranks: int) -> list[ResumableSampler]:
        return [ResumableSampler(DistributedSampler(range(240), ranks, rank)) for rank in range(ranks)]  # type: ignore[arg-type]

    first = samplers(before)
    seen: list[int] = []
    for sampler in first:
        sampler.set_epoch(3)
        seen += list(sampler)[:10]
        sampler.record_batch(0, 10)
    state = first[0].state_dict()
    rest = []
    for sampler in samplers(after):
        sampler.load_state_dict(state)
        assert sampler.epoch == 3
        assert len(sampler) == len(list(sampler))
        rest += list(sampler)
    assert set(seen) | set(rest) == set(range(240))
    assert len(seen) + len(rest) - 240 < after


def test_a_finished_epoch_is_empty_and_the_next_is_complete() -> None:
    sampler = ResumableSampler(DistributedSampler(range(10), 1, 0))  # type: ignore[arg-type]
    order = list(sampler)
    sampler.record_batch(0, 10)
    assert (list(sampler), len(sampler)) == ([], 0)
    sampler.set_epoch(1)
    assert sorted(sampler) == sorted(order)
    assert list(sampler) != order


def test_any_sampler_can_be_wrapped() -> None:
    generator = torch.Generator().manual_seed(1)
    sampler = ResumableSampler(RandomSampler(range(10), generator=generator))
    sampler.load_state_dict({"epoch": 0, "processed": 4})
    assert len(list(sampler)) == 6
