"""`baton up`: a local cluster that runs until a signal."""

import asyncio

from rich.console import Console

import baton
from baton.cli.local.banner import banner
from baton.cli.local.cluster import Cluster, run
from baton.cli.local.model_files import find
from baton.cli.options import ClusterOptions


def up(options: ClusterOptions, console: Console, errors: Console) -> None:
    """Start a cluster, print how to use it, and keep it running until a signal.

    Raises:
        CommandError: it cannot start.
    """

    async def serve(cluster: Cluster) -> None:
        for line in banner(cluster, console.width if console.is_terminal else None):
            console.print(line, soft_wrap=True, highlight=False)
        await asyncio.Event().wait()

    model = find(options.model, with_weights=options.engine != "sim")
    console.print(f"Starting Baton {baton.__version__} …")
    ended = run(options, model, serve, errors)
    console.print(f"Stopped. Logs: {ended.logs}", soft_wrap=True, highlight=False)
