"""The log of a job: the logs of all its pods, merged; and the events that its leader prints there."""
