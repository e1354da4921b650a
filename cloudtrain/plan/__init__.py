"""Predicts the time and cost of a training job before it runs, and compares the hosts it could run on."""
