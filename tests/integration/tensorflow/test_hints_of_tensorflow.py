"""Hints for scripts of TensorFlow 1 and Keras 2, on the real messages; and what the hints advise works."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest
from printed import printed_sections

from cloudtrain.runtime.diagnose.hints.libraries import OF_TENSORFLOW, OF_TRAIN
from cloudtrain.runtime.diagnose.rank_exit import RankExit
from cloudtrain.runtime.diagnose.ranks import diagnose

PROGRAM = Path(__file__).parent / "programs/old_calls.py"

MODEL = (
    "m = keras.Sequential([keras.layers.Dense(1)]); m.compile('sgd', 'mse'); "
    "x = np.zeros((4, 2)); m.fit(x, x[:, :1], verbose=0); "
)

HINTED = {
    "lr": ("keras.optimizers.SGD(lr=0.1)", "Rename lr to learning_rate"),
    "workers": (MODEL + "m.fit(x, x, workers=2)", "TF_USE_LEGACY_KERAS=1"),
    "save": (MODEL + "m.save('1')", "model.export(folder)"),
    "save-format": (MODEL + "m.save('1', save_format='tf')", "model.export(folder)"),
    "np_utils": ("from keras.utils import np_utils", "from keras.utils import to_categorical"),
    "np_utils-module": ("from keras.utils.np_utils import to_categorical", "from keras.utils import to_categorical"),
    "core": ("from keras.layers.core import Dense", "from keras.layers import Dense"),
    "convolutional": ("from tensorflow.keras.layers.convolutional import Conv2D", "from keras.layers import Dense"),
    "engine": ("from keras.engine.topology import Layer", "from keras.layers import Layer"),
    "wrappers": ("from tensorflow.keras.wrappers.scikit_learn import KerasClassifier", "scikeras"),
    "images": ("from keras.preprocessing.image import ImageDataGenerator", "from tensorflow.keras.preprocessing.image"),
    "text": ("from keras.preprocessing.text import Tokenizer", "from tensorflow.keras.preprocessing.text"),
    "session": ("from keras import backend as K; K.set_session(None)", "set_memory_growth"),
    "backend": ("from keras.backend.tensorflow_backend import set_session", "set_memory_growth"),
    "placeholder": ("tf.placeholder(tf.float32)", "tf.disable_v2_behavior()"),
    "optimizer": ("tf.train.AdamOptimizer()", "tf.disable_v2_behavior()"),
    "writer": ("tf.summary.FileWriter('x')", "tf.disable_v2_behavior()"),
    "contrib": ("from tensorflow.contrib import slim", "no tensorflow.contrib"),
    "tutorials": ("from tensorflow.examples.tutorials.mnist import input_data", "no tensorflow.contrib"),
    "estimator": ("tf.estimator.Estimator", "TensorFlow 2.16 removed estimators"),
    "estimator-v1": ("tf.compat.v1.estimator", "TensorFlow 2.16 removed estimators"),
    "eager": ("tf.compat.v1.placeholder(tf.float32)", "tf.compat.v1.disable_v2_behavior()"),
}  # fmt: skip

SIMILAR = {
    "typo": "tf.sesion()",
    "typo-of-train": "tf.train.AdamOptimiser()",
    "own-optimizer-argument": "keras.optimizers.SGD(learning_rat=0.1)",
    "own-fit-argument": MODEL + "m.fit(x, x, epoch=2)",
    "own-backend": "keras.backend.sesion",
    "wrong-extension": MODEL + "m.load_weights('nosuch.txt')",
}

V1 = f"""
for module, v1, names in (
    (tf, tf.compat.v1, "{OF_TENSORFLOW}"),
    (tf.train, tf.compat.v1.train, "{OF_TRAIN}"),
    (tf.summary, tf.compat.v1.summary, "FileWriter|merge_all"),
):
    for name in names.split("|"):
        assert hasattr(v1, name) and not hasattr(module, name), name
"""

ADVISED = {
    "names-of-v1": V1,
    "to_categorical": "from keras.utils import to_categorical",
    "layers": "from keras.layers import Conv2D, Dense, Layer; from keras.models import Model",
    "images": "from tensorflow.keras.preprocessing.image import ImageDataGenerator",
    "text": "from tensorflow.keras.preprocessing.text import Tokenizer",
    "save": MODEL + "m.save('model.keras')",
    "export": MODEL + "m.export('1', verbose=False)",
    "tf_keras": "import tf_keras as keras; "
    + MODEL
    + "m.fit(x, x[:, :1], workers=2, verbose=0); m.save('2')",
    "v1": "import tensorflow.compat.v1 as tf; tf.disable_v2_behavior(); tf.placeholder(tf.float32); tf.Session()",
}


@functools.cache
def ends(python: str, folder: Path) -> dict[str, tuple[str, ...]]:
    """The lines that each piece printed. Advice comes last: that for TensorFlow 1 changes the whole process."""
    pieces = {f"hinted {name}": code for name, (code, _) in HINTED.items()}
    pieces |= {f"similar {name}": code for name, code in SIMILAR.items()}
    pieces |= {f"advised {name}": code for name, code in ADVISED.items()}
    return printed_sections(python, PROGRAM, json.dumps(pieces), env={"TF_USE_LEGACY_KERAS": "0"}, cwd=folder)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("old_calls")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", HINTED)
def test_a_hint_for_the_real_message(warm_tensorflow: str, folder: Path, name: str) -> None:
    lines = ends(warm_tensorflow, folder)[f"hinted {name}"]
    assert HINTED[name][1] in diagnose(RankExit(0, 1, 1.0, None, lines), "algo-1").hint


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", SIMILAR)
def test_no_hint_for_a_similar_message(warm_tensorflow: str, folder: Path, name: str) -> None:
    lines = ends(warm_tensorflow, folder)[f"similar {name}"]
    assert lines[-1] != "it ran"
    assert diagnose(RankExit(0, 1, 1.0, None, lines), "algo-1").hint == ""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ADVISED)
def test_the_advice_works(warm_tensorflow: str, folder: Path, name: str) -> None:
    lines = ends(warm_tensorflow, folder)[f"advised {name}"]
    assert lines[-1] == "it ran", lines
