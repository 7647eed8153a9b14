"""What clients see when a process is killed: `python -m bench.serving.faults`.

Starts an etcd and `baton up` with the sim engine, keeps CONCURRENCY requests running, and kills one
process after the other with SIGKILL (etcd for OUTAGE_SECONDS; the supervisor starts the others
anew). Each answer is compared with the one that an undisturbed cluster gave. Prints a table and
JSON.
"""

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
import time
import urllib.request
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from baton.client import AsyncClient, BatonClientError, Delta
from baton.cluster.local_etcd import LocalEtcd, free_port

CONCURRENCY = 16
PROMPTS = 64
OUTPUT_TOKENS = 48
SETTLE_SECONDS = 2.0
LOAD_SECONDS = 10.0
# Who is killed, and how often clients try again.
VICTIMS = (
    ("none", 2),
    ("prefill-0", 2),
    ("decode-0", 2),
    ("kvstore-0", 2),
    ("router-0", 2),
    ("frontend-0", 2),
    ("frontend-0", 10),
    ("etcd", 2),
)


@dataclass
class Outcome:
    """One fault, as clients saw it."""

    victim: str
    retries: int
    ok: int = 0
    wrong: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    longest_gap: float = 0.0
    """Seconds between two events of one stream, its beginning included."""
    slowest: float = 0.0
    """Seconds of the slowest request."""
    moved: int = 0
    """Requests that were placed again because a worker was lost."""
    back: float | None = None
    """Seconds until the killed process had been started again."""


class Load:
    """Requests at constant concurrency, each checked."""

    def __init__(self, address: str, model: str) -> None:
        self._address = address
        self._model = model
        self._expected: dict[int, tuple[int, ...]] = {}

    async def run(self, outcome: Outcome, stop: asyncio.Event) -> None:
        async with AsyncClient(self._address, timeout=60, retries=outcome.retries) as client:
            numbers = iter(range(10**9))

            async def worker() -> None:
                while not stop.is_set():
                    await self._request(client, next(numbers) % PROMPTS, outcome)

            await asyncio.gather(*(worker() for _ in range(CONCURRENCY)))

    async def _request(self, client: AsyncClient, number: int, outcome: Outcome) -> None:
        prompt = [3 + (number * 31 + i * 7) % 250 for i in range(100 + number)]
        begun = last = time.monotonic()
        stream = client.generate(
            prompt,
            model=self._model,
            max_tokens=OUTPUT_TOKENS,
            ignore_eos=True,
            seed=number,
            resume=True,
        )
        try:
            async with stream:
                async for event in stream:
                    now = time.monotonic()
                    if isinstance(event, Delta):
                        outcome.longest_gap = max(outcome.longest_gap, now - last)
                    last = now
        except BatonClientError as error:
            kind = f"{type(error).__name__}: {error}"[:90]
            outcome.errors[kind] = outcome.errors.get(kind, 0) + 1
            await asyncio.sleep(0.2)
            return
        outcome.slowest = max(outcome.slowest, last - begun)
        expected = self._expected.setdefault(number, stream.token_ids)
        if stream.token_ids == expected and len(expected) == OUTPUT_TOKENS:
            outcome.ok += 1
        else:
            outcome.wrong += 1


def processes(root: int) -> dict[str, int]:
    """Pids of the supervisor's services by instance id."""
    found = {}
    for path in Path("/proc").iterdir():
        if not path.name.isdigit():
            continue
        with suppress(OSError):
            if int((path / "stat").read_text().rsplit(")", 1)[1].split()[1]) == root:
                env = (path / "environ").read_bytes().split(b"\0")
                ids = [e[18:].decode() for e in env if e.startswith(b"BATON_INSTANCE_ID=")]
                found.update({name: int(path.name) for name in ids})
    return found


async def strike(
    victim: str, supervisor: int, etcd: LocalEtcd, outcome: Outcome, outage: float
) -> None:
    """Kill a process and see it come back."""
    if victim == "none":
        await asyncio.sleep(LOAD_SECONDS)
        return
    begun = time.monotonic()
    if victim == "etcd":
        await etcd.kill()
        await asyncio.sleep(outage)
        await etcd.start()
        outcome.back = time.monotonic() - begun
        await asyncio.sleep(LOAD_SECONDS / 2)
        return
    pid = processes(supervisor)[victim]
    os.kill(pid, signal.SIGKILL)
    while processes(supervisor).get(victim, pid) == pid:
        await asyncio.sleep(0.02)
    outcome.back = time.monotonic() - begun
    await asyncio.sleep(max(0.0, LOAD_SECONDS - (time.monotonic() - begun)))


async def measure(outage: float) -> list[Outcome]:
    baton = str(Path(sys.executable).with_name("baton"))
    outcomes = []
    with tempfile.TemporaryDirectory() as directory:
        etcd = LocalEtcd(Path(directory))
        await etcd.start()
        grpc_port, http_port = free_port(), free_port()
        endpoint = etcd.endpoints[0]
        up = await asyncio.create_subprocess_exec(
            *(baton, "up", "--engine", "sim", "--etcd-endpoint", endpoint),
            *("--http-port", str(http_port), "--grpc-port", str(grpc_port)),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            # Every request takes the whole path, and spends a while in each part of it.
            env={
                **os.environ,
                "BATON_DISAGGREGATION": "always",
                "BATON_ENGINE_SIM_PREFILL_TOKENS_PER_SECOND": "4000",
            },
        )
        try:
            address = f"127.0.0.1:{grpc_port}"
            model = await first_model(address)
            load = Load(address, model)
            for victim, retries in VICTIMS:
                outcome = Outcome(victim, retries)
                moved = await placed_again(http_port)
                stop = asyncio.Event()
                running = asyncio.create_task(load.run(outcome, stop))
                await asyncio.sleep(SETTLE_SECONDS)
                await strike(victim, up.pid, etcd, outcome, outage)
                stop.set()
                async with asyncio.timeout(90):
                    await running
                outcome.moved = max(0, await placed_again(http_port) - moved)
                outcomes.append(outcome)
                print(row(outcome), flush=True)
        finally:
            up.terminate()
            await up.wait()
            await etcd.stop()
    return outcomes


async def placed_again(http_port: int) -> int:
    """The frontend's count of requests that it placed a second time."""
    url = f"http://127.0.0.1:{http_port}/metrics"
    text = (await asyncio.to_thread(urllib.request.urlopen, url)).read().decode()
    return int(float(text.split("\nbaton_frontend_placement_retries_total ")[1].split()[0]))


async def first_model(address: str) -> str:
    async with AsyncClient(address) as client, asyncio.timeout(60):
        while True:
            with suppress(BatonClientError):
                if models := await client.models(timeout=1):
                    return models[0].name
            await asyncio.sleep(0.2)


def row(outcome: Outcome) -> str:
    failed = sum(outcome.errors.values())
    back = f"{outcome.back:6.2f}" if outcome.back is not None else "     –"
    return (
        f"{outcome.victim:11} {outcome.retries:7} {outcome.ok:6} {failed:7} {outcome.wrong:6} "
        f"{outcome.moved:6} "
        f"{outcome.longest_gap:10.2f} {outcome.slowest:10.2f} {back}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--outage", type=float, default=30.0, help="seconds without etcd")
    arguments = parser.parse_args()
    print("killed      retries     ok  failed  wrong  moved  longest gap  slowest s back s")
    outcomes = asyncio.run(measure(arguments.outage))
    print(json.dumps([asdict(outcome) for outcome in outcomes], indent=1))


if __name__ == "__main__":
    main()
