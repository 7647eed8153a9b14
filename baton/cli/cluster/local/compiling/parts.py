"""The libraries used by processes of a cluster, grouped by build part."""

import runpy
from collections.abc import Callable, Mapping

from baton.compiled.library import Library
from baton.engine.native.build import best_library
from baton.host.bundled import root

OPERATORS = "operators"
ROUTER = "router"
_OF_ROUTERS = (
    "services/router/prefix_index/blocks/build.py",
    "services/router/policy/compiled/build.py",
)


def operators() -> tuple[Library, ...]:
    """Return the engine's operators for this CPU.

    Raises:
        CompileError: no variant supports this CPU, or torch is not installed.
    """
    return (best_library(),)


def of_router() -> tuple[Library, ...]:
    """Return the compiled libraries of a router. `baton` imports no service: their scripts are
    run."""
    return tuple(runpy.run_path(str(root() / script))["library"]() for script in _OF_ROUTERS)


PARTS: Mapping[str, Callable[[], tuple[Library, ...]]] = {ROUTER: of_router, OPERATORS: operators}
