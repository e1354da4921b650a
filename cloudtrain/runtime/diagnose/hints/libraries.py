"""Hints for scripts that are incompatible with the installed version of a library."""

from __future__ import annotations

from cloudtrain.runtime.diagnose.hints.table import Hint

_NUMBER_AS_GROUP = (
    "The script passes a number as group=..., as in the first releases of torch.distributed. Remove the argument: "
    "the default is the group of all ranks."
)

PYTORCH = (
    Hint(
        "AttributeError: 'int' object has no attribute 'allreduce'",
        r"^AttributeError: 'int' object has no attribute '(?:allreduce|broadcast|reduce|allgather|size|rank)\w*'",
        _NUMBER_AS_GROUP,
        traceback=r"torch/distributed/distributed_c10d\.py",
    ),
    Hint(
        "ValueError: Group 0 is not registered, please create group with torch.distributed.new_group API",
        r"^ValueError: Group \d+ is not registered, please create group with torch\.distributed\.new_group API",
        _NUMBER_AS_GROUP,
    ),
    Hint(
        "AssertionError: Unknown backend type tcp",
        r"^(?:AssertionError|ValueError): (?:Unknown backend type|Invalid backend:) '?(?P<backend>tcp|mpi4py)\b",
        "PyTorch no longer has the backend {backend}. Use gloo on CPUs, nccl on GPUs.",
    ),
    Hint(
        "AssertionError: Unknown backend type smddp",
        r"^(?:AssertionError|ValueError): (?:Unknown backend type|Invalid backend:) '?smddp\b",
        "The backend smddp exists only in AWS's images, after import smdistributed.dataparallel.torch.torch_smddp. "
        "Use nccl on GPUs, gloo on CPUs.",
    ),
    Hint(
        "RuntimeError: Distributed package doesn't have MPI built in. ...",
        r"^RuntimeError: Distributed package doesn't have MPI built in",
        "PyTorch's own packages do not have the backend mpi. Use gloo on CPUs, nccl on GPUs; both also work where "
        "mpirun starts the ranks.",
    ),
    Hint(
        "UnpicklingError: Weights only load failed. ... Unsupported global: GLOBAL argparse.Namespace ...",
        r"^(?:\w+\.)?UnpicklingError: Weights only load failed(?s:.*)"
        r"(?:Unsupported (?:global|class)|was not an allowed global)",
        "Since PyTorch 2.6, torch.load refuses files with Python objects other than tensors. If you trust the file: "
        "pass weights_only=False, or set TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1 in the job's environment, which leaves "
        "the script unchanged.",
    ),
    Hint(
        "AttributeError: '_SingleProcessDataLoaderIter' object has no attribute 'next'",
        r"^AttributeError: '_(?:SingleProcess|MultiProcessing)DataLoaderIter' object has no attribute 'next'",
        "Write next(iterator) instead of iterator.next().",
    ),
    Hint(
        "IndexError: invalid index of a 0-dim tensor. Use `tensor.item()` in Python ...",
        r"^IndexError: invalid index of a 0-dim tensor\. Use `tensor\.item\(\)`",
        "Write loss.item() instead of loss.data[0].",
    ),
    Hint(
        "AttributeError: 'NoneType' object has no attribute 'get'",
        r"^AttributeError: 'NoneType' object has no attribute 'get'",
        "The torchrun of PyTorch 1 does not work with Python 3.11. Start the ranks with --processes-per-host N "
        "in place of --torchrun: the script has the same variables.",
        traceback=r'torch/distributed/elastic/multiprocessing/api\.py", line \d+, in to_map',
    ),
    Hint(
        "ModuleNotFoundError: No module named 'torch._six'",
        r"^ModuleNotFoundError: No module named 'torch\._six'",
        "PyTorch 2 does not have torch._six. Use a newer release of the package that imports it. In your own code, "
        "torch._six.inf is math.inf, string_classes is str, container_abcs is collections.abc.",
    ),
    Hint(
        "ModuleNotFoundError: No module named 'torch.distributed.deprecated'",
        r"^ModuleNotFoundError: No module named 'torch\.distributed\.deprecated'",
        "Import torch.distributed instead: it has the same functions.",
    ),
    Hint(
        "RuntimeError: operator torchvision::nms does not exist",
        r"^RuntimeError: operator torchvision::\w+ does not exist",
        "This torchvision is not built for this PyTorch. Install the torchvision of the same release, from the same "
        "index: for PyTorch without CUDA, https://download.pytorch.org/whl/cpu. A line torchvision in requirements.txt "
        "gets the build with CUDA.",
    ),
)
"""Calls of old scripts that PyTorch refuses today."""

