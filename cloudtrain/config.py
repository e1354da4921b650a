"""The user's defaults: a YAML file of Estimator arguments.

``$CLOUDTRAIN_CONFIG``, else ``$XDG_CONFIG_HOME/cloudtrain/config.yaml``, else ``~/.config/cloudtrain/config.yaml``.
An empty variable counts as unset.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from cloudtrain.errors import InvalidJob, nearest
from cloudtrain.spec import FIELDS, read_job_file

NOT_DEFAULTS = ("source", "job_name", "inputs")
"""Fields that belong to one job only."""


def config_path() -> Path:
    given = os.environ.get("CLOUDTRAIN_CONFIG")
    if given:
        return Path(given)
    base = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(base).expanduser() / "cloudtrain" / "config.yaml"


def read_config() -> dict[str, Any]:
    """The defaults; none where there is no file.

    Raises:
        InvalidJob: the file is no YAML, or has a key that is no argument of an Estimator.
    """
    path = config_path()
    if not path.exists() and not os.environ.get("CLOUDTRAIN_CONFIG"):
        return {}
    config = read_job_file(path)
    for key in config:
        if key not in FIELDS or key in NOT_DEFAULTS:
            raise InvalidJob(f"{path}: {key!r} cannot have a default", hint=nearest(key, FIELDS))
    return config
