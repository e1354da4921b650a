"""Write scikit-learn's 1,797 handwritten digits in the format of CIFAR-10, to try the script without a download.

python make_data.py data
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split


def records(images: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Convert digits (N, 8, 8) in [0, 16] to records of CIFAR-10's binary files: label, then 32 * 32 R, G and B."""
    large = np.kron(np.minimum(images * 16, 255), np.ones((4, 4))).astype(np.uint8)
    return np.column_stack([labels.astype(np.uint8), np.tile(large.reshape(len(images), -1), 3)])


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: make_data.py FOLDER")
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    digits = load_digits()
    train, test = train_test_split(
        records(digits.images, digits.target), test_size=0.2, random_state=0, stratify=digits.target
    )
    for number, batch in enumerate(np.array_split(train, 5), 1):
        batch.tofile(folder / f"data_batch_{number}.bin")
    test.tofile(folder / "test_batch.bin")
    print(f"{folder}: {len(train)} digits to train on, {len(test)} to test with")


if __name__ == "__main__":
    main()
