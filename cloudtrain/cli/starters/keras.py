"""Fit a linear model to the rows of train.csv with Keras on TensorFlow, on any number of ranks.

    cloudtrain submit train.yaml
    python src/train.py             # one rank, without a job

Replace the data and the model by your own.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import cloudtrain.distributed.keras as hvd

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--lr", type=float, default=0.05)
parser.add_argument("--data", type=Path, default=os.environ.get("SM_CHANNEL_TRAIN", "data"))
parser.add_argument("--model-dir", type=Path, default=os.environ.get("SM_MODEL_DIR", "."))
arguments = parser.parse_args()

hvd.init()
gpus = tf.config.list_physical_devices("GPU")
if gpus:
    tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
rows = np.loadtxt(arguments.data / "train.csv", delimiter=",", skiprows=1, dtype="float32")
own = rows[hvd.rank() :: hvd.size()]  # each rank trains on its share of the rows

model = keras.Sequential([keras.layers.Dense(1)])
optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(arguments.lr))
model.compile(optimizer=optimizer, loss="mse")
model.fit(
    own[:, :-1],
    own[:, -1:],
    batch_size=8,
    epochs=arguments.epochs,
    callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()],
    verbose=2 if hvd.rank() == 0 else 0,
)
if hvd.rank() == 0:
    model.save(arguments.model_dir / "model.keras")
