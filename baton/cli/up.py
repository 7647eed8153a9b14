"""`baton up`: a local cluster that runs until a signal."""

import asyncio
import json
import shutil
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

import baton
from baton.cli.local.cluster import Cluster, run
from baton.cli.local.model_files import find
from baton.cli.local.plan import summary
from baton.cli.options import ClusterOptions


def up(options: ClusterOptions, console: Console, errors: Console) -> None:
    """Start a cluster, print how to use it, and keep it running until a signal.

    Raises:
        CommandError: it cannot start.
    """

    async def serve(cluster: Cluster) -> None:
        for line in banner(cluster):
            console.print(line, soft_wrap=True, highlight=False)
        await asyncio.Event().wait()

    model = find(options.model, with_weights=options.engine != "sim")
    console.print(f"Starting Baton {baton.__version__} …")
    run(options, model, serve, errors)
    console.print("Stopped.")


def banner(cluster: Cluster) -> list[Text]:
    """Return where the cluster is reached, and commands to try."""
    model = cluster.model
    body = json.dumps(
        {"model": model, "stream": True, "messages": [{"role": "user", "content": "Hello"}]}
    )
    python = (
        f"from baton.client import Client; "
        f'[print(text, end="", flush=True) for text in Client("{cluster.grpc}")'
        f'.chat("Hello", model="{model}").iter_text()]'
    )
    lines = [
        f"Up after {cluster.start_seconds:.1f} s: {summary(cluster.specs)}.",
        f"  model   {model}",
        f"  OpenAI  http://{cluster.http}/v1",
        f"  gRPC    {cluster.grpc}",
        f"  etcd    {', '.join(cluster.etcd)}",
        f"  logs    {cluster.logs}",
        "Try:",
        f"  curl -sN http://{cluster.http}/v1/chat/completions"
        f" -H 'content-type: application/json' -d '{body}'",
        f"  {program('python')} -c '{python}'",
        f"  {program('baton')} chat",
        f"  {program('baton')} status",
        "Ctrl-C stops it.",
    ]
    return [Text(line) for line in lines]


def program(name: str) -> str:
    """Return the command for a program of this environment from this directory."""
    here = Path(sys.executable).parent / name
    found = shutil.which(name)
    if found is not None and Path(found) == here:
        return name
    try:
        return str(here.relative_to(Path.cwd()))
    except ValueError:
        return str(here)
