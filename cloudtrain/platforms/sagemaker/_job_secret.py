"""The job secret on SageMaker: an object in S3 that a channel brings to every host.

The request names only its URI. The environment and the hyperparameters of a job would show the secret to everyone who
may call DescribeTrainingJob.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cloudtrain.link.secret import fresh_secret
from cloudtrain.runtime.host_config import SECRET_CHANNEL
from cloudtrain.runtime.job_secret import SECRET_FILE
from cloudtrain.storage import join_uri


def upload_secret(body: Mapping[str, Any], upload: Callable[[Path, str], None]) -> None:
    """Make the secret of the job that ``body`` requests, if it needs one. Raises StorageError.

    Args:
        upload: keeps an existing object: a request that is repeated must not change the secret of a running job.
    """
    for channel in body.get("InputDataConfig", ()):
        if channel["ChannelName"] == SECRET_CHANNEL:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder, SECRET_FILE)
                path.write_text(fresh_secret())
                upload(path, join_uri(channel["DataSource"]["S3DataSource"]["S3Uri"], SECRET_FILE))
