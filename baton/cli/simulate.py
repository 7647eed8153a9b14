"""`baton simulate`: run a trace on a simulated cluster, with the router's own code."""

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

from baton.host.bundled import root


def simulate(arguments: Sequence[str]) -> NoReturn:
    """Run the router's simulator, and exit with its code.

    Args:
        arguments: the trace, then options.
    """
    # First: another package called `services` may be installed.
    sys.path.insert(0, str(root()))
    sys.exit(import_module("simulator.command").main(arguments))
