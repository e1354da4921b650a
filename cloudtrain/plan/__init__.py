"""Time and cost of a training before it runs: the model, the options, and which of them to choose."""
