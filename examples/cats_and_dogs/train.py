"""Classify cats and dogs from few photographs, by transfer learning, on one GPU or many.

../cifar_keras explains the eight changes for many GPUs.

python train.py
cloudtrain submit train.yaml
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

import keras
import tensorflow as tf
from keras import layers

import cloudtrain.distributed.keras as hvd
from cloudtrain import environment


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pretrain-epochs", type=int, default=6)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--lr", type=float, default=0.01, help="learning rate for one rank")
    parser.add_argument("--batch-size", type=int, default=16, help="images per rank and step")
    parser.add_argument("--image-size", type=int, default=32, help="width and height in pixels")
    return parser.parse_args()


def load(folder: Path, image_size: int) -> tuple[tf.data.Dataset, list[str]]:
    """Return images (H, W, 3) in [0, 255] with labels, in the same order on all ranks, and the class names."""
    if not folder.is_dir():
        sys.exit(
            f"error: there is no folder {folder}; to try the script: python make_data.py {folder.parent}"
        )
    data = keras.utils.image_dataset_from_directory(
        folder, image_size=(image_size, image_size), batch_size=None, shuffle=False, verbose=False
    )
    return data, data.class_names


def share(data: tf.data.Dataset) -> tf.data.Dataset:
    """Return this rank's images: every size-th, starting at its rank. They are cached in memory."""
    return data.shard(hvd.size(), hvd.rank()).cache()  # 3


def make_base(image_size: int) -> keras.Model:
    """The feature extractor: 64 features for each image."""
    return keras.Sequential([
        layers.Input((image_size, image_size, 3)), layers.Rescaling(1 / 255),
        layers.Conv2D(32, 3, padding="same", activation="relu"), layers.MaxPooling2D(),
        layers.Conv2D(64, 3, padding="same", activation="relu"), layers.MaxPooling2D(),
        layers.Conv2D(64, 3, padding="same", activation="relu"), layers.MaxPooling2D(),
        layers.Flatten(), layers.Dense(64, activation="relu"),
    ], name="base")  # fmt: skip


def fit(model: keras.Model, data: tf.data.Dataset, arguments: argparse.Namespace, epochs: int) -> None:
    """Train the trainable layers on all ranks."""
    lr = arguments.lr * hvd.size()  # 4
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(lr, momentum=0.9))  # 5
    model.compile(
        optimizer,
        "sparse_categorical_crossentropy",
        metrics=["accuracy"],
        jit_compile=False,  # 5: gradients cannot leave code compiled by XLA, which is Keras's default on GPUs
    )
    count = int(data.cardinality())
    own = share(data).shuffle(math.ceil(count / hvd.size()), seed=0).repeat().batch(arguments.batch_size)
    model.fit(
        own,
        steps_per_epoch=math.ceil(count / arguments.batch_size / hvd.size()),  # 3: the same on all ranks
        epochs=epochs,
        callbacks=[
            hvd.callbacks.BroadcastGlobalVariablesCallback(0),  # 6
            hvd.callbacks.MetricAverageCallback(),  # 7
            hvd.callbacks.LearningRateWarmupCallback(lr, warmup_epochs=2),  # 4
        ],
        verbose=2 if hvd.rank() == 0 else 0,  # 8
        shuffle=False,  # the dataset is already shuffled
    )


def evaluate(model: keras.Model, data: tf.data.Dataset) -> float:
    """Return the accuracy over all images. Each rank evaluates its share; the shares may differ in size."""
    own = share(data)
    right = model.evaluate(own.batch(64), verbose=0)[1] * int(own.cardinality())
    return float(hvd.allreduce(right, name="right", op=hvd.Sum)) / int(data.cardinality())  # 7


def main() -> None:
    arguments = parse_arguments()
    hvd.init()  # 1
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")  # 2
    keras.utils.set_random_seed(hvd.rank())

    folder = environment.channel("train", default="data")
    others, names = load(folder / "pretrain", arguments.image_size)
    train, classes = load(folder / "train", arguments.image_size)
    validation, _ = load(folder / "validation", arguments.image_size)

    base = make_base(arguments.image_size)
    fit(keras.Sequential([base, layers.Dense(len(names), activation="softmax")]), others, arguments,
        arguments.pretrain_epochs)  # fmt: skip
    base.trainable = False  # keep the pretrained features
    model = keras.Sequential([base, layers.Dense(len(classes), activation="softmax")])
    fit(model, train, arguments, arguments.epochs)

    accuracy = evaluate(model, validation)
    if hvd.rank() == 0:  # 8
        file = environment.model_dir() / "model.keras"
        model.save(file)
        print(
            f"trained {arguments.epochs} epochs  ranks={hvd.size()}  validation:accuracy={accuracy:.4f}  model={file}"
        )
    hvd.shutdown()


if __name__ == "__main__":
    main()
