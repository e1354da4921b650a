"""Refuses jobs that no options make a job for Kubernetes."""

from __future__ import annotations

from cloudtrain.errors import InvalidJob
from cloudtrain.images import AUTO
from cloudtrain.platforms.common.bundled_runtime import check_bundled_runtime
from cloudtrain.platforms.common.channels import check_channels
from cloudtrain.platforms.common.runtime_choice import choose_runtime
from cloudtrain.platforms.kubernetes.options import KubernetesOptions
from cloudtrain.platforms.kubernetes.render.volumes import check_path, volumes_of
from cloudtrain.spec import TrainingInput, TrainingJob
from cloudtrain.storage import uri_scheme

NAME = "kubernetes"
_EXAMPLE = "pytorch/pytorch:2.7.1-cuda12.8-cudnn9-runtime"


def check(job: TrainingJob, options: KubernetesOptions) -> None:
    """Raises InvalidJob, with what to write instead."""
    _check_image(job)
    _check_program(job)
    _check_hosts(job)
    check_channels(job, NAME)
    volumes = volumes_of(options)
    for name, channel in job.channels.items():
        assert isinstance(channel, TrainingInput)
        check_path(f"inputs.{name}", channel.s3_data, volumes)
    if not job.output_path and not options.discard_outputs:
        raise InvalidJob(
            "output_path: the folders of a pod vanish with it, so its model has to go elsewhere",
            hint="Set output_path to an s3:// URI, or to file:///PATH on a volume of platform_options.volumes; or "
            "throw the outputs away: platform_options.discard_outputs: true",
        )
    if job.enable_network_isolation:
        _check_isolation(job, options)
    check_path("output_path", job.output_path, volumes, writes=True)
    check_path("checkpoint_s3_uri", job.checkpoint_s3_uri, volumes, writes=True)


def _check_image(job: TrainingJob) -> None:
    if not job.image_uri:
        raise InvalidJob(
            "image_uri: the kubernetes platform needs an image",
            hint=f"Any image with Python 3.9 and your libraries, for example image_uri: {_EXAMPLE}",
        )
    if job.image_uri == AUTO:
        raise InvalidJob(
            "image_uri: auto is an image of this machine or of ECR, which a cluster does not know",
            hint="Push it to a registry that the cluster reads: cloudtrain image push; and name it in image_uri. "
            f"Or use a public one, for example {_EXAMPLE}",
        )


def _check_isolation(job: TrainingJob, options: KubernetesOptions) -> None:
    """Pods that reach one another only cannot reach S3."""
    if not options.network_policy:
        raise InvalidJob(
            "enable_network_isolation: a NetworkPolicy isolates the pods, and platform_options.network_policy is false",
            hint="Leave network_policy out.",
        )
    if options.host_network:
        raise InvalidJob(
            "enable_network_isolation: no NetworkPolicy applies to pods in the network of their nodes, which "
            "platform_options.host_network asks for",
            hint="Leave host_network out, or enable_network_isolation.",
        )
    channels = {f"inputs.{name}": getattr(channel, "s3_data", "") for name, channel in job.channels.items()}
    places = {"output_path": job.output_path, "checkpoint_s3_uri": job.checkpoint_s3_uri, **channels}
    if options.delivery != "configmap":
        places["code_location"] = job.code_location
    for field, uri in places.items():
        if uri and uri_scheme(uri) == "s3":
            raise InvalidJob(
                f"{field}: pods cannot reach {uri} with enable_network_isolation",
                hint="Use file:// URIs on a volume, and leave code_location out.",
            )


def _check_program(job: TrainingJob) -> None:
    if job.entry_point is None:
        raise InvalidJob(
            "entry_point: the kubernetes platform needs a script", hint="Name the script to run."
        )
    if choose_runtime(job) == "toolkit":
        raise InvalidJob(
            "runtime: SageMaker's toolkit does not run on kubernetes",
            hint="Leave runtime out: cloudtrain's runs the script in any image with Python 3.9.",
        )
    check_bundled_runtime(job)
    if job.checkpoint_local_path:
        raise InvalidJob(
            "checkpoint_local_path: a job on kubernetes keeps its checkpoints in /opt/ml/checkpoints",
            hint="Leave it out.",
        )


def _check_hosts(job: TrainingJob) -> None:
    for field in ("instance_groups", "instance_preferences"):
        if getattr(job, field):
            raise InvalidJob(
                f"{field}: the hosts of a job on kubernetes are all of one type",
                hint="Set instance_type and instance_count.",
            )
