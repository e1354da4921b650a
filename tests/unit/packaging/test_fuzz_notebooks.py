"""Damaged notebooks: each is converted, or refused with one error and a hint."""

from __future__ import annotations

import os
from pathlib import Path

import fuzzing
import pytest

from cloudtrain.packaging.notebook import convert_notebook

NOTEBOOK = {
    "cells": [
        {"cell_type": "markdown", "id": "a", "metadata": {}, "source": ["# Title\n", "text"]},
        {
            "cell_type": "code",
            "id": "b",
            "metadata": {"tags": ["setup"]},
            "source": ["%matplotlib inline\n", "import os\n", "print(1)"],
            "outputs": [],
            "execution_count": 1,
        },
        {"cell_type": "code", "id": "c", "metadata": {}, "source": "x = 1\n%time x", "outputs": []},
    ],
    "metadata": {
        "kernelspec": {"name": "python3", "language": "python", "display_name": "Python"},
        "language_info": {"name": "python"},
    },
    "nbformat": 4,
    "nbformat_minor": 5,
}


@pytest.mark.filterwarnings("ignore")  # nbformat's, about what is wrong
def test_damaged_notebooks(tmp_path: Path) -> None:
    path = tmp_path / "train.ipynb"

    def read(data: bytes) -> None:
        path.write_bytes(data)
        try:
            convert_notebook(path)
        finally:
            assert set(os.listdir(tmp_path)) <= {"train.ipynb", "train.py"}

    documents = fuzzing.damaged_documents([NOTEBOOK], fuzzing.random("notebook"))
    fuzzing.check("notebook", documents, read)
