"""The proxies of a cluster, in their own process; executes commands as lines of JSON."""

import asyncio
import json
import random
import sys

import uvloop

from bench.faults.links import Links, Rule


async def main() -> None:
    """Serve until standard input ends."""
    links = Links(random.Random(int(sys.argv[1])))
    stdin = asyncio.StreamReader(limit=1 << 20)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdin), sys.stdin)
    try:
        while line := await stdin.readline():
            command = json.loads(line)
            for server, (port, target_port) in command.get("listen", {}).items():
                await links.listen(server, port, target_port)
            if "pids" in command:
                links.pids = {pid: name for name, pid in command["pids"].items()}
            if "rules" in command:
                links.set_rules(Rule(**rule) for rule in command["rules"])
            sys.stdout.write(json.dumps({"struck": dict(links.struck)}) + "\n")
            sys.stdout.flush()
    finally:
        await links.close()


if __name__ == "__main__":
    uvloop.run(main())
