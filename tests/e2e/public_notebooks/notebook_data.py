"""Makes small synthetic data, also that of `make_data.py`: `python notebook_data.py NAME FOLDER`."""

from __future__ import annotations

import gzip
import json
import pickle
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "public_scripts"))

from make_data import MAKERS, table, write_csv


def iris_names_csv(folder: Path) -> None:
    """With the names of the classes, as the original data set has them."""
    features, labels = table(150, 4, classes=3)
    names = ("Iris-setosa", "Iris-versicolor", "Iris-virginica")
    rows = zip(features, sorted(labels), strict=True)
    write_csv(folder / "iris.data", [[*row, names[label]] for row, label in rows])


def abalone_csv(folder: Path) -> None:
    features, labels = table(60, 8)
    write_csv(folder / "abalone.csv", np.column_stack([labels + 1, features]))


def abalone_of_eight_libsvm(folder: Path) -> None:
    """With whole numbers as the first of eight features."""
    features, labels = table(60, 7)
    lines = [
        f"{label + 1} 1:{label} " + " ".join(f"{number}:{value}" for number, value in enumerate(row, 2))
        for row, label in zip(features, labels, strict=True)
    ]
    (folder / "abalone.libsvm").write_text("\n".join(lines) + "\n")


def reviews_csv(folder: Path) -> None:
    """Texts with labels, 10,000 of them for tests."""
    rows = [[f"{'good' if row % 2 else 'bad'} movie", row % 2] for row in range(10000)]
    write_csv(folder / "train.csv", [["text", "label"], *rows[:64]])
    write_csv(folder / "test.csv", [["text", "label"], *rows])


def mnist_pickle(folder: Path) -> None:
    """Three parts, each a tuple of images and labels."""
    features, labels = table(1000, 784)
    part = features.astype("float32"), labels
    with gzip.open(folder / "mnist.pkl.gz", "wb") as file:
        pickle.dump((part, part, part), file)


def data_config_json(folder: Path) -> None:
    """The bucket of sample data for each region."""
    (folder / "data_config.json").write_text(json.dumps({"default": "sagemaker-sample-files"}))


def wdbc_csv(folder: Path) -> None:
    """A number, a diagnosis and thirty measurements, without a header."""
    features, labels = table(60, 30)
    rows = zip(range(60), labels, features, strict=True)
    write_csv(folder / "wdbc.csv", [[number, "BM"[label], *row] for number, label, row in rows])


def taxi_csv(folder: Path) -> None:
    """A count every half an hour."""
    days = [f"2014-{1 + day // 28:02d}-{1 + day % 28:02d}" for day in range(112)]
    hours = [f"{day} {hour:02d}:{half}:00" for day in days for hour in range(24) for half in ("00", "30")]
    rows = [[hour, 100 + number % 48] for number, hour in enumerate(hours)]
    write_csv(folder / "taxi.csv", [["timestamp", "value"], *rows])


def words_text(folder: Path) -> None:
    (folder / "text8").write_text("one two three four " * 200)


NOTEBOOK_MAKERS: dict[str, Callable[[Path], None]] = {
    maker.__name__: maker
    for maker in (
        *(abalone_csv, abalone_of_eight_libsvm, data_config_json, iris_names_csv, mnist_pickle),
        *(reviews_csv, taxi_csv, wdbc_csv, words_text),
    )
}
"""The function that makes the data of each name, in addition to `MAKERS`."""


if __name__ == "__main__":
    {**MAKERS, **NOTEBOOK_MAKERS}[sys.argv[1]](Path(sys.argv[2]))
