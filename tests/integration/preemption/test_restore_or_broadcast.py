"""Two ranks start with the state that rank 0 restores, and all ranks raise if it cannot."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from ranks import run_ranks

from cloudtrain.checkpoint import Checkpointer
from cloudtrain.checkpoint.torch import capture

RESTORES = """
import argparse
from pathlib import Path

import torch
from torch import nn

import cloudtrain.distributed.torch as hvd
from cloudtrain.checkpoint import Checkpointer
from cloudtrain.checkpoint.torch import restore_or_broadcast
from cloudtrain.errors import CheckpointError

parser = argparse.ArgumentParser()
parser.add_argument("--places", type=Path)

hvd.init()
for place in sorted(parser.parse_args().places.iterdir()):
    torch.manual_seed(hvd.rank())
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    optimizer = torch.optim.Adam(model.parameters())
    try:
        step = restore_or_broadcast(Checkpointer(place), model=model, optimizer=optimizer)
    except CheckpointError as error:
        print(f"{place.name}: error: {error.message}", flush=True)
    else:
        everything = [*model.state_dict().values(), optimizer.state_dict()]
        same = {str(seen) for seen in hvd.allgather_object(everything)}
        drawn = hvd.allgather_object(torch.rand(1).item())
        total = round(sum(p.sum().item() for p in model.parameters()))
        print(f"{place.name}: step {step} same {len(same) == 1} sum {total} drawn {len(set(drawn))}", flush=True)
hvd.shutdown()
"""


def save(place: Path, *, width: int = 2) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, width), torch.nn.BatchNorm1d(width))
    torch.nn.init.constant_(model[0].weight, 25.0)
    torch.nn.init.constant_(model[0].bias, 0.0)
    optimizer = torch.optim.Adam(model.parameters())
    with Checkpointer(place) as checkpointer:
        checkpointer.save(7, capture(model=model, optimizer=optimizer))


@pytest.fixture
def said(tmp_path: Path) -> Callable[[str], list[str]]:
    """The line of each rank about a checkpoint, by the name of its folder: the same ranks restore all of them."""
    places = tmp_path / "places"
    save(places / "sound")
    save(places / "wider", width=3)
    save(places / "damaged")
    (places / "empty").mkdir()
    [tensors] = (places / "damaged").rglob("*.safetensors")
    tensors.write_bytes(b"x" * tensors.stat().st_size)
    (tmp_path / "restores.py").write_text(RESTORES)
    ended = run_ranks(str(tmp_path / "restores.py"), 2, "--places", str(places))
    assert [rank.returncode for rank in ended] == [0, 0], ended

    def of(place: str) -> list[str]:
        lines = [line for rank in ended for line in rank.stdout.splitlines() if line.startswith(f"{place}: ")]
        assert len(lines) == 2, ended
        return [line.partition(": ")[2] for line in lines]

    return of


def test_all_ranks_start_with_the_same_state_or_an_error(said: Callable[[str], list[str]]) -> None:
    assert said("sound") == ["step 7 same True sum 102 drawn 2"] * 2
    first, second = said("empty")
    assert first.startswith("step None same True")
    assert first == second
    for place, why in (("wider", "does not fit"), ("damaged", "is damaged")):
        first, second = said(place)
        assert first.startswith("error: ")
        assert second.startswith("error: rank 0 cannot restore: ")
        assert why in first
        assert why in second
