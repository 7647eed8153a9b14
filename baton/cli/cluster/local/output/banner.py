"""The output of `baton up` once the cluster serves: its addresses, and commands to try."""

import json
import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from textwrap import wrap

from rich.text import Text

from baton.cli.cluster.local.cluster import RunningCluster
from baton.cli.cluster.local.on_demand.room import OnDemandRoom
from baton.cli.cluster.local.scaling.bounds import PoolBounds
from baton.cli.cluster.local.spec import LocalPool, pools_of, summary
from baton.internal.v1.cluster_pb2 import (
    CONTEXT_LIMIT_CHECKPOINT,
    CONTEXT_LIMIT_KV_MEMORY,
    CONTEXT_LIMIT_SETTING,
    ModelCard,
)

_GLUE = "\N{NO-BREAK SPACE}"
"""Printed as a space at which no line is broken."""
_INDENT = 11
"""Columns before a value."""


def banner(cluster: RunningCluster, key: str, width: int | None) -> list[Text]:
    """Return the lines to print.

    Args:
        cluster: the running cluster.
        key: an API key created for it; empty: none.
        width: columns of the terminal, for the values that are lists and sentences; None: each
            is one line. Addresses, paths and commands are one line in any case, to be copied.
    """
    model = cluster.models[0].name
    body = json.dumps(
        {"model": model, "stream": True, "messages": [{"role": "user", "content": "Hello"}]}
    )
    api_key = f', api_key="{key}"' if key else ""
    python = (
        f"from baton.client import Client; "
        f'[print(text, end="", flush=True) for text in Client("{cluster.grpc}"{api_key})'
        f'.chat("Hello", model="{model}").iter_text()]'
    )
    lines = [
        f"Ready after {cluster.start_seconds:.1f} s: {summary(cluster.specs)}.",
        f"  cluster  {cluster.name}",
        *_models(cluster, width),
        *_wrapped("scaling", scaling(cluster.bounds, pools_of(cluster.specs)), width),
        *_wrapped("turns", turns(cluster.room, len(cluster.models)), width),
        f"  OpenAI   {cluster.scheme}://{cluster.http}/v1",
        f"  gRPC     {cluster.grpc}",
        f"  etcd     {', '.join(cluster.etcd)}",
        *([f"  usage    {cluster.state_url}"] if cluster.state_url else []),
        *([f"  key      {key} (shown once)"] if key else []),
        *_wrapped("metrics", metrics(cluster.metrics), width),
        f"  targets  {cluster.metric_targets}",
        f"  logs     {cluster.logs}",
        "Try:",
        f"  curl -sN {cluster.scheme}://{cluster.http}/v1/chat/completions"
        + (f" -H 'authorization: Bearer {key}'" if key else "")
        + f" -H 'content-type: application/json' -d '{body}'",
        f"  {program('python')} -c '{python}'",
        f"  {f'BATON_API_KEY={key} ' if key else ''}{program('baton')} chat "
        f"--cluster {cluster.name}{' --tls' if cluster.tls else ''}"
        f"{f' --model {model}' if len(cluster.models) > 1 else ''}",
        f"  {program('baton')} status --cluster {cluster.name}",
        "Press Ctrl-C to stop the cluster.",
    ]
    return [Text(line) for line in lines]


def _models(cluster: RunningCluster, width: int | None) -> list[str]:
    """Return the lines about the models: each has its own engine and context."""
    lines = []
    for model in cluster.models:
        card = cluster.cards[model.name]
        workers = f" ({model.pools})" if len(cluster.models) > 1 else ""
        lines += _wrapped("model", f"{model.name}{workers}", width)
        lines += _wrapped("engine", engine(card) if card else "", width)
        lines += _wrapped("context", context(card) if card else "", width)
    return lines


def engine(card: ModelCard) -> str:
    """Return the engine, and whether other batch sizes produce the same tokens."""
    named = ", ".join(filter(None, (card.engine, card.dtype)))
    if not named:
        return ""
    return f"{named}: {card.inexact_reason or 'the same tokens in any batch, on any worker'}"


def context(card: ModelCard) -> str:
    """Return the longest prompt and output together, and what limits it."""
    tokens, own = card.context_tokens, card.checkpoint_context_tokens
    reasons = {
        CONTEXT_LIMIT_CHECKPOINT: ", from the checkpoint",
        CONTEXT_LIMIT_SETTING: (
            f" of the checkpoint's {own}, limited by BATON_ENGINE_CONTEXT_TOKENS"
        ),
        CONTEXT_LIMIT_KV_MEMORY: f" of the checkpoint's {own}, limited by BATON_ENGINE_KV_BYTES",
    }
    return f"{tokens} tokens{reasons.get(card.context_limit, '')}"


def scaling(bounds: PoolBounds | None, pools: Iterable[LocalPool]) -> str:
    """Return how many workers of each role may run; empty: their number does not change."""
    if bounds is None:
        return ""
    roles = dict.fromkeys(pool.role for pool in pools)
    ranges = ", ".join(f"{role} {bounds.least} to {bounds.most}" for role in roles)
    return f"{ranges}, as many as the router needs"


def turns(room: OnDemandRoom | None, models: int) -> str:
    """Return how many models have workers at the same time; empty: all have."""
    if room is None:
        return ""
    return (
        f"{room.models} of {models} models have workers at the same time; a request starts another "
        f"model, after {room.min_stay:g} s with the one before"
    )


def metrics(addresses: Mapping[str, str]) -> str:
    """Return where instances serve metrics; only ports, if all are on one host."""
    split = {name: address.rpartition(":") for name, address in addresses.items()}
    hosts = {host for host, _, _ in split.values()}
    if len(hosts) != 1:
        return ", ".join(f"{name} http://{at}/metrics" for name, at in addresses.items())
    ports = ", ".join(f"{name}{_GLUE}{port}" for name, (_, _, port) in split.items())
    return f"http://{hosts.pop()}:PORT/metrics for {ports}"


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


def _wrapped(heading: str, value: str, width: int | None) -> list[str]:
    """Return the heading and the value, broken between words to as many lines as needed."""
    if not value:
        return []
    columns = max(20, width - _INDENT) if width else len(value)
    first, *others = wrap(value, columns, break_long_words=False, break_on_hyphens=False)
    lines = [f"  {heading:<8} {first}", *(" " * _INDENT + part for part in others)]
    return [line.replace(_GLUE, " ") for line in lines]
