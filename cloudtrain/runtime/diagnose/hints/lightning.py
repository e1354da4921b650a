"""Arguments of Lightning 1 that Lightning 2 does not have."""

from __future__ import annotations

from cloudtrain.runtime.diagnose.hints.table import Hint

HINTS = (
    Hint(
        "TypeError: Trainer.__init__() got an unexpected keyword argument 'gpus'",
        r"^TypeError: Trainer\.__init__\(\) got an unexpected keyword argument '(?:gpus|auto_select_gpus)'",
        'Lightning 2 has no gpus: write Trainer(accelerator="gpu", devices=N), or leave both out, and Lightning takes '
        "what the host has.",
        traceback=r"lightning",
    ),
    Hint(
        "TypeError: Trainer.__init__() got an unexpected keyword argument 'progress_bar_refresh_rate'",
        r"^TypeError: Trainer\.__init__\(\) got an unexpected keyword argument '(?P<name>\w+)'"
        r"|^AttributeError: type object 'Trainer' has no attribute '(?:from|add)_argparse_args'",
        "The script is written for Lightning 1. Its guide for migration says what replaces each argument: "
        "https://lightning.ai/docs/pytorch/stable/upgrade/migration_guide.html. To leave the script unchanged, pin "
        "pytorch-lightning<2 in requirements.txt.",
        traceback=r"lightning|Trainer\.(?:from|add)_argparse_args",
    ),
    Hint(
        "ValueError: You selected an invalid accelerator name: `accelerator='ddp'`. ...",
        r"^ValueError: You selected an invalid accelerator name: `accelerator='(?P<name>ddp|dp|ddp_\w+)'`",
        'Lightning 2 has {name} as a strategy: write Trainer(strategy="ddp").',
    ),
    Hint(
        "MisconfigurationException: No supported gpu backend found!",
        r"^MisconfigurationException: No supported gpu backend found!",
        "The host has no GPU, or the PyTorch of this job is built for CPUs. Use an instance_type with GPUs, or "
        'Trainer(accelerator="auto").',
    ),
)
