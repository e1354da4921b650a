"""Large-batch optimizers LARS and LAMB: `cloudtrain.optimizers.torch` and `cloudtrain.optimizers.keras`."""

__all__: list[str] = []
