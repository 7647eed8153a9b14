"""A writer to be killed: reserves, writes half of each object, says so, and waits to be told.

    writer.py ADDRESS SIZE KEY…     keys in hex

On a line `commit` it writes the rest and commits; it says how many are readable.
"""

import asyncio
import sys

from baton.kv.client.client import KvStoreClient
from baton.telemetry import logs

LAYOUT = b"L" * 16


async def main(address: str, size: int, keys: list[bytes]) -> None:
    async with KvStoreClient(lambda: address, "writer", "1") as client:
        assert await client.wait_connected(10)
        assert client.transport == "shm"
        reservation = await client.reserve(keys, LAYOUT, size)
        for view in reservation.slots.values():
            view[: size // 2] = b"\xee" * (size // 2)
        sys.stdout.write(f"reserved {len(reservation.slots)}\n")
        sys.stdout.flush()
        loop = asyncio.get_running_loop()
        while (line := await loop.run_in_executor(None, sys.stdin.readline)).strip() != "commit":
            if not line:
                return
        for view in reservation.slots.values():
            view[:] = b"\xee" * size
        readable = await reservation.commit(sorted(reservation.slots))
        sys.stdout.write(f"readable {readable}\n")
        sys.stdout.flush()
        await reservation.aclose()


logs.configure("writer", "writer")
asyncio.run(main(sys.argv[1], int(sys.argv[2]), [bytes.fromhex(key) for key in sys.argv[3:]]))
