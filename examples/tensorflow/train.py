"""Classify scikit-learn's handwritten digits with TensorFlow's MultiWorkerMirroredStrategy and Keras 2.

cloudtrain submit train.yaml
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from pathlib import Path

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

strategy = (
    tf.distribute.MultiWorkerMirroredStrategy()
)  # first of all: it reads TF_CONFIG and waits for all workers
worker = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
digits = load_digits()
x, y = (digits.data / 16).astype(np.float32), digits.target
train = (
    tf.data.Dataset.from_tensor_slices((x[:1437], y[:1437])).shuffle(1437, seed=0).batch(64)
)  # 32 for each worker
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA

with strategy.scope():
    layers = [tf.keras.layers.Dense(64, "relu", input_shape=(64,)), tf.keras.layers.Dense(10, "softmax")]
    model = tf.keras.Sequential(layers)
    model.compile(tf.keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy")
model.fit(train.with_options(options), epochs=4, verbose=0)

weights = np.concatenate([value.numpy().ravel() for value in model.weights])
right = model(x[1437:]).numpy().argmax(1) == y[1437:]
print(
    f"worker {worker} of {strategy.num_replicas_in_sync}: weights {hashlib.sha256(weights).hexdigest()[:8]}, "
    f"accuracy={right.mean():.3f}",
    flush=True,
)
# All workers save, because saving waits for all of them. One model is kept.
folder = Path(os.environ["SM_MODEL_DIR"] if worker == 0 else tempfile.mkdtemp())
model.save(folder / "model.keras")
