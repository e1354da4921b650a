"""What platforms share: requests, channels, the bundled runtime, and reports of failures."""
