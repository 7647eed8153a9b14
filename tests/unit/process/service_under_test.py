"""A process of its own for the lifecycle tests. BEHAVE says what it does.

UNWIND_SECONDS replaces the constant of that name.
"""

import asyncio
import ctypes
import os
import sys
import threading
import time

from baton.process.lifecycle import Process, main
from baton.rpc.server.server import Server
from baton.settings import RouterSettings, StartupError
from baton.telemetry.logs import get_logger

log = get_logger("services.test")


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


async def fail() -> None:
    await asyncio.sleep(0.05)
    raise RuntimeError("engine on fire")


async def compose(process: Process, settings: RouterSettings) -> None:
    behave = os.environ.get("BEHAVE", "")
    process.stack.callback(say, "first part closed")
    if behave == "slow-start":
        say("starting")
        await asyncio.sleep(60)
    if behave == "stuck-start":
        say("starting")
        time.sleep(60)  # noqa: ASYNC251  # a loop that is stuck is what is tested
    if behave == "deadlocked":
        mutex, libc = ctypes.create_string_buffer(64), ctypes.CDLL(None)  # zeros: an unlocked mutex
        libc.pthread_mutex_lock(mutex)
        threading.Timer(0.2, say, ("starting",)).start()  # the main thread waits by then
        libc.pthread_mutex_lock(mutex)  # no signal ends this wait
    if behave == "refuse":
        raise StartupError("The checkpoint misses config.json: give one that has it.")
    if behave == "bug":
        raise RuntimeError("a bug")
    server = await process.stack.enter_async_context(Server(settings.grpc, process.name))
    await server.start()
    process.readiness.follow(server.set_ready)

    async def drain() -> None:
        say("draining")
        if behave == "slow-drain":
            await asyncio.sleep(60)
        say("drained")

    process.on_drain(drain)
    process.stack.callback(say, "last part closed")
    if behave == "failing-task":
        process.spawn(fail(), "engine")
    if behave == "unread":
        say("flooding")
        while True:
            log.info("x" * 10_000)

    async def announce() -> None:
        while not process.started:  # nothing tells, nobody else needs it
            await asyncio.sleep(0.01)
        say(f"ready {server.address} {process.metrics_address}")

    process.spawn(announce(), "announce")


if __name__ == "__main__":
    main(RouterSettings, compose, "router")
