"""The supervisor of a job: attempts, retries, preemptions and the outcome, next to the hosts of the job."""
