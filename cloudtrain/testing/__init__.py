"""Tools for testing jobs without AWS: a real S3 server, and a platform that runs nothing."""

from cloudtrain.testing.daemon import S3Daemon, running_s3, start_s3, stop_s3
from cloudtrain.testing.fake import FakePlatform
from cloudtrain.testing.s3 import S3Server

__all__ = ["FakePlatform", "S3Daemon", "S3Server", "running_s3", "start_s3", "stop_s3"]
