"""``cloudtrain top``: jobs live in a terminal."""
