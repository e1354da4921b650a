"""Says which rank runs where, and leaves a model: a first script for a cluster, with any launcher.

cloudtrain submit first.yaml
"""

from __future__ import annotations

import os

from cloudtrain import environment


def main() -> None:
    rank, ranks = os.environ["RANK"], os.environ["WORLD_SIZE"]
    print(f"rank {rank} of {ranks} on {os.environ['SM_CURRENT_HOST']}", flush=True)
    if rank == "0":
        (environment.model_dir() / "model.txt").write_text(f"trained by {ranks} ranks\n")


if __name__ == "__main__":
    main()
