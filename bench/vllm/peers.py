"""The compared engines, each in its own processes, on given cores."""

import json
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bench.harness.child import Helper, helper, log_path

CHUNK_TOKENS = 512
_ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_HOST_IP": "127.0.0.1",
    "GLOO_SOCKET_IFNAME": "lo",
    "HF_HUB_OFFLINE": "1",
}


def two_cores() -> tuple[int, int]:
    """Return the cores that the sides share.

    Raises:
        SystemExit: there is only one.
    """
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise SystemExit("two cores are needed, so that each side has one")
    return cores[0], cores[1]


@asynccontextmanager
async def async_llm(
    model: Path,
    worker_cores: Sequence[int],
    other_cores: Sequence[int],
    *,
    chunk_tokens: int = CHUNK_TOKENS,
    transfer: Mapping[str, Any] | None = None,
    settings: Mapping[str, str] = {},
    log: str = "vllm",
) -> AsyncIterator[Helper]:
    """Run vLLM's AsyncLLM until the block exits.

    Args:
        model: its directory.
        worker_cores: cores of the computing process.
        other_cores: cores of the scheduler's process and of AsyncLLM's own.
        chunk_tokens: tokens per step.
        transfer: the fields of vLLM's `KVTransferConfig`; None: no connector.
        settings: environment variables in addition to the common ones.
        log: its output goes to `build/bench/LOG.log`.

    Raises:
        SystemExit: it ended: see the log.
    """
    asked = {
        "model": str(model),
        "cores": list(other_cores),
        "worker_cores": list(worker_cores),
        "chunk_tokens": chunk_tokens,
        "transfer": dict(transfer) if transfer else None,
    }
    bind = {"VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, worker_cores))}
    environment = {**_ENVIRONMENT, **bind, **settings}
    with log_path(log).open("w") as said:
        started = helper(
            "bench.vllm.async_llm", json.dumps(asked), settings=environment, stderr=said
        )
        async with started as peer:
            await peer.receive()
            yield peer


@asynccontextmanager
async def vllm_engine(model: Path, cores: Sequence[int], **settings: Any) -> AsyncIterator[Helper]:
    """Run Baton's VllmEngine, without a worker, until the block exits.

    Args:
        model: its directory.
        cores: cores of the process.
        settings: further settings of the engine.
    """
    given = {"model": str(model), "kv_bytes": 1 << 30, "chunk_tokens": CHUNK_TOKENS, **settings}
    asked = {"cores": list(cores), "settings": given}
    with log_path("vllm-engine").open("w") as said:
        started = helper("bench.vllm.engine_process", json.dumps(asked), stderr=said)
        async with started as engine:
            await engine.receive()
            yield engine
