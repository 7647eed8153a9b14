"""The cluster for faults, and its load."""

import random
from functools import partial
from typing import Any

from baton.engine.factory import create_engine
from baton.settings import EngineSettings
from bench.faults.frontends import Frontends
from bench.faults.rows.clients import KILL_TOKEN
from bench.faults.traffic import Shape, Traffic
from bench.harness import ROOT

DTYPE = "float64"
"""The default dtype."""
EXACT: dict[str, dict[str, str]] = {
    "float64": {},
    "bfloat16": {"native": "required", "deterministic": "required"},
}
"""The dtypes with exact tokens, and the torch engine's settings for them."""
MODEL = ROOT / "models" / "baton-tiny"
COUNTS = {"kvstore": 2, "router": 2, "prefill": 2, "decode": 2, "frontend": 2}
SETTINGS = {
    "BATON_PLACEMENT_DISAGGREGATION": "always",
    "BATON_ENGINE_MODEL": str(MODEL),
    "BATON_ENGINE_MODEL_NAME": MODEL.name,
    "BATON_ENGINE_THREADS": "1",
    "BATON_STORE_DISK_BYTES": "16MiB",
    "BATON_STORE_PEER_TRANSPORTS": "grpc",
    "BATON_ENGINE_SIM_PREFILL_TOKENS_PER_SECOND": "4000",
    "BATON_ENGINE_SIM_DECODE_STEP_SECONDS": "0.02",
    "BATON_ENGINE_SIM_KILL_TOKEN": str(KILL_TOKEN),
}
# Small, so that objects constantly move from engines to memory and to disk, and off it. A block
# of the simulated engine has 256 bytes, one of Baton Tiny 35 KiB.
MEMORY = {
    "sim": {"BATON_ENGINE_KV_BYTES": "256KiB", "BATON_STORE_ARENA_BYTES": "2MiB"},
    "torch": {"BATON_ENGINE_KV_BYTES": "16MiB", "BATON_STORE_ARENA_BYTES": "8MiB"},
}
SHAPES = {"sim": Shape(), "torch": Shape(streams=3, output_tokens=(16, 48))}


def cluster_settings(engine: str, dtype: str) -> dict[str, str]:
    """Return the environment variables of all processes."""
    operators = EXACT.get(dtype, {})
    return {
        **SETTINGS,
        **MEMORY[engine],
        "BATON_ENGINE_KIND": engine,
        "BATON_ENGINE_DTYPE": dtype,
        **{f"BATON_ENGINE_{name.upper()}": value for name, value in operators.items()},
    }


def is_exact(engine: str, dtype: str) -> bool:
    """Return whether tokens are promised to be the same under every fault."""
    return engine == "sim" or dtype in EXACT


def traffic(
    frontends: Frontends, draw: random.Random, engine: str, dtype: str, shape: Shape | None = None
) -> Traffic:
    """Return the load for a cluster with these engines; without a shape, the engine's usual one."""
    return Traffic(
        frontends,
        MODEL.name,
        partial(_engine, engine, dtype),
        draw,
        shape or SHAPES[engine],
        has_logprobs=engine != "sim",
    )


def _engine(kind: str, dtype: str) -> Any:
    return create_engine(
        EngineSettings.model_validate(
            {
                "kind": kind,
                "model": MODEL,
                "threads": 1,
                "dtype": dtype,
                "kv_bytes": 64 * 2**20,
                "sim_time_scale": 0,
                **EXACT.get(dtype, {}),
            }
        )
    )
