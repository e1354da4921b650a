"""The parts that platforms share: requests, channels, the bundled runtime, logs, and reports of failures."""
