"""Where a job runs. A platform renders a job into a request, submits it, and tells how it goes."""

from cloudtrain.platforms.base import Events, JobDescription, Platform, Request
from cloudtrain.platforms.registry import get_platform, platform_names

__all__ = ["Events", "JobDescription", "Platform", "Request", "get_platform", "platform_names"]
