"""Scripts for TensorFlow 1 that run with TensorFlow 2."""

from __future__ import annotations

from cloudtrain.runtime.diagnose.hints.table import Hint

OF_TENSORFLOW = (
    "Session|InteractiveSession|placeholder|ConfigProto|GPUOptions|app|flags|logging|layers|set_random_seed"
    "|global_variables_initializer|gfile|get_variable|variable_scope|reset_default_graph|enable_eager_execution"
    "|random_normal|log|to_float|FixedLenFeature|python_io|parse_single_example|trainable_variables|get_default_graph"
)
"""Names that only ``tensorflow.compat.v1`` has."""

OF_TRAIN = (
    "AdamOptimizer|GradientDescentOptimizer|MomentumOptimizer|RMSPropOptimizer|AdagradOptimizer|Saver|SessionRunHook"
    "|Optimizer|MonitoredTrainingSession|get_or_create_global_step|StopAtStepHook|LoggingTensorHook"
)
"""Names that only ``tensorflow.compat.v1.train`` has."""

HINTS = (
    Hint(
        "AttributeError: module 'tensorflow' has no attribute 'placeholder'",
        rf"^AttributeError: module 'tensorflow' has no attribute '(?:{OF_TENSORFLOW})'"
        rf"|^AttributeError: module 'tensorflow\._api\.v2\.train' has no attribute '(?:{OF_TRAIN})'"
        r"|^AttributeError: module 'tensorflow\._api\.v2\.summary' has no attribute '(?:FileWriter|merge_all)'",
        "The script is written for TensorFlow 1. Replace import tensorflow as tf with import tensorflow.compat.v1 as "
        "tf, followed by tf.disable_v2_behavior(), or port it to TensorFlow 2.",
    ),
    Hint(
        "ModuleNotFoundError: No module named 'tensorflow.contrib'",
        r"No module named 'tensorflow\.(?:contrib|examples)\b|module 'tensorflow' has no attribute 'contrib'",
        "TensorFlow 2 has no tensorflow.contrib and no tensorflow.examples: port the script, or run it in an image "
        "with TensorFlow 1.",
    ),
    Hint(
        "AttributeError: module 'tensorflow' has no attribute 'estimator'",
        r"^AttributeError: module 'tensorflow(?:\._api\.v2\.compat\.v1)?' has no attribute 'estimator'",
        "TensorFlow 2.16 removed estimators: port the script to Keras, or run it in an image with TensorFlow 2.15.",
    ),
    Hint(
        "RuntimeError: tf.placeholder() is not compatible with eager execution.",
        r"^RuntimeError: tf\.placeholder\(\) is not compatible with eager execution",
        "Call tf.compat.v1.disable_v2_behavior() right after the import of TensorFlow.",
    ),
)
