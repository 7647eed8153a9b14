"""A worker of the soak: puts or gets blocks that its keys determine, for as long as it lives.

    soaker.py put|get FILE SEED     FILE holds the store's address

It says `ok N` after every round that moved N objects, and `WRONG …` where bytes were not the key's.
"""

import asyncio
import hashlib
import random
import sys
from pathlib import Path

from baton.errors import BatonError
from baton.kv.client.client import KvStoreClient, StoreUnavailableError
from baton.telemetry import logs

LAYOUT = b"L" * 16
SIZE = 32 * 1024
KEYS = [hashlib.sha256(bytes([number])).digest()[:16] for number in range(250)]
BLOCKS = [(key * (SIZE // 16)) for key in KEYS]


async def put(client: KvStoreClient, draw: random.Random) -> int:
    numbers = draw.sample(range(len(KEYS)), 16)
    reservation = await client.reserve([KEYS[n] for n in numbers], LAYOUT, SIZE)
    try:
        for index, view in reservation.slots.items():
            for at in range(0, SIZE, 4096):  # slowly: a signal comes amid an object
                view[at : at + 4096] = BLOCKS[numbers[index]][at : at + 4096]
            await asyncio.sleep(0)
        if draw.random() < 0.2:
            return 0  # gives them back unwritten
        return await reservation.commit(sorted(reservation.slots))
    finally:
        await reservation.aclose()


async def get(client: KvStoreClient, draw: random.Random) -> int:
    numbers = draw.sample(range(len(KEYS)), 16)
    count = 0
    fetching = client.fetch([KEYS[n] for n in numbers], LAYOUT, SIZE, wait=draw.choice([0, 0.05]))
    try:
        async for batch in fetching:
            for fetched in batch:
                copy = bytearray(SIZE)
                if fetched.copy_to(memoryview(copy)):
                    count += 1
                    if copy != BLOCKS[numbers[fetched.index]]:
                        print("WRONG", numbers[fetched.index], flush=True)
            await asyncio.sleep(0)
    finally:
        await fetching.aclose()
    return count


async def main(what: str, file: Path, seed: str) -> None:
    draw = random.Random(seed)
    work = put if what == "put" else get
    async with KvStoreClient(file.read_text, f"soak-{seed}", seed) as client:
        while True:
            try:
                if not await client.wait_connected(1):
                    continue
                print("ok", await work(client, draw), flush=True)
            except (StoreUnavailableError, BatonError):
                await asyncio.sleep(0.01)


logs.configure("soak", "soak", "error")
asyncio.run(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3]))
