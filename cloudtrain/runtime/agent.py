"""``torchrun`` with its failures as data.

Runs torch's own elastic launcher in this process and leaves the exit codes of the ranks that failed, as
``{local rank: code}``, in the file that ``CLOUDTRAIN_AGENT_REPORT`` names.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from cloudtrain.runtime.rank import die_with_parent


def main(arguments: list[str]) -> None:
    die_with_parent()
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import parse_args, run

    try:
        run(parse_args(arguments))  # type: ignore[no-untyped-call]
    except ChildFailedError as error:
        codes = {failure.local_rank: failure.exitcode for failure in error.failures.values()}
        Path(os.environ["CLOUDTRAIN_AGENT_REPORT"]).write_text(json.dumps(codes))
        sys.exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
