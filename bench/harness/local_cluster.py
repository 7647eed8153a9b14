"""A `baton up` for the time of a measurement, and the checkpoint that it serves."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from baton.client import AsyncClient
from baton.cluster.local_etcd import free_port
from baton.engine.testing.random_checkpoint import write_random_checkpoint

ROOT = Path(__file__).parents[2]
VOCAB = 8192
START_SECONDS = 120


@dataclass(frozen=True)
class Up:
    """A cluster that serves."""

    address: str
    model: str


def random_llama(layers: int) -> Path:
    """A Llama of random weights in bf16, 64M at 4 layers and 292M at 24; written once."""
    path = ROOT / "build" / "bench" / f"llama-{layers}"
    if not (path / "tokenizer_config.json").exists() or not (path / "model.safetensors").exists():
        write_random_checkpoint(
            path,
            vocab=VOCAB,
            layers=layers,
            hidden=1024,
            mlp=2816,
            heads=16,
            kv_heads=8,
            head_size=64,
            context=8192,
            dtype="bfloat16",
        )
    return path


@asynccontextmanager
async def cluster(
    arguments: Sequence[str], environment: Mapping[str, str] = {}
) -> AsyncIterator[Up]:
    """Run `baton up` with more arguments and settings until the block ends."""
    grpc_port = free_port()
    up = await asyncio.create_subprocess_exec(
        *(str(Path(sys.executable).with_name("baton")), "up", *arguments),
        *("--grpc-port", str(grpc_port), "--http-port", "0"),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )
    assert up.stdout is not None
    try:
        async with asyncio.timeout(START_SECONDS):
            # Said once every process has joined.
            while not (line := await up.stdout.readline()).startswith(b"Up after"):
                if not line:
                    raise SystemExit("baton up ended before it served: see what it said above")
        address = f"127.0.0.1:{grpc_port}"
        async with AsyncClient(address) as client:
            (model,) = await client.models()
        yield Up(address, model.name)
    finally:
        if up.returncode is None:
            up.terminate()
        await up.communicate()
