"""Train on handwritten digits, on one or more ranks, and resume after a crash or a preemption.

python train.py
cloudtrain submit train.yaml
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
from torch import nn

import cloudtrain.distributed.torch as hvd
from cloudtrain import environment
from cloudtrain.checkpoint import Checkpointer
from cloudtrain.checkpoint.torch import capture, restore_or_broadcast
from cloudtrain.errors import NotFound


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--batch-size", type=int, default=16, help="digits per rank and step")
    parser.add_argument("--epoch-seconds", type=float, default=0.0, help="minimum duration of an epoch")
    return parser.parse_args()


def load(name: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Images (N, 1, 8, 8) and labels (N,) of ``train`` or ``test``: the job's channel, or scikit-learn's."""
    try:
        with np.load(environment.channel("train") / f"{name}.npz") as file:
            images, labels = file["images"], file["labels"]
    except NotFound:  # not in a job, or in a job without this channel
        from prepare import load_splits

        images, labels = load_splits()[name]
    return torch.from_numpy(images), torch.from_numpy(labels)


def make_model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(256, 10),
    )  # fmt: skip


def train_epoch(model, optimizer, images, labels, batch_size: int, epoch: int) -> float:
    """Train one epoch on this rank's share of the data; returns the mean loss over all ranks.

    The order depends only on the epoch: a resumed run sees the same data as an uninterrupted one.
    """
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(epoch))
    share = order[: len(order) // hvd.size() * hvd.size()][hvd.rank() :: hvd.size()]
    total = torch.zeros(())
    for batch in share.split(batch_size):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
        loss.backward()
        optimizer.step()
        total += loss.detach() * len(batch)
    return hvd.allreduce(total / len(share), name="loss").item()


@torch.no_grad()
def accuracy(model, images, labels) -> float:
    """The accuracy over all digits; each rank evaluates its share."""
    share = slice(hvd.rank(), None, hvd.size())
    right = (model(images[share]).argmax(1) == labels[share]).sum()
    return hvd.allreduce(right, name="right", op=hvd.Sum).item() / len(images)


def main() -> None:
    arguments = parse_arguments()
    hvd.init()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    train_images, train_labels = load("train")
    test_images, test_labels = load("test")
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=arguments.lr, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

    # Rank 0 restores the last checkpoint, if there is one, and broadcasts its state to the other ranks.
    checkpointer = Checkpointer()
    parts = {"model": model, "optimizer": optimizer}
    done = restore_or_broadcast(checkpointer, **parts) or 0
    if done and hvd.rank() == 0:
        print(f"resumed after epoch {done} from {checkpointer.uri}", flush=True)

    share = len(train_images) // hvd.size()
    print(f"rank {hvd.rank()} of {hvd.size()} trains on {share} of {len(train_images)} digits", flush=True)
    for epoch in range(done + 1, arguments.epochs + 1):
        started = time.monotonic()
        loss = train_epoch(model, optimizer, train_images, train_labels, arguments.batch_size, epoch)
        right = accuracy(model, test_images, test_labels)
        time.sleep(max(0.0, started + arguments.epoch_seconds - time.monotonic()))
        checkpointer.save(epoch, capture(**parts), {"loss": loss, "accuracy": right})
        if hvd.rank() == 0:
            print(
                f"epoch {epoch}/{arguments.epochs}  train:loss={loss:.4f}  test:accuracy={right:.4f}",
                flush=True,
            )
        environment.exit_if_preempted()

    right = accuracy(model, test_images, test_labels)
    if hvd.rank() == 0:
        model_file = environment.model_dir() / "model.pt"
        torch.save(model.state_dict(), model_file)
        print(f"trained {arguments.epochs} epochs  test:accuracy={right:.4f}  model={model_file}", flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()
