"""NVIDIA Dynamo: its frontend with KV-aware routing, and its mocker, which simulates an engine."""

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from baton.cluster.etcd.local import free_port
from bench.peers.environments import binaries
from bench.peers.serving import MODEL, Serving, lists_model, program

_SPEEDUP = 1000
"""Speed-up of prompts, so that the mocker takes almost no time for them."""
_STEP_SECONDS = 6e-3
"""Measured duration of a decode step at an effective decode speed-up of 1, whatever the batch."""
_LOCAL = "127.0.0.1"


@asynccontextmanager
async def dynamo(model: Path, step_seconds: float) -> AsyncIterator[Serving]:
    """Serve a model with steps of this many seconds, whatever the batch."""
    python = binaries("dynamo") / "python"
    port = free_port()
    with tempfile.TemporaryDirectory() as discovery:
        settings = {
            "DYN_FILE_KV": discovery,
            "DYN_DISCOVERY_BACKEND": "file",
            "DYN_REQUEST_PLANE": "tcp",
            "DYN_EVENT_PLANE": "zmq",
            "DYN_LOG": "warn",
            "HF_HUB_OFFLINE": "1",
            **{
                f"DYN_{listener}_HOST": _LOCAL
                for listener in (
                    *("TCP_RPC", "HTTP_SVC", "EVENT_PLANE", "TCP_RESPONSE_STREAM", "SYSTEM"),
                )
            },
        }
        frontend = (python, "-m", "dynamo.frontend", f"--http-host={_LOCAL}")
        routing = (f"--http-port={port}", "--router-mode=kv", "--kv-cache-block-size=16")
        mocker = (
            *(python, "-m", "dynamo.mocker", f"--model-path={model}", f"--model-name={MODEL}"),
            *("--block-size=16", "--num-gpu-blocks-override=65536", "--max-model-len=4096"),
            *("--max-num-seqs=20000", "--max-num-batched-tokens=65536"),
            *(f"--speedup-ratio={_SPEEDUP}", "--kv-bytes-per-token=1024", "--num-workers=1"),
            f"--decode-speedup-ratio={_STEP_SECONDS / step_seconds / _SPEEDUP:.3g}",
        )
        async with (
            program("dynamo-frontend", *frontend, *routing, settings=settings) as pid,
            program("dynamo-mocker", *mocker, settings=settings),
        ):
            address = f"{_LOCAL}:{port}"
            await lists_model(address, ("dynamo-frontend", "dynamo-mocker"))
            yield Serving(MODEL, address, "", {"frontend": pid})
