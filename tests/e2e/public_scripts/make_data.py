"""Makes small synthetic data: `python make_data.py NAME FOLDER`, with the interpreter of the script that reads it.

The names are those that commands of the list read from `s3://data/NAME`. The data has the form that the scripts expect,
and just enough rows for a few steps.
"""

from __future__ import annotations

import csv
import gzip
import json
import struct
import sys
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

MAKERS: dict[str, Callable[[Path], None]] = {}
"""The function that makes the data of each name. It writes into the given folder."""


def maker(make: Callable[[Path], None]) -> Callable[[Path], None]:
    MAKERS[make.__name__] = make
    return make


def digits(count: int, *, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Images (count, 28, 28) and labels (count,), as bytes. The place of a bright block shows the label."""
    labels = (np.arange(count) % 10).astype(np.uint8)
    images = np.random.default_rng(seed).integers(0, 60, (count, 28, 28)).astype(np.uint8)
    for image, label in zip(images, labels, strict=True):
        image[2 * label + 2 : 2 * label + 8, 4:24] = 250
    return images, labels


def idx(array: np.ndarray) -> bytes:
    """The file format of MNIST."""
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def write_csv(path: Path, rows: Iterable[Iterable[Any]]) -> None:
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows(rows)


def table(rows: int, columns: int, *, classes: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Features (rows, columns) and labels (rows,)."""
    features = np.random.default_rng(1).normal(size=(rows, columns)).round(4)
    labels = np.arange(rows) % classes
    features[:, 0] += labels
    return features, labels


MNIST = {"train": 200, "t10k": 60}


@maker
def mnist_idx_gz(folder: Path) -> None:
    for name, count in MNIST.items():
        images, labels = digits(count)
        (folder / f"{name}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(images)))
        (folder / f"{name}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(labels)))


@maker
def mnist_torchvision(folder: Path) -> None:
    raw = folder / "MNIST" / "raw"
    raw.mkdir(parents=True)
    mnist_idx_gz(raw)
    for path in list(raw.iterdir()):
        path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))


@maker
def mnist_mxnet(folder: Path) -> None:
    images, labels = digits(200)
    (folder / "images.gz").write_bytes(gzip.compress(idx(images)))
    (folder / "labels.gz").write_bytes(gzip.compress(idx(labels)))


@maker
def mnist_npz(folder: Path) -> None:
    """`x` and `y`, also called `data` and `labels`, in `train.npz` and `test.npz`."""
    for name, count in {"train": 200, "test": 60}.items():
        images, labels = digits(count)
        np.savez(folder / f"{name}.npz", x=images.reshape(count, -1), y=labels, data=images, labels=labels)


@maker
def mnist_npy(folder: Path) -> None:
    for name, count in {"train": 200, "eval": 60}.items():
        images, labels = digits(count)
        np.save(folder / f"{name}_data.npy", images.reshape(count, -1))
        np.save(folder / f"{name}_labels.npy", labels)


@maker
def keras_home(folder: Path) -> None:
    """The files that Keras downloads into the home folder, also under the names of two ranks."""
    datasets = folder / ".keras" / "datasets"
    datasets.mkdir(parents=True, exist_ok=True)
    (x_train, y_train), (x_test, y_test) = digits(256), digits(64)
    for name in ("mnist", "mnist-0", "mnist-1"):
        np.savez(datasets / f"{name}.npz", x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)


@maker
def housing_npy(folder: Path) -> None:
    features, labels = table(128, 8)
    for name in ("train", "test"):
        np.save(folder / f"x_{name}.npy", features)
        np.save(folder / f"y_{name}.npy", labels.astype(float))


@maker
def label_first_csv(folder: Path) -> None:
    features, labels = table(100, 8)
    write_csv(folder / "train.csv", np.column_stack([labels, features]))


@maker
def iris_csv(folder: Path) -> None:
    features, labels = table(90, 4, classes=3)
    write_csv(folder / "iris.csv", np.column_stack([labels, features]))


@maker
def classes_csv(folder: Path) -> None:
    features, labels = table(60, 4, classes=3)
    rows = [[*row, f"class-{label}", label] for row, label in zip(features, labels, strict=True)]
    write_csv(folder / "train.csv", [["a", "b", "c", "d", "class", "class_cat"], *rows])


@maker
def fraud_csv(folder: Path) -> None:
    features, labels = table(100, 5)
    write_csv(folder / "train.csv", [["fraud", *"abcde"], *np.column_stack([labels, features])])


@maker
def labels_csv(folder: Path) -> None:
    features, labels = table(100, 6)
    write_csv(folder / "data.csv", [["labels", *"abcdef"], *np.column_stack([labels, features])])


@maker
def intrusion_csv(folder: Path) -> None:
    features, labels = table(150, 6, classes=15)
    write_csv(folder / "newval.csv", [["label", *"abcdef"], *np.column_stack([labels, features])])


@maker
def split_csv(folder: Path) -> None:
    """Features and labels in separate files, for training and validation."""
    features, labels = table(80, 5)
    for name in ("train", "val"):
        write_csv(folder / f"{name}_features.csv", [list("abcde"), *features])
        write_csv(folder / f"{name}_labels.csv", [["label"], *labels.reshape(-1, 1)])


@maker
def abalone_libsvm(folder: Path) -> None:
    features, labels = table(60, 7)
    lines = []
    for row, label in zip(features, labels, strict=True):
        lines.append(f"{label} " + " ".join(f"{number}:{value}" for number, value in enumerate(row, 1)))
    (folder / "abalone").write_text("\n".join(lines) + "\n")


@maker
def sentences(folder: Path) -> None:
    """Text for language models: `train.txt`, `valid.txt`, `test.txt`."""
    line = "the cat sat on the mat and the dog sat on the log near a tree\n"
    for name, count in {"train": 120, "valid": 40, "test": 40}.items():
        (folder / f"{name}.txt").write_text(line * count)


@maker
def tokens(folder: Path) -> None:
    """Tokens of a tiny vocabulary, as nanoGPT stores them."""
    for name in ("train", "val"):
        (np.arange(4000) % 60).astype(np.uint16).tofile(folder / f"{name}.bin")


@maker
def image_folder(folder: Path) -> None:
    """PNG images of two classes, in folders for training and validation."""
    for split in ("train", "val"):
        for label, name in enumerate(("cat", "dog")):
            target = folder / split / name
            target.mkdir(parents=True)
            for number in range(8):
                pixels = np.full((32, 32, 3), 60 + 120 * label + number, np.uint8)
                (target / f"{number}.png").write_bytes(png(pixels))


def png(pixels: np.ndarray) -> bytes:
    """A PNG file with the pixels (height, width, 3)."""
    height, width, _ = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    header = struct.pack(">2I5B", width, height, 8, 2, 0, 0, 0)
    chunks = (b"IHDR" + header, b"IDAT" + zlib.compress(rows), b"IEND")
    parts = (
        struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk)) for chunk in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


