"""TensorFlow's parameter server of one host. Runs in the script's interpreter until its parent ends.

    python .../cloudtrain/runtime/launchers/parameter_server.py

``TF_CONFIG`` describes its task. As in AWS's images, every host has one, next to the process that runs the script.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from cloudtrain.runtime.launchers.listening_ports import keep_on_loopback
from cloudtrain.runtime.parent_death import die_with_runtime


def main() -> None:
    die_with_runtime()
    keep_on_loopback(os.environ)
    sys.path[:1] = []  # modules in the folder of this file have the same names as some packages
    import tensorflow  # type: ignore[import-not-found,unused-ignore]

    tf: Any = tensorflow
    config = json.loads(os.environ["TF_CONFIG"])
    task = config["task"]
    server = tf.distribute.Server(config["cluster"], job_name=task["type"], task_index=task["index"])
    server.join()


if __name__ == "__main__":
    main()
