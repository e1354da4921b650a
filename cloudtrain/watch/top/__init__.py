"""``cloudtrain top``: a live view of jobs in a terminal."""
