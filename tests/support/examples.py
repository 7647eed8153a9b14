"""How many examples test a property: few in `make test`, ten times as many in `make soak`.

Each run draws others, so that many runs of few examples find what one run of many does.
"""

import os

TIMES = int(os.environ.get("BATON_TEST_EXAMPLES", "1"))
"""How many times as many as in `make test`."""


def examples(usual: int) -> int:
    """Return a `max_examples`, given that of `make test`."""
    return usual * TIMES
