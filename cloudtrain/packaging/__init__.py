"""From a source directory to the archive that a job runs."""

from cloudtrain.packaging._git import GitState
from cloudtrain.packaging.entry_point import check_entry_point
from cloudtrain.packaging.pack import SourceArchive, pack

__all__ = ["GitState", "SourceArchive", "check_entry_point", "pack"]
