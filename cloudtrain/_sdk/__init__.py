"""The arguments, attributes, objects and refusals that an `Estimator` shares with those of the SageMaker SDK."""
