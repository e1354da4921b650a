"""Records the bytes that the SageMaker SDK writes as recordio-protobuf: tests/data/recordio.json.

    python tests/parity/record_recordio.py

with the interpreter of the SageMaker SDK, numpy and scipy.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

CASES = {
    "floats": "dense(np.array([[0, 1.5], [-2, 3]], 'float32'))",
    "doubles": "dense(np.array([[0, 1.5], [-2, 3]]), np.array([1.0, 0.0]))",
    "integers": "dense(np.array([[0, 1, 127], [128, 70000, -3]]), np.array([1, -1]))",
    "mixed": "dense(np.ones((2, 70), 'float32'), np.array([3, 300]))",
    "sparse": "sparse(csr([[0, 0, 5], [0, 0, 0]], 'float32'), np.array([0, 1], 'float32'))",
    "sparse_wide": "sparse(csr([[0] * 299 + [2.5]]))",
    "three_dimensions": "dense(np.ones((2, 2, 2)))",
    "labels_too_short": "dense(np.ones((2, 3)), np.ones(1))",
    "small_integers": "dense(np.ones((2, 3), 'int8'))",
    "not_sparse": "sparse(np.ones((2, 3)))",
}


def recorded(case: str, common: Any) -> str | None:
    """The bytes as hexadecimal digits; None if ``common``, the module of the SDK, refuses."""
    import numpy as np
    from scipy.sparse import csr_matrix

    def write(function: Any, *arguments: Any) -> str:
        file = io.BytesIO()
        function(file, *arguments)
        return file.getvalue().hex()

    names = {
        "np": np,
        "csr": lambda rows, kind=float: csr_matrix(np.array(rows, kind)),
        "dense": lambda *arguments: write(common.write_numpy_to_dense_tensor, *arguments),
        "sparse": lambda *arguments: write(common.write_spmatrix_to_sparse_tensor, *arguments),
    }
    try:
        return str(eval(CASES[case], names))
    except Exception:
        return None


if __name__ == "__main__":
    from sagemaker.amazon import common

    text = json.dumps({case: recorded(case, common) for case in CASES}, indent=1)
    (Path(__file__).parents[1] / "data" / "recordio.json").write_text(text + "\n", encoding="utf-8")
