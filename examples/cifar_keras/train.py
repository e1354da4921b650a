"""Classify the images of CIFAR-10, on one GPU or many. The changes for many GPUs are marked # 1 to # 8.

python train.py
cloudtrain submit train.yaml
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from keras import layers

import cloudtrain.distributed.keras as hvd
from cloudtrain import environment
from cloudtrain.checkpoint import Checkpointer
from cloudtrain.checkpoint.keras import CheckpointCallback
from cloudtrain.distributed import shard_indices


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--lr", type=float, default=0.01, help="learning rate for one rank")
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--batch-size", type=int, default=32, help="images per rank and step")
    parser.add_argument("--warmup-epochs", type=int, default=5)
    parser.add_argument("--flip", type=int, choices=[0, 1], default=1, help="mirror images in training")
    return parser.parse_args()


def load(folder: Path, pattern: str) -> tuple[np.ndarray, np.ndarray]:
    """Return images (N, 32, 32, 3) in [0, 1] and labels (N,) from files of CIFAR-10's binary version."""
    files = sorted(folder.glob(pattern))
    if not files:
        sys.exit(f"error: there is no {pattern} in {folder}; to try the script: python make_data.py {folder}")
    rows = np.concatenate([np.fromfile(file, np.uint8).reshape(-1, 1 + 3 * 32 * 32) for file in files])
    images = rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images, np.float32) / 255, rows[:, 0].astype(np.int64)


class Augmented(keras.utils.PyDataset):
    """This rank's share of each epoch, in batches of randomly shifted and mirrored images."""

    def __init__(self, images, labels, batch_size: int, flip: bool, epoch: int) -> None:
        super().__init__()
        self.images, self.labels, self.batch_size, self.flip = images, labels, batch_size, flip
        self.epoch = epoch - 1
        self.on_epoch_end()

    def on_epoch_end(self) -> None:
        self.epoch += 1
        self.share = shard_indices(len(self.images), hvd.rank(), hvd.size(), epoch=self.epoch)  # 3
        self.random = np.random.default_rng([self.epoch, hvd.rank()])

    def __len__(self) -> int:
        return len(self.share) // self.batch_size  # 3: steps per epoch, divided by the number of ranks

    def __getitem__(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        batch = self.share[step * self.batch_size : (step + 1) * self.batch_size]
        return np.stack([self.augment(image) for image in self.images[batch]]), self.labels[batch]

    def augment(self, image: np.ndarray) -> np.ndarray:
        """Pad by 4 pixels, crop at random, and mirror, as He et al. do for CIFAR-10 (arXiv 1512.03385)."""
        top, left = self.random.integers(0, 9, 2)
        image = np.pad(image, ((4, 4), (4, 4), (0, 0)))[top : top + 32, left : left + 32]
        return image[:, ::-1] if self.flip and self.random.integers(2) else image


def make_model() -> keras.Model:
    return keras.Sequential([
        layers.Input((32, 32, 3)),
        layers.Conv2D(32, 3, padding="same", activation="relu"), layers.MaxPooling2D(),
        layers.Conv2D(64, 3, padding="same", activation="relu"), layers.MaxPooling2D(),
        layers.Conv2D(64, 3, padding="same", activation="relu"), layers.MaxPooling2D(),
        layers.Flatten(), layers.Dropout(0.2), layers.Dense(10, activation="softmax"),
    ])  # fmt: skip


def main() -> None:
    arguments = parse_arguments()
    hvd.init()  # 1
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")  # 2
    keras.utils.set_random_seed(hvd.rank())

    folder = environment.channel("train", default="data")
    images, labels = load(folder, "data_batch_*.bin")
    test_images, test_labels = load(folder, "test_batch.bin")

    lr = arguments.lr * hvd.size()  # 4
    optimizer = keras.optimizers.SGD(lr, momentum=arguments.momentum)
    optimizer = hvd.DistributedOptimizer(optimizer)  # 5
    model = make_model()
    model.compile(
        optimizer,
        "sparse_categorical_crossentropy",
        metrics=["accuracy"],
        jit_compile=False,  # 5: gradients cannot leave code compiled by XLA, which is Keras's default on GPUs
    )

    checkpoints = CheckpointCallback(Checkpointer())
    done = checkpoints.restore(model)
    last_third = arguments.epochs * 2 // 3
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),  # 6
        hvd.callbacks.MetricAverageCallback(),  # 7: before the callbacks that read metrics
        hvd.callbacks.LearningRateWarmupCallback(lr, warmup_epochs=arguments.warmup_epochs),  # 4
        hvd.callbacks.LearningRateScheduleCallback(lr, lambda epoch: 0.1, start_epoch=last_third),
        checkpoints,  # 8: only rank 0 writes
    ]
    own = shard_indices(len(test_images), hvd.rank(), hvd.size(), epoch=0, shuffle=False)  # 3
    test = test_images[own], test_labels[own]
    model.fit(
        Augmented(images, labels, arguments.batch_size, bool(arguments.flip), done),
        epochs=arguments.epochs,
        initial_epoch=done,
        shuffle=False,  # shard_indices shuffles
        validation_data=test,
        callbacks=callbacks,
        verbose=2 if hvd.rank() == 0 else 0,  # 8
    )
    accuracy = hvd.allreduce(model.evaluate(*test, verbose=0)[1], name="accuracy")  # 7
    if hvd.rank() == 0:  # 8
        file = environment.model_dir() / "model.keras"
        model.save(file)
        print(
            f"trained {arguments.epochs} epochs  ranks={hvd.size()}  test:accuracy={accuracy:.4f}  model={file}"
        )
    hvd.shutdown()


if __name__ == "__main__":
    main()
