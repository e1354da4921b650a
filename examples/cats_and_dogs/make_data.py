"""Write scikit-learn's handwritten digits as image files, with a folder for each class, to try the script.

python make_data.py data

The cats are fours, the dogs nines, and the other eight digits are for pretraining. ImageNet and Kaggle's cats and dogs
have the same layout.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

CATS, DOGS = 4, 9


def place(digit: int, number: int) -> str:
    """Return the folder for the ``number``-th image of a digit. Every fifth image is for validation."""
    part = "validation" if number % 5 == 0 else "train"
    if digit in (CATS, DOGS):
        return f"{part}/{'cats' if digit == CATS else 'dogs'}"
    return f"pretrain/{digit}"


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: make_data.py FOLDER")
    digits = load_digits()
    for digit in range(10):
        for number, image in enumerate(digits.images[digits.target == digit]):
            file = Path(sys.argv[1], place(digit, number), f"{number:04}.png")
            file.parent.mkdir(parents=True, exist_ok=True)
            large = np.kron(np.minimum(image * 16, 255), np.ones((4, 4))).astype(np.uint8)
            file.write_bytes(tf.io.encode_png(np.stack([large] * 3, axis=-1)).numpy())
    print(f"{sys.argv[1]}: {len(digits.images)} images in pretrain, train and validation")


if __name__ == "__main__":
    main()
