"""smg: a gateway that forwards HTTP to workers and does not process tokens."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from baton.cluster.etcd.local import free_port
from bench.peers.environments import binaries
from bench.peers.serving import MODEL, Serving, lists_model, program


@asynccontextmanager
async def smg(model: Path, step_seconds: float) -> AsyncIterator[Serving]:
    """Serve a model by a worker that gives every stream a token per step of this many seconds."""
    gateway = binaries("smg") / "smg"
    port, worker_port = free_port(), free_port()
    address, worker = f"127.0.0.1:{port}", f"127.0.0.1:{worker_port}"
    paced = (sys.executable, "-m", "bench.peers.paced_worker", str(worker_port), str(step_seconds))
    command = (
        *(gateway, "launch", "--host=127.0.0.1", f"--port={port}", "--log-level=warn"),
        *(f"--worker-urls=http://{worker}", "--policy=cache_aware", f"--model-path={MODEL}"),
        *(f"--tokenizer-path={model}", "--max-concurrent-requests=20000"),
        *("--prometheus-host=127.0.0.1", f"--prometheus-port={free_port()}"),
    )
    async with program("smg-worker", *paced):
        await lists_model(worker, ("smg-worker",))
        async with program("smg", *command) as pid:
            await lists_model(address, ("smg", "smg-worker"))
            yield Serving(MODEL, address, "", {"gateway": pid})
