"""``python -m cloudtrain.runtime``."""

import os

from cloudtrain.runtime.entrypoint import main

# not sys.exit: threads of an abandoned phase may still run and would delay the exit
os._exit(main())