LIGHTNING = (
    Hint(
        "TypeError: Trainer.__init__() got an unexpected keyword argument 'gpus'",
        r"^TypeError: Trainer\.__init__\(\) got an unexpected keyword argument '(?:gpus|auto_select_gpus)'",
        'Lightning 2 has no gpus: write Trainer(accelerator="gpu", devices=N), or leave both out, and Lightning takes '
        "what the host has.",
        traceback=r"lightning",
    ),
    Hint(
        "TypeError: Trainer.__init__() got an unexpected keyword argument 'progress_bar_refresh_rate'",
        r"^TypeError: Trainer\.__init__\(\) got an unexpected keyword argument '(?P<name>\w+)'"
        r"|^AttributeError: type object 'Trainer' has no attribute '(?:from|add)_argparse_args'",
        "The script is written for Lightning 1. Its guide for migration says what replaces each argument: "
        "https://lightning.ai/docs/pytorch/stable/upgrade/migration_guide.html. To leave the script unchanged, pin "
        "pytorch-lightning<2 in requirements.txt.",
        traceback=r"lightning|Trainer\.(?:from|add)_argparse_args",
    ),
    Hint(
        "ValueError: You selected an invalid accelerator name: `accelerator='ddp'`. ...",
        r"^ValueError: You selected an invalid accelerator name: `accelerator='(?P<name>ddp|dp|ddp_\w+)'`",
        'Lightning 2 has {name} as a strategy: write Trainer(strategy="ddp").',
    ),
    Hint(
        "MisconfigurationException: No supported gpu backend found!",
        r"^MisconfigurationException: No supported gpu backend found!",
        "The host has no GPU, or the PyTorch of this job is built for CPUs. Use an instance_type with GPUs, or "
        'Trainer(accelerator="auto").',
    ),
)
"""Arguments of Lightning 1 that Lightning 2 does not have."""

NUMPY_2 = (
    Hint(
        "AttributeError: `np.Inf` was removed in the NumPy 2.0 release. Use `np.inf` instead.",
        r"^AttributeError: `np\.\w+` was removed in the NumPy 2\.0 release\.",
        "The code is written for NumPy 1. Change it as the message says, or add numpy<2 to requirements.txt (NumPy 1 "
        "has releases for Python 3.12 and older).",
    ),
    Hint(
        "AttributeError: module 'numpy' has no attribute 'product'",
        r"^AttributeError: module 'numpy' has no attribute "
        r"'(?P<name>product|cumproduct|msort|in1d|trapz|compat|math|disp)'",
        "Newer releases of NumPy do not have np.{name}. Replace it, or add numpy<2 to requirements.txt (NumPy 1 has "
        "releases for Python 3.12 and older).",
    ),
    Hint(
        "AttributeError: module 'numpy' has no attribute 'float'. `np.float` was a deprecated alias ...",
        r"^AttributeError: module 'numpy' has no attribute '\w+'\.\n`np\.\w+` was a deprecated alias for the builtin",
        "NumPy 1.24 removed this alias. Write the builtin instead, as the message says: it means the same.",
    ),
    Hint(
        "ValueError: Unable to avoid copy while creating an array as requested. ...",
        r"^ValueError: Unable to avoid copy while creating an array as requested",
        "The code is written for NumPy 1. Change the call as the message says, or add numpy<2 to requirements.txt "
        "(NumPy 1 has releases for Python 3.12 and older).",
    ),
    Hint(
        "ValueError: setting an array element with a sequence. The requested array has an inhomogeneous shape ...",
        r"^ValueError: setting an array element with a sequence\. The requested array has an inhomogeneous shape",
        "The rows differ in length. Since NumPy 1.24, such an array has to be asked for: dtype=object.",
    ),
)
"""Names and calls that new versions of NumPy no longer have."""

_KERAS_2 = (
    "The script is written for Keras 2. It runs unchanged with tf_keras: add tf_keras to requirements.txt and set "
    "TF_USE_LEGACY_KERAS=1 in the job's environment. If it imports keras instead of tensorflow.keras, also write "
    "import tf_keras as keras. Or port it to Keras 3."
)

KERAS_3 = (
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
"""Failures of scripts for Keras 2 under Keras 3."""

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

TENSORFLOW_2 = (
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
"""Failures of scripts for TensorFlow 1 under TensorFlow 2."""

MXNET = (
    Hint(
        "AttributeError: module 'mxnet' has no attribute 'device'",
        r"^AttributeError: module 'mxnet(?:' has no attribute 'device'"
        r"|\.gluon' has no attribute '(?:metric|probability)')",
        "The script is written for MXNet 2, of which there are only beta releases. Take its version for MXNet 1 (in "
        "MXNet's repository, the branch v1.9.x), or write mx.context for mx.device and mx.metric for gluon.metric.",
    ),
)
"""Failures of scripts for MXNet 2 under MXNet 1."""
