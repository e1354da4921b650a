"""``python -m cloudtrain.runtime``."""

from cloudtrain.runtime.main import main

main()
