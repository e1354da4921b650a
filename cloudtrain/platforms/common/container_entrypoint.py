"""The entry point that starts cloudtrain's runtime, a zipapp, in a container of any image."""

from __future__ import annotations

from cloudtrain.contract.paths import DEFAULT_BASE
from cloudtrain.packaging.zipapp import RUNTIME_FILE
from cloudtrain.runtime.host_config import RUNTIME_CHANNEL

RUNTIME_PATH = f"{DEFAULT_BASE}/input/data/{RUNTIME_CHANNEL}/{RUNTIME_FILE}"
"""The zipapp in the container."""

SOURCE_CHANNEL = "code"
"""The channel of the source's archive."""

# SageMaker takes 256 characters in a string, in one line. What follows a script is its $0. -S: what `site` does takes
# longer than all the rest, and is of use only to the Python that becomes the runtime.
_START = (
    'for p in python3 python; do "$p" -Sc "import sys; sys.exit(sys.version_info < (3, 9))" 2>/dev/null'
    ' && exec "$p" -S "$0"; done;'
    " echo cloudtrain: this image has no Python 3.9 or newer | tee /opt/ml/output/failure; exit 127"
)
ENTRYPOINT = ("/bin/sh", "-c", _START, RUNTIME_PATH)
