"""The supervisor of a job, which runs near its hosts: attempts, retries, preemptions and the outcome."""
