"""Cost of API keys on a frontend: `python -m bench.serving.authentication`.

Fills a directory from records as etcd stores them, and authenticates keys as a request does: fields
of a request in, tenant, project and tier out. Prints CPU per authentication, for known and unknown
keys, CPU per record read, and the memory of the keys. It then measures limits: nine (requests and
tokens per minute and concurrent requests, of key, project and tenant) are reserved and settled per
request, while the frontend has chunks of all of them. Runs in one process, without sockets and
without etcd.
"""

import argparse
import asyncio
import gc
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

from baton.errors import BatonError
from baton.internal.v1 import router_pb2
from baton.tenancy.directory.directory import Directory
from baton.tenancy.limits.owner import LimitOwner
from baton.tenancy.limits.wire import answer_to_proto, ask_from_proto
from baton.tenancy.records.secret import digest_of, new_secret
from baton.tenancy.records.tenants import Key, Project, Scope, Tenant, Tier, encode
from bench.harness import cli
from services.frontend.access.authenticator import KeyAuthentication
from services.frontend.access.request_limits import RequestLimits

PROJECTS = 100
ASKED = 20_000
"""Keys per round: few enough for some ten milliseconds, chosen anew each time."""
LIMITED = 1000
"""Keys with limits."""
LIMITS: dict[str, Any] = {
    "requests_per_minute": 10**9,
    "tokens_per_minute": 10**12,
    "requests_at_once": 10**6,
}
TOKENS, USED = 500, 300


class Uses:
    """Records uses as `LastUses` does, and writes none."""

    def __init__(self) -> None:
        self.used: dict[str, float] = {}

    def note(self, key_id: str, now: float) -> None:
        self.used[key_id] = now


def resident_bytes() -> int:
    """Return the memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def records(
    count: int, limits: Mapping[str, Any] = LIMITS
) -> tuple[list[tuple[str, bytes]], list[bytes]]:
    """Return records by name, each with these limits, and the secrets of their keys."""
    stored = [("tenants/acme", encode(Tenant(id="acme", tier=Tier.PRO, **limits)))]
    for number in range(PROJECTS):
        project = Project(id=f"proj_{number:016x}", tenant="acme", name=f"team-{number}", **limits)
        stored.append((f"projects/{project.id}", encode(project)))
    secrets = [new_secret().encode() for _ in range(count)]
    for number, secret in enumerate(secrets):
        key = Key(
            id=f"key_{number:016x}",
            project=f"proj_{number % PROJECTS:016x}",
            name=f"application {number}",
            sha256=digest_of(secret),
            scopes=(Scope.INFERENCE.value,),
            created_seconds=1_700_000_000 + number,
            **limits,
        )
        stored.append((f"keys/{key.id}", encode(key)))
    return stored, secrets


def fields(secret: bytes) -> list[tuple[bytes, bytes]]:
    """Return the header fields of a request of OpenAI's client."""
    names = (b"host", b"accept", b"content-type", b"user-agent", b"x-stainless-lang")
    return [*((name, b"some value") for name in names), (b"authorization", b"Bearer " + secret)]


def microseconds(authentication: KeyAuthentication, asked: Sequence[Any]) -> float:
    """Return the CPU per authentication of these requests."""
    began = time.process_time()
    for one in asked:
        with suppress(BatonError):
            authentication.admit(authentication.read(one)).require(Scope.INFERENCE)
    return (time.process_time() - began) / len(asked) * 1e6


class Router:
    """Owns all limits; it responds in the next turn of the loop."""

    on_answers: Callable[[str, router_pb2.LimitAnswers], None]
    on_closed: Callable[[str], None]

    def __init__(self) -> None:
        self._owner = LimitOwner("router")
        self._owner.observe(["router"], -3600.0)

    def session_to(self, _: str) -> "Router":
        return self

    def send_asks(self, asks: router_pb2.LimitAsks) -> None:
        asyncio.get_running_loop().call_soon(self._answer, asks)

    def _answer(self, asks: router_pb2.LimitAsks) -> None:
        answers = router_pb2.LimitAnswers()
        for message in asks.asks:
            ask = ask_from_proto(message)
            assert ask is not None
            answer = self._owner.answer(asks.frontend, ask, time.monotonic())
            if answer is not None:
                answer_to_proto(answer, answers.answers.add())
        self.on_answers("router", answers)


async def limits_microseconds(
    authentication: KeyAuthentication, asked: Sequence[Any], rounds: int
) -> float:
    """Return the CPU per request to reserve from all limits, and to return the rest."""
    router: Any = Router()
    limits = RequestLimits(router, "frontend")
    limits.observe({"router"}, 1)
    principals = [authentication.admit(authentication.read(one)) for one in asked]

    async def once() -> None:
        for principal in principals:
            found = limits.of(principal).counted
            assert found is not None
            limits.settle(await limits.reserve(found, TOKENS), USED)

    await once()  # chunks are available from now on
    taken = []
    for _ in range(rounds):
        began = time.process_time()
        await once()
        taken.append((time.process_time() - began) / len(principals) * 1e6)
    return median(taken)


def measure(options: argparse.Namespace) -> dict[str, float]:
    stored, secrets = records(options.keys)
    directory, uses = Directory(), Uses()
    gc.collect()
    before, began = resident_bytes(), time.process_time()
    for name, value in stored:
        directory.put(name, value)
    read = (time.process_time() - began) / len(stored) * 1e6
    gc.collect()
    taken = resident_bytes() - before
    noting: Any = uses
    authentication = KeyAuthentication(directory, noting)
    known, unknown = [], []
    for _ in range(options.rounds):
        drawn = random.sample(secrets, min(ASKED, len(secrets)))
        known.append(microseconds(authentication, [fields(one) for one in drawn]))
        wrong = [one[:-1] + (b"A" if one[-1:] != b"A" else b"B") for one in drawn]
        unknown.append(microseconds(authentication, [fields(one) for one in wrong]))
    some = [fields(one) for one in random.sample(secrets, min(LIMITED, len(secrets)))]
    limits = asyncio.run(limits_microseconds(authentication, some, options.rounds))
    found = {
        "limits_us": round(limits, 2),
        "keys": len(directory),
        "known_us": round(median(known), 2),
        "unknown_us": round(median(unknown), 2),
        "record_us": round(read, 2),
        "megabytes": round(taken / 1e6, 1),
    }
    print(f"{found['keys']} keys, {found['megabytes']} MB, {found['record_us']} µs per record read")
    print(
        f"authenticating: {found['known_us']} µs, of a key that is not known {found['unknown_us']}"
    )
    print(f"nine limits, in addition: {found['limits_us']} µs")
    return found


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--keys", type=int, default=100_000, help="default: 100000")


if __name__ == "__main__":
    cli.main(measure, __doc__, arguments, rounds=9, smallest="--rounds 1 --keys 100")
