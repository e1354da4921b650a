"""``python -m cloudtrain.runtime``."""

import os

from cloudtrain._lazy import start_program
from cloudtrain._system.signals import ENDING, block

block(ENDING)  # until there are handlers: the imports take a while
start_program()

from cloudtrain.runtime.entrypoint import main  # noqa: E402

# not sys.exit: threads of an abandoned phase may still run and would delay the exit
os._exit(main())
