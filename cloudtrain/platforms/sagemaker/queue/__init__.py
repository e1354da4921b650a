"""Jobs that wait in a queue of AWS Batch until there is capacity for them: service jobs.

Batch stores the CreateTrainingJob request of a service job, and sends it when it is the job's turn. Each attempt of the
service job is one training job, with a name that Batch chooses.
"""
