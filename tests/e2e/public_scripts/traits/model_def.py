"""A module next to the script, as in AWS's examples."""

import torch

Net = torch.nn.Linear