SPECIAL = {"unk_token": "[UNK]", "pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
VOCABULARY = [*SPECIAL.values(), "the", "cat", "sat", "on", "mat", "and", "dog", "log", "near", "a", "tree"]


@maker
def tiny_bert(folder: Path) -> None:
    """A classifier with random weights and its tokenizer, as `save_pretrained` writes them."""
    from transformers import BertConfig, BertForSequenceClassification

    size = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    BertForSequenceClassification(BertConfig(vocab_size=len(VOCABULARY), **size)).save_pretrained(folder)
    write_tokenizer(folder)


@maker
def tiny_gpt2(folder: Path) -> None:
    """A language model with random weights and its tokenizer."""
    from transformers import GPT2Config, GPT2LMHeadModel

    size = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 64, "bos_token_id": 2, "eos_token_id": 3}
    GPT2LMHeadModel(GPT2Config(vocab_size=len(VOCABULARY), **size)).save_pretrained(folder)
    write_tokenizer(folder)


def write_tokenizer(folder: Path) -> None:
    """Write a tokenizer that old and new versions of transformers read."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    numbers = {token: number for number, token in enumerate(VOCABULARY)}
    tokenizer = Tokenizer(WordLevel(numbers, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 64, **SPECIAL}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


@maker
def sentiment(folder: Path) -> None:
    """A tokenized data set, as `datasets.Dataset.save_to_disk` writes it."""
    from datasets import Dataset

    rows = {
        "input_ids": [[2, 5 + row % 8, 6, 7, 3] for row in range(32)],
        "attention_mask": [[1] * 5 for _ in range(32)],
        "labels": [row % 2 for row in range(32)],
    }
    Dataset.from_dict(rows).save_to_disk(folder)


if __name__ == "__main__":
    MAKERS[sys.argv[1]](Path(sys.argv[2]))
