"""Batches while what runs their lines is killed and frozen: `python -m bench.batches.kills`.

Starts three frontends that require keys and run lines, two routers, a prefill, a decode and a
combined worker with the simulated engine, etcd and a Postgres. Two tenants upload a file each and
create a batch of it. While the lines run, processes of each kind are killed (SIGKILL) and started
again, and frozen (SIGSTOP) for some seconds: frontends for up to two leases, so that others run
their lines and they write what is not theirs any more.

Then the files are compared with the input, and the usage records with the files. The exit code is
1 unless:

- each batch is `completed`, and each line of its input is in its output or in its error file, once,
  in the order of the input;
- each line of an output has one usage record, with its tokens and its cost, and the sum of all
  records is that of the outputs, to the nano-dollar;
- each kind of fault came while lines ran, and nothing of a batch is left in the database.
"""

import argparse
import asyncio
import random
from typing import Any

import httpx

from baton.postgres.database import Database
from baton.request.prices import Price
from bench.batches.kills.client import Client, lines_of
from bench.batches.kills.faults import LEASE_SECONDS, Fault, Faults, table_of
from bench.batches.kills.progress import Progress
from bench.batches.kills.verdict import Line, file_differences, usage_differences
from bench.conversations.scene import REQUEST_SECONDS, Stage, stage
from bench.harness import cli
from bench.harness.problems import concluded
from bench.harness.table import Table
from bench.usage.exactly_once.sources import rows_of

COUNTS = {"kvstore": 1, "router": 2, "prefill": 1, "decode": 1, "combined": 1, "frontend": 3}
PRICE = Price.parse("0.05/0.013/0.20")
SETTINGS = {
    "BATON_FILES_URL": "file://{directory}/files",
    "BATON_FILES_SWEEP_SECONDS": "1",
    "BATON_BATCHES_LEASE_SECONDS": str(LEASE_SECONDS),
    "BATON_USAGE_PRICES": f"*=9/9/9,*+batch={PRICE}",
    "BATON_PLACEMENT_DISAGGREGATION": "auto",
    "BATON_ENGINE_SIM_DECODE_STEP_SECONDS": "0.05",
}
_LEFT = """
select (select count(*) from batch_lines) as lines, (select count(*) from orphaned_objects) as bytes
"""


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Print what happened, and what differs."""
    print(f"seed {options.seed}, {options.lines} lines")
    settings = SETTINGS | {"BATON_BATCHES_MAX_RUNNING": str(options.at_once)}
    async with stage(COUNTS, settings) as made:
        found, problems = await run(made, options)
    return concluded(options, found, problems)


async def run(made: Stage, options: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    """Return the counts, and what is wrong."""
    draw, progress = random.Random(options.seed), Progress()
    faults = Faults(made.fleet, made.postgres, progress, draw)
    loop = asyncio.get_running_loop()
    async with Database(made.state) as database, httpx.AsyncClient(timeout=REQUEST_SECONDS) as http:
        await database.wait_available(REQUEST_SECONDS)
        clients = [Client(key, faults.url, http) for _, key in made.keys]
        inputs = [lines_of(options.lines // len(clients), made.up.model, draw) for _ in clients]
        looking = asyncio.create_task(progress.follow(database))
        began = loop.time()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(faults.run(options.lines))
                tasks = [
                    group.create_task(_batch(client, lines))
                    for client, lines in zip(clients, inputs, strict=True)
                ]
        finally:
            looking.cancel()
            await asyncio.wait([looking])
        seconds = loop.time() - began
        problems: list[str] = []
        outputs: list[Line] = []
        errors: list[Line] = []
        for client, lines, task in zip(clients, inputs, tasks, strict=True):
            batch = task.result()
            output = await client.lines(batch["output_file_id"])
            failed = await client.lines(batch["error_file_id"])
            given = [line["custom_id"] for line in lines]
            problems += file_differences(batch, given, output, failed)
            outputs += output
            errors += failed
        await made.drained()
        left = [f"{name} is left in a spool" for name in await made.stop_frontends()]
        lines_left, bytes_left = (await database.fetch(_LEFT))[0]
        if lines_left or bytes_left:
            left.append(f"{lines_left} lines and {bytes_left} objects are left")
        more, sums = usage_differences(outputs, await rows_of(made.state), PRICE)
    problems += left + more + [f"{one.kind}: no line ran" for one in faults.done if not one.had]
    return _report(faults.done, outputs, errors, sums, seconds), problems


async def _batch(client: Client, lines: list[Line]) -> Line:
    return await client.ended(await client.create(lines))


def _report(
    done: list[Fault], output: list[Line], errors: list[Line], sums: dict[str, int], seconds: float
) -> dict[str, Any]:
    """Print the faults and the counts, and return them."""
    table = Table(
        ("fault", "<18"), ("times", "5"), ("lines it had", "12"), ("ended meanwhile", "15")
    )
    rows = table_of(done)
    for row in rows:
        table.row(*row)
    counts = {
        "faults": len(done),
        "seconds": round(seconds),
        "lines in outputs": len(output),
        "lines in error files": len(errors),
        "nano-dollars of outputs": sums["said"],
        "nano-dollars recorded": sums["recorded"],
    }
    for name, value in counts.items():
        print(f"{name}: {value}")
    for line in errors[:5]:
        print(f"error: {line['error']}")
    return {"kinds": rows, **counts}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--lines", type=int, default=5000, help="of both batches; default: 5,000")
    parser.add_argument("--at-once", type=int, default=16, help="per frontend; default: 16")
    parser.add_argument("--seed", type=int, default=1, help="seed of all random choices")


if __name__ == "__main__":
    cli.main(measure, __doc__, arguments, smallest="--lines 160 --at-once 2")
