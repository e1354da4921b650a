"""Code that the platforms share: requests, channels, the bundled runtime, logs, and reports of failures."""
