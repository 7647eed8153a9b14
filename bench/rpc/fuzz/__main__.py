"""Find inputs that Baton's HTTP/2 and gRPC mishandle: `python -m bench.rpc.fuzz --seconds 60`.

Half of the time, inputs go to an `Http2Connection` without sockets, a server's or a client's. No
exception may escape, output must be frames in an allowed order, and an input in pieces must give
the same result as in one piece. Half of the time, inputs go to a server over sockets, 20
connections at once. No exception may reach the loop's exception handler, another client must get
responses, and memory must not grow. No turn of the loop may spend more than 50 ms of CPU on an
input; one that exceeds this repeatedly is a failure. An input is identified by its number, which a
failure prints; the last line prints the number of the input with the longest turn. `--only NUMBER`
repeats an input without sockets.
"""

import argparse
import asyncio
import random
import time
from io import StringIO
from typing import Any

from baton.telemetry import logs
from bench.harness import cli
from bench.rpc.fuzz import sans_io
from bench.rpc.fuzz.sockets import SocketFuzzer

_TURN_SECONDS = 1.0
MAX_HELD_SECONDS = 0.05
"""CPU limit of one turn."""
_TRIES = 3
"""Tries of an input that takes long: the garbage collector may have run in between."""


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    if options.only is not None:
        held = sans_io.run(options.only).held_seconds
        print(f"input {options.only} is borne: its longest turn takes {held * 1e3:.1f} ms of CPU")
        return {}
    seed = first = random.randrange(1 << 40) if options.seed is None else options.seed
    alone = sent = 0
    longest, longest_seed = 0.0, 0
    end = time.monotonic() + options.seconds
    log = StringIO()
    logs.configure("fuzz", "fuzz", "error", "console", log)
    async with SocketFuzzer(log) as sockets:
        while (now := time.monotonic()) < end:
            while time.monotonic() < now + _TURN_SECONDS:
                try:
                    borne = sans_io.run(seed)
                    held = borne.held_seconds
                    if held > longest:
                        held = min(held, *(sans_io.run(seed).held_seconds for _ in range(_TRIES)))
                    if held > longest:
                        longest, longest_seed = held, seed
                    if held > MAX_HELD_SECONDS:
                        raise sans_io.Broken(f"a turn of {held * 1e3:.0f} ms")
                except BaseException:
                    print(f"failed: --only {seed}", flush=True)
                    raise
                sent += borne.size
                alone, seed = alone + 1, seed + 1
            now = time.monotonic()
            while time.monotonic() < now + _TURN_SECONDS:
                try:
                    async with asyncio.timeout(60):
                        await sockets.round(seed)
                except BaseException:
                    print(f"failed over sockets: --seed {seed}", flush=True)
                    raise
                seed += 100
        result = {
            "seed": first,
            "inputs": alone,
            "megabytes": sent / 1e6,
            "longest_turn_ms": longest * 1e3,
            "longest_turn": longest_seed,
            "inputs_over_sockets": sockets.inputs,
            "closed_by_server": sockets.closed,
            "slowest_call_ms": sockets.slowest * 1e3,
            "grown_mib": sockets.growth / 2**20,
        }
    print(
        f"{options.seconds:g} s from seed {first}: {alone:,} inputs without sockets "
        f"({sent / 1e6:.0f} MB; the longest turn {longest * 1e3:.1f} ms of CPU, "
        f"--only {longest_seed}), "
        f"{sockets.inputs:,} over sockets ({sockets.closed:,} closed by the server); "
        f"no exception; another client's slowest call {result['slowest_call_ms']:.0f} ms; "
        f"memory +{result['grown_mib']:.0f} MiB"
    )
    return result


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=60.0, help="default: 60")
    parser.add_argument("--seed", type=int, help="number of the first input; default: a random one")
    parser.add_argument("--only", type=int, metavar="NUMBER", help="repeat one input")


if __name__ == "__main__":
    cli.main(measure, __doc__, arguments, smallest="--seconds 1 --seed 1")
