"""What users need to test their own jobs: an S3 server that is real, without AWS."""

from cloudtrain.testing.s3 import S3Server

__all__ = ["S3Server"]
