"""Limits of a request between processes; the frontend's own are settings.

Those of sampling and stopping parameters stand with the parameters, in `baton.sampling`.
"""

MAX_CHOICES = 128
"""Outputs of one prompt, `n`."""
MAX_PROMPT_LOGPROBS = 20
"""Alternatives to report with each prompt token."""
MAX_PICTURE_PIXELS = 16 * 1024 * 1024
"""Pixels of a picture: workers decompress no more."""
MAX_ADAPTERS = 64
"""LoRA adapters of one worker."""

PROVEN_TOKENS = 2
"""A suspect output has survived a worker after so many tokens: the worker that was lost may have
sampled one that its frontend never got."""
