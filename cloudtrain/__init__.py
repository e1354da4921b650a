"""cloudtrain: submit distributed training jobs to any cluster, with the API you know.

from cloudtrain import Estimator
job = Estimator(entry_point="train.py", instance_count=2).fit({"train": "s3://bucket/train"})
"""
