"""Packing 2,000 files with a total of 50 MB, the first and the second time, against the SageMaker SDK.

    python benchmarks/packing.py [--runs 5]

Prints rows of a Markdown table. The first run creates the SDK's environment. Only the SDK's packing is timed
(`sagemaker.utils.create_tar_file` on the files that `tar_and_upload_dir` passes to it), without its import. Neither
side uploads. The contestants take turns, so other load on the machine affects both.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from _common import Timing, header, measure, peer_python, row

from cloudtrain.packaging import pack

FILES = 2_000
TEXT_FILES = 1_900
BYTES = 50_000_000
SDK = "sagemaker==2.257.7"

PACK_WITH_SDK = """
import os, sys, time
from sagemaker import fw_utils, utils
source, target = sys.argv[1:]
start = time.perf_counter()
utils.create_tar_file(fw_utils._list_files_to_compress("train.py", source), target)
print(time.perf_counter() - start, os.path.getsize(target))
"""


def make_tree(root: Path, seed: int = 0) -> None:
    """Create the files: half of the bytes are source-like text in 1,900 files, half are random bytes in 100 files."""
    rng = random.Random(seed)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz_", k=rng.randint(2, 12))) for _ in range(3_000)]
    for number in range(FILES):
        folder = root / f"package{number % 40}" / f"part{number % 7}"
        folder.mkdir(parents=True, exist_ok=True)
        if number < TEXT_FILES:
            (folder / f"module{number}.py").write_text(_text(rng, words, BYTES // 2 // TEXT_FILES))
        else:
            (folder / f"table{number}.bin").write_bytes(rng.randbytes(BYTES // 2 // (FILES - TEXT_FILES)))
    (root / "train.py").write_text("print('hello')\n")


def _text(rng: random.Random, words: list[str], size: int) -> str:
    lines: list[str] = []
    length = 0
    while length < size:
        line = " " * rng.choice((0, 4, 8)) + " ".join(rng.choices(words, k=rng.randint(1, 10)))
        lines.append(line)
        length += len(line) + 1
    return "\n".join(lines)


def settle(root: Path) -> None:
    """Wait until the last change of the tree is some time ago, as with most source trees."""
    newest = max(
        os.stat(os.path.join(folder, name)).st_ctime for folder, _, names in os.walk(root) for name in names
    )
    time.sleep(max(0.0, newest + 2.5 - time.time()))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    sdk_python = peer_python("sagemaker2", [SDK])
    with tempfile.TemporaryDirectory() as scratch:
        root, cache, target = Path(scratch, "source"), Path(scratch, "cache"), Path(scratch, "sdk.tar.gz")
        make_tree(root)
        settle(root)
        first, sdk = [], []
        for _ in range(runs):
            shutil.rmtree(cache, ignore_errors=True)
            first.append(measure(lambda: pack(root, cache_dir=cache), 1).median)
            command = [str(sdk_python), "-c", PACK_WITH_SDK, str(root), str(target)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            seconds, sdk_size = done.stdout.split()[-2:]
            sdk.append(float(seconds))
        second = measure(lambda: pack(root, cache_dir=cache), runs)
        archive = pack(root, cache_dir=cache)
    sizes = f"{archive.size / 1e6:.1f} MB, peer's {int(sdk_size) / 1e6:.1f} MB"
    print(header())
    print(row(f"pack 2,000 files / 50 MB, first time ({sizes})", Timing.of(first), SDK, Timing.of(sdk)))
    print(row("pack 2,000 files / 50 MB, second time", second, SDK, Timing.of(sdk)))


if __name__ == "__main__":
    main()
