"""Modules that Python does not find.

A module that may be the user's own is never said to belong in requirements.txt without that condition: a stranger can
publish a package of the same name.
"""

from __future__ import annotations

import re

from cloudtrain.runtime.diagnose.hints.table import Hint

_MISSING = r"^ModuleNotFoundError: No module named '(?P<module>[\w.]+)'(?m:$)"
_SUBMODULE = r"^ModuleNotFoundError: No module named '(?P<module>\w+\.[\w.]+)'(?m:$)"

PUBLISHED = {
    "Crypto": "pycryptodome",
    "PIL": "pillow",
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil",
    "dotenv": "python-dotenv",
    "git": "GitPython",
    "google.protobuf": "protobuf",
    "hydra": "hydra-core",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "PyYAML",
}
"""Well-known modules whose distribution has another name."""

HINTS = (
    Hint(
        "ImportError: attempted relative import with no known parent package",
        r"^ImportError: attempted relative import (?:with no known parent package|beyond top-level package)",
        "A script has no parent package. Write from helpers import x instead of from .helpers import x, or make the "
        "folder of the package the source_dir, with a pyproject.toml, and name the module as the entry point: "
        "package.train. With cloudtrain run: python -m package.train.",
    ),
    Hint(
        "ModuleNotFoundError: No module named 'smdistributed'",
        r"^ModuleNotFoundError: No module named 'smdistributed[.']",
        "smdistributed exists only in AWS's images for SageMaker. Elsewhere, use DistributedDataParallel with the "
        "backend nccl, or cloudtrain.distributed.torch.",
    ),
    Hint(
        "ModuleNotFoundError: No module named 'sagemaker_containers'",
        r"^ModuleNotFoundError: No module named 'sagemaker_(?:containers|training)[.']",
        "The library is part of AWS's images. It reads the environment of the job, which you can do yourself: "
        'json.loads(os.environ["SM_HOSTS"]), os.environ["SM_CURRENT_HOST"], os.environ["SM_CHANNEL_TRAIN"].',
    ),
    Hint(
        "ModuleNotFoundError: No module named 'horovod.run'",
        r"^ModuleNotFoundError: No module named 'horovod\.(?:run|runner)\b"
        r"|^ImportError: cannot import name 'run' from 'horovod'"
        r"|^AttributeError: module 'horovod' has no attribute 'run'",
        "horovod.run starts ranks, which cloudtrain does itself: call the function directly, and submit with --horovod "
        "and --processes-per-host.",
    ),
    Hint(
        "ModuleNotFoundError: No module named 'horovod.spark'",
        r"^ModuleNotFoundError: No module named 'horovod\.(?P<part>spark|ray)\b",
        "horovod.{part} needs the real Horovod and a cluster of {part}, which cloudtrain does not start. Use "
        "horovod.torch, horovod.tensorflow or horovod.keras: cloudtrain starts the ranks.",
    ),
    Hint(
        "ModuleNotFoundError: No module named 'horovod.data'",
        r"^ModuleNotFoundError: No module named '(?P<module>horovod\.[\w.]+)'",
        "The horovod of this job does not have {module}. If the script needs it, use an image that has the real "
        "Horovod.",
    ),
    Hint(
        "ModuleNotFoundError: No module named 'helpers' (in the folder src of the source)",
        _MISSING,
        "The source has {top} in the folder {found_in}, which Python does not search. Put the entry point there, or "
        "set PYTHONPATH={found_in} in the job's environment.",
    ),
    Hint(
        "ModuleNotFoundError: No module named 'helpers.text' (the source has helpers, without text)",
        _SUBMODULE,
        "The source has {own_package}, but not {module}. Check the name, and that no .gitignore or .cloudtrainignore "
        "excludes the file.",
    ),
    Hint(
        "ModuleNotFoundError: No module named 'helpers.text' (the source has helpers/text.py)",
        _SUBMODULE,
        "The source has {own_file}, but Python imports another {top}: an installed package, or another module of that "
        "name. Rename yours, or add an __init__.py to its folder.",
    ),
    Hint(
        "ModuleNotFoundError: No module named 'torch.nn'; 'torch' is not a package",
        r"^ModuleNotFoundError: No module named '[\w.]+'; '(?P<module>\w+)' is not a package",
        "The source has a file {module}.py (in the folder {found_in}), which hides the package {module}. Rename the "
        "file.",
    ),
    *(
        Hint(
            f"ModuleNotFoundError: No module named '{module}'",
            rf"^ModuleNotFoundError: No module named '{re.escape(module)}'(?m:$)",
            f"Add {distribution} to the requirements.txt next to the script.",
        )
        for module, distribution in PUBLISHED.items()
    ),
    Hint(
        "ModuleNotFoundError: No module named 'transformers.utils.old' (the source has no module transformers)",
        _SUBMODULE,
        "The {foreign} of this job has no {module}: another release of it may have, or a package that adds to it. See "
        "the documentation of {module} for what to put into requirements.txt.",
    ),
    Hint(
        "ImportError: cannot import name 'x' from 'scipy' (/usr/lib/python3/site-packages/scipy/__init__.py)",
        r"^ImportError: cannot import name '(?P<name>\w+)' from '(?P<module>\w+)[\w.]*' "
        r"\(.*/(?:site|dist)-packages/",
        "The installed {module} has no {name}. Check the name, and which release of {module} has it.",
    ),
    Hint(
        "ImportError: cannot import name 'datasets' from 'examples' (unknown location)",
        r"^ImportError: cannot import name '(?P<name>\w+)' from '(?P<module>\w+)[\w.]*' \(unknown location\)",
        "Python found a folder {module}, but no {name} in it. If {module} is a package of yours, pack the folder that "
        "contains {module}: --source-dir FOLDER (source_dir in Python). With cloudtrain run, add that folder to "
        "PYTHONPATH.",
    ),
    Hint(
        "ImportError: libGL.so.1: cannot open shared object file: No such file or directory",
        r"^(?:ImportError|OSError): libGL\.so\.1: cannot open shared object file",
        "If OpenCV needs it, use opencv-python-headless instead of opencv-python: it works without a desktop. "
        "Otherwise, use an image that has the system library.",
    ),
    Hint(
        "ImportError: libsndfile.so.1: cannot open shared object file: No such file or directory",
        r"^(?:ImportError|OSError): (?P<library>\S+\.so[\d.]*): cannot open shared object file",
        "The host does not have the system library {library}. Use an image that has it.",
    ),
    Hint(
        "ModuleNotFoundError: No module named 'helpers'",
        _MISSING,
        "The job does not have {top}. If it is a module of yours, pack its folder: --source-dir FOLDER (source_dir in "
        "Python). If it is a published package, add it to the requirements.txt next to the script, under the name that "
        "its documentation gives. With cloudtrain run: install it, or add the folder that has it to PYTHONPATH.",
    ),
)
