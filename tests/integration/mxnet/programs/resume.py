"""Trains, saves, restores into a new training, continues, and compares bit for bit. Runs in MXNet's environment."""

from __future__ import annotations

import random
import sys

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon

from cloudtrain.checkpoint import Checkpointer
from cloudtrain.checkpoint.mxnet import apply, capture
from cloudtrain.errors import CheckpointError

INPUTS = mx.nd.array(np.random.default_rng(0).random((32, 3)))


def make(optimizer: str, width: int = 4):
    net = gluon.nn.Sequential()
    net.add(
        gluon.nn.Dense(width, in_units=3),
        gluon.nn.BatchNorm(in_channels=width),
        gluon.nn.Dense(1, in_units=width),
    )
    net.initialize(mx.init.Normal(random.random()))
    options = {"learning_rate": 0.01, "lr_scheduler": mx.lr_scheduler.FactorScheduler(2, 0.9, base_lr=0.01)}
    return net, gluon.Trainer(
        net.collect_params(), optimizer, {**options, **({"momentum": 0.9} if optimizer == "sgd" else {})}
    )


def train(net, trainer, steps: int) -> list[float]:
    losses = []
    for _ in range(steps):
        with autograd.record():
            loss = (net(INPUTS) ** 2).mean()
        loss.backward()
        trainer.step(1)
        losses.append(float(loss.asscalar()))
    return losses


def main(place: str, optimizer: str) -> None:
    net, trainer = make(optimizer)
    train(net, trainer, 5)
    with Checkpointer(place) as checkpointer:
        checkpointer.save(5, capture(net, trainer))
    expected = train(net, trainer, 5)

    fresh, fresh_trainer = make(optimizer)
    state = Checkpointer(place).restore().state
    apply(state, fresh, fresh_trainer)
    assert train(fresh, fresh_trainer, 5) == expected
    for name, value in capture(net)["parameters"].items():
        assert np.array_equal(value, capture(fresh)["parameters"][name]), name
    assert fresh_trainer.learning_rate == trainer.learning_rate

    wide, _ = make(optimizer, width=5)
    try:
        apply(state, wide)
    except CheckpointError as error:
        print(error.message)


main(*sys.argv[1:])
