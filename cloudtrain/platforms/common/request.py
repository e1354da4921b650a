"""What a supervised job tells its runtimes, whatever their hosts are."""

from __future__ import annotations

from cloudtrain.contract import Settings
from cloudtrain.platforms.common.channels import channel_uris
from cloudtrain.platforms.supervised.folder import JobFolder
from cloudtrain.spec import TrainingJob
from cloudtrain.storage import join_uri


def job_settings(job: TrainingJob, folder: JobFolder, master_port: int) -> Settings:
    """Of a job whose state is in ``folder``, and there too its output and checkpoints, unless it names places."""
    output = join_uri(job.output_path, folder.name) if job.output_path else folder.path.as_uri()
    return Settings(
        job_name=folder.name,
        output_uri=join_uri(output, "output"),
        checkpoint_uri=job.checkpoint_s3_uri or (folder.path / "checkpoints").as_uri(),
        source_sha256=job.source.sha256 if job.source else "",
        compress_output=not job.disable_output_compression,
        channels=channel_uris(job),
        master_port=master_port,
        metric_definitions=tuple((item["Name"], item["Regex"]) for item in job.metric_definitions),
        stop_grace=job.stop_grace,
        hang_timeout=job.hang_timeout or 0.0,
        timeline=job.timeline,
    )
