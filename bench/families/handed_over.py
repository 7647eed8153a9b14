"""Bytes of KV that a prefill worker hands over, by family of the torch engine:
`python -m bench.families.handed_over [FAMILY…]`.

A family is a tiny random checkpoint in float32, whose windows have --window tokens. One prefill
worker, one decode worker and a store, each a process, serve a prompt of --tokens tokens.

    windows     layers with a window, of all layers
    moved       bytes that the decode worker fetched
    needed      bytes that the cut before the prompt's last token needs
    all blocks  bytes of the prompt's blocks in all layers

and `moved` as a share of both.
"""

import argparse
import asyncio
import random
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from baton.client import AsyncClient
from baton.cluster.etcd.local import LocalEtcd
from baton.engine.base import EngineInfo
from baton.engine.factory import create_engine
from baton.engine.testing.random_families import VOCAB, make_family
from baton.engine.testing.random_tokenizer import make_tokenizer
from baton.kv.cuts import cut_rules
from baton.kv.layout import GroupKind
from baton.settings import EngineSettings
from baton.telemetry import logs
from bench.harness import cli
from bench.harness.fleet import Fleet, total
from bench.harness.table import Table

WINDOWED = ("mistral", "phi3", "gemma2", "gemma3", "gpt-oss")
FAMILIES = ("llama", *WINDOWED)
MODEL = "tiny"
COUNTS = {"kvstore": 1, "router": 1, "prefill": 1, "decode": 1, "frontend": 1}
OUTPUT_TOKENS = 4
JOIN_SECONDS = 30.0


def write_model(path: Path, family: str, window: int, context: int) -> None:
    """Write a checkpoint of a family with a window of so many tokens, and a tokenizer."""
    fields: dict[str, Any] = {"max_position_embeddings": context}
    if family in WINDOWED:
        fields["sliding_window"] = window
    make_family(family, **fields).save_pretrained(path)
    make_tokenizer(VOCAB).save(str(path / "tokenizer.json"))


def info_of(model: Path) -> EngineInfo:
    """Return the properties of an engine that serves a model."""
    engine = create_engine(EngineSettings(model=model, dtype="float32", threads=1, kv_bytes=2**24))
    try:
        return engine.info
    finally:
        engine.close_engine()


@asynccontextmanager
async def served(
    model: Path,
    kv_bytes: int,
    more: Mapping[str, str] = {},
    counts: Mapping[str, int] = COUNTS,
) -> AsyncIterator[Fleet]:
    """Serve a model by so many processes until the block exits, with more settings if needed."""
    settings = {
        "BATON_ENGINE_KIND": "torch",
        "BATON_ENGINE_MODEL": str(model),
        "BATON_ENGINE_MODEL_NAME": MODEL,
        "BATON_ENGINE_DTYPE": "float32",
        "BATON_ENGINE_THREADS": "1",
        "BATON_ENGINE_KV_BYTES": str(kv_bytes),
        "BATON_STORE_ARENA_BYTES": str(2 * kv_bytes),
        "BATON_PLACEMENT_DISAGGREGATION": "always",
        **more,
    }
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "etcd").mkdir()
        async with LocalEtcd(directory / "etcd", durable=False) as etcd:
            fleet = Fleet(directory, etcd, settings, counts, {})
            try:
                await fleet.start(*fleet.members)
                await fleet.wait_ready()
                yield fleet
            finally:
                await fleet.stop()


async def moved_bytes(model: Path, tokens: int, kv_bytes: int) -> int:
    """Return the bytes that a decode worker fetches for a prompt.

    Raises:
        TimeoutError: the workers did not join the cluster in time.
    """
    draw = random.Random(1)
    prompt = [draw.randrange(259, VOCAB - 1) for _ in range(tokens)]
    async with served(model, kv_bytes) as fleet:
        (frontend,), (decode,) = fleet.frontends, fleet.of("decode")
        async with AsyncClient(f"127.0.0.1:{frontend.grpc_port}") as client:
            async with asyncio.timeout(JOIN_SECONDS):
                while not await client.models():
                    await asyncio.sleep(0.05)
            await client.generate(
                prompt, model=MODEL, max_tokens=OUTPUT_TOKENS, ignore_eos=True
            ).answer()
        return round(total(await decode.metrics(), "baton_worker_kv_get_bytes_total"))


def expected_bytes(info: EngineInfo, tokens: int) -> tuple[int, int]:
    """Return the bytes that a prompt's cut needs, and those of all its blocks."""
    rules = cut_rules(info.layout)
    groups = zip(rules.needed(tokens - 1), info.object_bytes, strict=True)
    needed = sum(len(blocks) * size for blocks, size in groups)
    return needed, rules.blocks(tokens - 1) * info.block_bytes


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    logs.configure("bench", "bench", "warning")
    print(f"prompt of {options.tokens} tokens, windows of {options.window}")
    table = Table(
        ("family", "<8"),
        ("windows", "7"),
        ("moved", "9,d"),
        ("needed", "9,d"),
        ("all blocks", "10,d"),
        ("of needed", "9.3f"),
        ("of all", "6.3f"),
    )
    found: dict[str, Any] = {}
    for family in options.families or FAMILIES:
        found[family] = row = await _measured(family, options)
        needed, whole = row["needed"], row["all_blocks"]
        shares = (row["moved"] / needed, row["moved"] / whole)
        table.row(family, row["windows"], row["moved"], needed, whole, *shares)
    return found


async def _measured(family: str, options: argparse.Namespace) -> Mapping[str, Any]:
    with tempfile.TemporaryDirectory(prefix="baton-families-") as directory:
        model = Path(directory)
        write_model(model, family, options.window, 2 * options.tokens)
        info = info_of(model)
        needed, whole = expected_bytes(info, options.tokens)
        kv_bytes = max(2**24, 2 * options.tokens * info.block_bytes // info.layout.block_tokens)
        moved = await moved_bytes(model, options.tokens, kv_bytes)
    window_bytes = sum(
        group.block_bytes for group in info.layout.groups if group.kind is GroupKind.WINDOW
    )
    layers = info.layout.layers
    return {
        "windows": f"{window_bytes * layers // info.block_bytes} of {layers}",
        "moved": moved,
        "needed": needed,
        "all_blocks": whole,
    }


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("families", nargs="*", metavar="FAMILY", help=f"of {', '.join(FAMILIES)}")
    parser.add_argument("--tokens", type=int, default=4096, help="of the prompt; default: 4096")
    parser.add_argument("--window", type=int, default=128, help="default: 128")


if __name__ == "__main__":
    cli.main(measure, __doc__, arguments, smallest="gemma3 --tokens 256 --window 32")
