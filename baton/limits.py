"""Limits of a request, the same on HTTP, on gRPC and between processes.

Those of sampling and stopping parameters stand with the parameters, in `baton.sampling`.
"""

MAX_CHOICES = 16
"""Outputs of one prompt, `n`."""
MAX_OUTPUTS = 128
"""Prompts of one text completion times `n`."""
MAX_MESSAGES = 4096
"""Messages of one conversation."""
