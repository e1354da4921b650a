"""Classify handwritten digits with Gluon, on one rank or many.

python train.py
mpirun -n 2 python train.py
cloudtrain submit train.yaml
"""

from __future__ import annotations

import argparse

import mxnet as mx
import numpy as np
from mxnet.gluon import nn
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import cloudtrain.distributed.mxnet as hvd
from cloudtrain import environment


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument(
        "--lr", type=float, default=0.02, help="learning rate for one rank; multiplied by the number of ranks"
    )
    parser.add_argument("--batch-size", type=int, default=16, help="digits per rank and step")
    return parser.parse_args()


def load() -> list[np.ndarray]:
    """Return training and test images (N, 1, 8, 8) in [0, 1], then training and test labels (N,)."""
    digits = load_digits()
    images = (digits.images / 16).astype(np.float32)[:, None]
    return train_test_split(images, digits.target, test_size=0.2, random_state=0, stratify=digits.target)


def make_model() -> nn.HybridSequential:
    net = nn.HybridSequential()
    net.add(
        nn.Conv2D(32, 3, padding=1, activation="relu"), nn.MaxPool2D(),
        nn.Conv2D(64, 3, padding=1, activation="relu"), nn.MaxPool2D(),
        nn.Dense(10),
    )  # fmt: skip
    net.initialize(mx.init.Xavier())
    net.hybridize()
    return net


def train_epoch(net, trainer, images: np.ndarray, labels: np.ndarray, batch_size: int, epoch: int) -> float:
    """Train one epoch on this rank's share, in the same number of steps as all ranks. Return their mean loss."""
    order = np.random.default_rng(epoch).permutation(len(images))
    share = order[hvd.rank() :: hvd.size()]
    steps = steps_per_epoch(len(images), batch_size)
    criterion = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    total = 0.0
    for batch in share[: steps * batch_size].reshape(steps, batch_size):
        with mx.autograd.record():
            loss = criterion(net(mx.nd.array(images[batch])), mx.nd.array(labels[batch]))
        loss.backward()
        trainer.step(batch_size)
        total += loss.mean().asscalar()
    return hvd.allreduce(mx.nd.array([total / steps]), name="loss").asscalar()


def steps_per_epoch(digits: int, batch_size: int) -> int:
    """The number of steps is divided by the number of ranks: together they process every digit once."""
    return digits // hvd.size() // batch_size


def accuracy(net, images: np.ndarray, labels: np.ndarray) -> float:
    """Return the accuracy over all digits. Each rank evaluates its share."""
    share = slice(hvd.rank(), None, hvd.size())
    right = (net(mx.nd.array(images[share])).asnumpy().argmax(1) == labels[share]).sum()
    return hvd.allreduce(mx.nd.array([right]), name="right", op=hvd.Sum).asscalar() / len(images)


def main() -> None:
    arguments = parse_arguments()
    hvd.init()
    mx.random.seed(hvd.rank())  # different initial weights, until rank 0 broadcasts its own
    train_images, test_images, train_labels, test_labels = load()
    net = make_model()
    hvd.broadcast_parameters(net.collect_params(), root_rank=0)

    # The ranks' batches form one large batch: scale the learning rate, with a warm-up.
    steps = steps_per_epoch(len(train_images), arguments.batch_size)
    schedule = mx.lr_scheduler.CosineScheduler(
        max_update=arguments.epochs * steps, base_lr=arguments.lr * hvd.size(), warmup_steps=2 * steps
    )
    options = {"momentum": 0.9, "lr_scheduler": schedule}
    trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", options)

    for epoch in range(1, arguments.epochs + 1):
        loss = train_epoch(net, trainer, train_images, train_labels, arguments.batch_size, epoch)
        right = accuracy(net, test_images, test_labels)
        if hvd.rank() == 0:
            print(
                f"epoch {epoch}/{arguments.epochs}  train:loss={loss:.4f}  test:accuracy={right:.4f}",
                flush=True,
            )

    if hvd.rank() == 0:
        model_file = environment.model_dir() / "model.params"
        net.save_parameters(str(model_file))
        print(f"trained on {hvd.size()} ranks  test:accuracy={right:.4f}  model={model_file}", flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()
