"""Limits of a request between processes; the frontend's own are settings.

Those of sampling and stopping parameters stand with the parameters, in `baton.sampling`.
"""

MAX_CHOICES = 16
"""Outputs of one prompt, `n`."""
MAX_ADAPTERS = 64
"""LoRA adapters of one worker."""
