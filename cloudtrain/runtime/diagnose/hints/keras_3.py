"""Scripts for Keras 2 that run with Keras 3."""

from __future__ import annotations

from cloudtrain.runtime.diagnose.hints.table import Hint

_KERAS_2 = (
    "The script is written for Keras 2. It runs unchanged with tf_keras: add tf_keras to requirements.txt and set "
    "TF_USE_LEGACY_KERAS=1 in the job's environment. If it imports keras instead of tensorflow.keras, also write "
    "import tf_keras as keras. Or port it to Keras 3."
)

HINTS = (
    Hint(
        "AttributeError: 'Sequential' object has no attribute 'fit_generator'",
        r"'\w+' object has no attribute '(?:fit|evaluate|predict)_generator'",
        _KERAS_2,
    ),
    Hint(
        "TypeError: compile() got an unexpected keyword argument 'experimental_run_tf_function'",
        r"got an unexpected keyword argument 'experimental_run_tf_function'",
        _KERAS_2,
    ),
    Hint(
        "ImportError: `keras.optimizers.legacy` is not supported in Keras 3. ...",
        r"`keras\.optimizers\.legacy` is not supported in Keras 3",
        _KERAS_2,
    ),
    Hint(
        "AttributeError: `BasicLSTMCell` is not available with Keras 3.",
        r"^AttributeError: `\w+` is not available with Keras 3",
        _KERAS_2,
    ),
    Hint(
        "TypeError: 'list' object is not callable",
        r"^TypeError: 'list' object is not callable",
        _KERAS_2,
        traceback=r"\.variables(?:\(|, \()",
    ),
    Hint(
        "TypeError: TensorFlowTrainer.fit() got an unexpected keyword argument 'use_multiprocessing'",
        r"^TypeError: \w+Trainer\.fit\(\) got an unexpected keyword argument '(?:use_multiprocessing|workers)'",
        _KERAS_2,
    ),
    Hint(
        "ValueError: Argument(s) not recognized: {'lr': 0.1}",
        r"^ValueError: Argument\(s\) not recognized: \{'lr'",
        "Rename lr to learning_rate. tf_keras does not help: its optimizers ignore lr.",
    ),
    Hint(
        "ValueError: Invalid filepath extension for saving. Please add either a `.keras` extension ...",
        r"^ValueError: (?:Invalid filepath extension for saving\.|The `save_format` argument is deprecated in Keras 3)",
        "Keras 3 saves a model as one file: model.save('model.keras'). For a SavedModel, which TensorFlow Serving "
        "reads, call model.export(folder).",
    ),
    Hint(
        "ModuleNotFoundError: No module named 'keras.utils.np_utils'",
        r"No module named '(?:tensorflow\.)?keras\.utils\.np_utils'"
        r"|cannot import name 'np_utils' from '[\w.]*keras\.utils'",
        "Import its functions from keras.utils: from keras.utils import to_categorical.",
    ),
    Hint(
        "ModuleNotFoundError: No module named 'keras.layers.core'",
        r"No module named '(?:tensorflow\.)?keras\.layers\."
        r"(?:core|convolutional|normalization|pooling|recurrent|embeddings|merge|advanced_activations|noise)'",
        "Import the layers from keras.layers: from keras.layers import Dense.",
    ),
    Hint(
        "ModuleNotFoundError: No module named 'keras.engine'",
        r"No module named '(?:tensorflow\.)?keras\.engine\b",
        "Import these classes from their public modules: from keras.layers import Layer, "
        "from keras.models import Model.",
    ),
    Hint(
        "ModuleNotFoundError: No module named 'keras.wrappers.scikit_learn'",
        r"No module named '(?:tensorflow\.)?keras\.wrappers\.scikit_learn'",
        "These wrappers moved to the package scikeras: add scikeras to requirements.txt, and import from "
        "scikeras.wrappers.",
    ),
    Hint(
        "ImportError: cannot import name 'ImageDataGenerator' from 'keras.preprocessing.image' (...)",
        r"cannot import name 'ImageDataGenerator' from 'keras\.preprocessing\.image'",
        "Import it from TensorFlow: from tensorflow.keras.preprocessing.image import ImageDataGenerator.",
    ),
    Hint(
        "ModuleNotFoundError: No module named 'keras.preprocessing.text'",
        r"No module named 'keras\.preprocessing\.text'",
        "Import it from TensorFlow: from tensorflow.keras.preprocessing.text import Tokenizer.",
    ),
    Hint(
        "AttributeError: module 'keras.backend' has no attribute 'get_session'",
        r"module '[\w.]*keras\.backend' has no attribute '(?:get|set)_session'"
        r"|No module named 'keras\.backend\.tensorflow_backend'"
        r"|cannot import name 'tensorflow_backend' from '[\w.]*keras\.backend'",
        "TensorFlow 2 has no sessions: remove the code that configures one. To limit GPU memory, call "
        "tf.config.experimental.set_memory_growth.",
    ),
)
