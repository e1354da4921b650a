"""Steps for the ``Pipeline`` of the SageMaker SDK, version 2 or 3, whichever is installed."""

from cloudtrain.pipelines._step import TrainingStep

__all__ = ["TrainingStep"]
