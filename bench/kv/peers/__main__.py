"""Measure a peer, in its own environment.

python -m bench.kv.peers redis|mooncake ROOT    ROOT holds the unpacked Debian packages

Each line of JSON on standard input gets one response: {"rounds": N} measures everything, and
{"size": BYTES, "batches": N} returns the seconds to get this many new batches.
"""

import json
import os
import statistics
import sys
import time
from pathlib import Path

from bench.kv.peers.base import Peer, new_keys
from bench.kv.sizes import COUNT, MIB, SIZES

ROUND_BYTES = 256 * MIB
LOOKUPS = 4096


def measure(peer: Peer, rounds: int) -> dict[str, dict[str, float]]:
    """Return GB/s by size: the best round, as in bench.kv.store, and the median; lookups/s."""
    results: dict[str, dict[str, float]] = {}
    for label, size in SIZES.items():
        peer.prepare(size)
        count = max(1, ROUND_BYTES // (COUNT * size))
        total = count * COUNT * size / 1e9
        puts: list[float] = []
        gets: list[float] = []
        for number in range(rounds + 1):
            batches = [new_keys() for _ in range(count)]
            began = time.perf_counter()
            for keys in batches:
                peer.put(keys)
            put = time.perf_counter()
            for keys in batches:
                peer.get(keys)
            got = time.perf_counter()
            if number:  # the first one warms up
                puts.append(total / (put - began))
                gets.append(total / (got - put))
            else:
                peer.check(batches[-1])
            for keys in batches:
                peer.remove(keys)
        results[label] = {
            "put": max(puts),
            "get": max(gets),
            "median put": statistics.median(puts),
            "median get": statistics.median(gets),
        }
    results["lookups"] = {"rate": lookup_rate(peer)}
    return results


def lookup_rate(peer: Peer) -> float:
    """Return keys per second, `LOOKUPS` at a time."""
    peer.prepare(4096)
    held = [new_keys() for _ in range(LOOKUPS // COUNT)]
    for keys in held:
        peer.put(keys)
    names = [key for keys in held for key in keys]
    rates = []
    for _ in range(20):
        began = time.perf_counter()
        peer.exist(names)
        rates.append(LOOKUPS / (time.perf_counter() - began))
    return statistics.median(rates)


def get_seconds(peer: Peer, size: int, batches: int) -> float:
    """Put new batches; return the seconds to get them."""
    peer.prepare(size)
    names = [new_keys() for _ in range(batches)]
    for keys in names:
        peer.put(keys)
    began = time.perf_counter()
    for keys in names:
        peer.get(keys)
    seconds = time.perf_counter() - began
    for keys in names:
        peer.remove(keys)
    return seconds


def make(name: str, root: Path) -> Peer:
    """Start a peer."""
    if name == "redis":
        from bench.kv.peers.redis_server import Redis

        return Redis(root)
    from bench.kv.peers.mooncake_store import Mooncake

    return Mooncake(root)


def main() -> None:
    name, root = sys.argv[1:]
    # Peers print to standard output too: redirect that to standard error.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    peer = make(name, Path(root))
    try:
        for line in sys.stdin:
            asked = json.loads(line)
            answer = measure(peer, **asked) if "rounds" in asked else get_seconds(peer, **asked)
            print(json.dumps(answer), file=answers, flush=True)
    finally:
        peer.close()


if __name__ == "__main__":
    main()
