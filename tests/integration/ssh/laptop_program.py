"""A client on another system renders a job for a cluster behind a login node: ``laptop_program.py SCRIPT``."""

from __future__ import annotations

import json
import sys

from cloudtrain.platforms.batch.control import ssh_command
from cloudtrain.submission import prepare


def main(script: str) -> None:
    options = {"login": "kraken", "folder": "/scratch/me/ct"}
    fields = {"entry_point": script, "platform": "slurm", "job_name": "far", "platform_options": options}
    body = prepare(fields, defaults={}).request.body
    found = {"system": sys.platform, "script": body["script"], "command": ssh_command("kraken")}
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
