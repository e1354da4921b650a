"""Prints the SHA-256 of a packed source and that of the bundled runtime: ``pack_elsewhere.py SOURCE CACHE``."""

import sys
from pathlib import Path

from cloudtrain.packaging import check_entry_point, pack, pack_runtime

source, cache = map(Path, sys.argv[1:])
print(check_entry_point(source, "train.sh"), pack(source, cache_dir=cache).sha256, pack_runtime(cache).sha256)
