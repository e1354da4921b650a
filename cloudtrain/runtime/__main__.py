"""``python -m cloudtrain.runtime``."""

import os

from cloudtrain.runtime.entrypoint import main

# not sys.exit: threads of a phase that was abandoned may still run, and must not hold the exit up
os._exit(main())
