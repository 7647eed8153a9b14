"""How soon a frontend serves a model that comes later: `python -m bench.serving.new_model`.

Starts a cluster whose engine is simulated, and keeps one stream of tokens open, a token each 5 ms.
Then a worker with another model joins: one with Baton Tiny's tokenizer (0.3 MB), one with a random
tokenizer of about 10 MB. Prints the time from the worker's record in etcd to the model's place in
the frontend's list, and the longest gap between two tokens of the stream before and meanwhile.
"""

import argparse
import asyncio
import random
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from shutil import copyfile
from time import monotonic
from typing import Any

from tokenizers import Tokenizer, models, pre_tokenizers

from baton.client import AsyncClient
from baton.cluster.etcd.client import Etcd
from baton.cluster.etcd.local import LocalEtcd
from baton.cluster.members.discovery import Discovery
from baton.telemetry import logs
from bench.harness import ROOT, cli
from bench.harness.child import process
from bench.harness.cluster import Cluster, cluster
from bench.harness.table import Table

TINY = ROOT / "models" / "baton-tiny"
STREAM_TOKENS = 4000
JOIN_SECONDS = 60.0


def write_large(directory: Path, tokens: int) -> Path:
    """Write a checkpoint's configuration with a random byte-level tokenizer."""
    draw = random.Random(1)
    pieces = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {piece: number for number, piece in enumerate(pieces)}
    merges = []
    while len(vocab) < tokens:
        left, right = draw.choice(pieces), draw.choice(pieces)
        if len(left + right) <= 12 and left + right not in vocab:
            vocab[left + right] = len(vocab)
            pieces.append(left + right)
            merges.append((left, right))
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.save(str(directory / "tokenizer.json"), pretty=False)
    copyfile(TINY / "config.json", directory / "config.json")
    return directory


class Gaps:
    """The longest time between two tokens of a stream."""

    def __init__(self) -> None:
        self.longest = 0.0

    async def watch(self, client: AsyncClient, model: str) -> None:
        """Read one long stream after the other until cancelled."""
        while True:
            async with client.generate(
                [5] * 16, model=model, max_tokens=STREAM_TOKENS, ignore_eos=True
            ) as stream:
                last = None
                async for _ in stream:
                    now = monotonic()
                    if last is not None:
                        self.longest = max(self.longest, now - last)
                    last = now

    def take(self) -> float:
        """Return the longest gap since the last call, in seconds."""
        longest, self.longest = self.longest, 0.0
        return longest


async def join(
    up: Cluster, etcd: str, checkpoint: Path, name: str, gaps: Gaps, quiet_seconds: float
) -> dict[str, Any]:
    """Let a worker with a new model join, and return what happened until it was listed."""
    settings = {
        "BATON_ETCD_ENDPOINTS": etcd,
        "BATON_ENGINE_KIND": "sim",
        "BATON_ENGINE_MODEL": str(checkpoint),
        "BATON_ENGINE_MODEL_NAME": name,
        "BATON_ENGINE_KV_BYTES": "64MiB",
        "BATON_ROLE": "combined",
        "BATON_INSTANCE_ID": name,
        "BATON_STORE_ID": "kvstore-0",
        "BATON_TELEMETRY_LOG_LEVEL": "error",
    }
    await asyncio.sleep(quiet_seconds)
    before = gaps.take()
    async with (
        Etcd((etcd,)) as connection,
        Discovery(connection, "local") as view,
        AsyncClient(up.grpc) as client,
        process((sys.executable, "-m", "baton", "serve", "decode"), settings),
        asyncio.timeout(JOIN_SECONDS),
    ):
        changes = view.changes()
        async for change in changes:
            if change.instance.id == name:
                break
        await changes.aclose()
        registered = monotonic()
        gaps.take()
        while name not in {model.name for model in await client.models()}:
            await asyncio.sleep(0.002)
        seconds = monotonic() - registered
        await asyncio.sleep(0.2)
        meanwhile = gaps.take()
    size = (checkpoint / "tokenizer.json").stat().st_size
    return {
        "model": name,
        "mb": size / 1e6,
        "listed_ms": seconds * 1e3,
        "gap_before_ms": before * 1e3,
        "gap_ms": meanwhile * 1e3,
    }


async def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    logs.configure("bench", "bench", "error")
    results = []
    table = Table(
        ("model", "<10"),
        ("MB", "6.1f"),
        ("ms until listed", "9.0f"),
        ("longest gap before, ms", "9.0f"),
        ("meanwhile, ms", "9.0f"),
    )
    with tempfile.TemporaryDirectory() as scratch:
        etcd = LocalEtcd(Path(scratch) / "etcd")
        await etcd.start()
        (address,) = etcd.endpoints
        large = Path(scratch) / "large"
        large.mkdir()
        write_large(large, options.large)
        arguments = ("--engine", "sim", "--prefill", "1", "--decode", "1")
        async with (
            cluster(*arguments, "--etcd-endpoint", address) as up,
            AsyncClient(up.grpc) as client,
        ):
            gaps = Gaps()
            watching = asyncio.create_task(gaps.watch(client, up.model))
            for number in range(options.rounds):
                for kind, checkpoint in (("tiny", TINY), ("large", large)):
                    name = f"{kind}-{number}"
                    results.append(await join(up, address, checkpoint, name, gaps, options.quiet))
                    table.row(*results[-1].values())
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching
        await etcd.stop()
    return results


def arguments(parser: argparse.ArgumentParser) -> None:
    help_ = "tokens of the random tokenizer; default: 230000, about 10 MB"
    parser.add_argument("--large", type=int, default=230_000, help=help_)
    help_ = "seconds of the stream before a worker joins; default: 2"
    parser.add_argument("--quiet", type=float, default=2.0, help=help_)


if __name__ == "__main__":
    smallest = "--rounds 1 --large 20000 --quiet 0.3"
    cli.main(measure, __doc__, arguments, rounds=3, smallest=smallest)
