"""Uploads the model and the other outputs in SageMaker's layout."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cloudtrain.runtime.host_config import HostConfig
from cloudtrain.storage import join_uri, open_store

if TYPE_CHECKING:
    from cloudtrain.storage import Progress


def upload_outputs(config: HostConfig, progress: Progress, *, model: bool = True) -> dict[str, str]:
    """Upload ``model/`` and ``output/data/`` below the job's output URI. Skips empty folders.

    The leader's become ``model.tar.gz`` and ``output.tar.gz``; those of another host go to a folder with its name.
    Returns the URI of each kind that was uploaded. Raises StorageError.
    """
    uri = config.settings.output_uri
    if not uri:
        return {}
    if not config.host.leads:
        uri = join_uri(uri, config.host.current)
    uploaded = {}
    for kind, folder in (("model", config.paths.model), ("output", config.paths.output_data)):
        if (kind == "model" and not model) or not folder.is_dir() or not any(folder.iterdir()):
            continue
        if config.settings.compress_output:
            uploaded[kind] = _upload_archive(folder, uri, f"{kind}.tar.gz", progress)
        else:
            from cloudtrain.storage.transfer import upload_tree

            upload_tree(folder, open_store(uri), kind, progress)
            uploaded[kind] = join_uri(uri, kind)
    return uploaded


def _upload_archive(folder: Path, uri: str, name: str, progress: Progress) -> str:
    import tarfile
    import tempfile

    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".upload-") as temporary:
        path = Path(temporary) / name
        # weights hardly compress: a higher level gains little
        with tarfile.open(path, "w:gz", compresslevel=1) as archive:
            for item in sorted(folder.iterdir()):
                archive.add(item, item.name)
        open_store(uri).upload(path, name, progress)
    return join_uri(uri, name)
