"""Start a peer with its own environment's Python, and send it requests."""

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from bench.harness.child import Helper, helper

NAMES = ("redis", "mooncake")


def peer(name: str, directory: Path) -> AbstractAsyncContextManager[Helper]:
    """Run a peer until the block exits; see `bench.kv.peers.__main__` for its requests.

    Args:
        name: one of `NAMES`.
        directory: where `make bench-kv-peers` installed the peers.
    """
    directory = directory.absolute()
    libraries = ":".join(map(str, directory.glob("root/**/x86_64-linux-gnu")))
    return helper(
        "bench.kv.peers",
        name,
        directory / "root",
        python=directory / "venv" / "bin" / "python",
        settings={"LD_LIBRARY_PATH": libraries},
    )


async def rates_of(name: str, directory: Path, rounds: int) -> dict[str, Any]:
    """Return a peer's rates by size for the batches of bench.kv.store."""
    async with peer(name, directory) as answering:
        rates: dict[str, Any] = await answering.ask({"rounds": rounds})
        return rates
