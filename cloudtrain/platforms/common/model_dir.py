"""The hyperparameter ``model_dir``, which TensorFlow's scripts expect."""

from __future__ import annotations

from cloudtrain.contract.paths import DEFAULT_BASE
from cloudtrain.spec import TrainingJob
from cloudtrain.storage import join_uri

MODEL_FOLDER = f"{DEFAULT_BASE}/model"
"""The folder of the model in a container. On a host with another base folder, the runtime replaces ``/opt/ml``."""


def model_dir(job: TrainingJob, output_path: str = "") -> dict[str, str]:
    """The field ``model_dir``, and for TensorFlow a default, unless the user's hyperparameters have one.

    The default is that of the SageMaker SDK: the job's prefix in S3, or the host's disk for ranks that MPI starts.

    Args:
        output_path: the URI below which the job stores its outputs. Unless it is in S3, the default is on the disk.
    """
    if job.model_dir:
        return {"model_dir": job.model_dir}
    if job.framework != "tensorflow" or job.model_dir is False or "model_dir" in job.hyperparameters:
        return {}
    if not output_path.startswith("s3://") or (job.distribution and "mpi" in job.distribution.enabled):
        return {"model_dir": MODEL_FOLDER}
    return {"model_dir": join_uri(output_path, job.job_name or "", "model")}
