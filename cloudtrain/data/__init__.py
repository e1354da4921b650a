"""Moves data between this machine and S3: ``cloudtrain s3``, and channels that are local folders."""
