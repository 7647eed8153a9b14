"""A batch whose budget ends in the middle: `python -m bench.batches.budget`.

Two frontends that require keys run the lines of a tenant whose budget pays for some of them. The
exit code is 1 unless the batch is `completed`, each line is in the output or has the error
`insufficient_quota`, once, in the order of the input, and what routers count as spent is the cost
of the output: not more than the budget, and less than a line's cost below it.
"""

import argparse
import asyncio
import random
from collections import Counter
from itertools import cycle
from typing import Any

import httpx

from baton.request.prices import Price
from baton.tenancy.limits.spec import Subject
from baton.tenancy.records.tenants import Tier
from bench.batches.kills.client import Client, lines_of
from bench.batches.kills.verdict import file_differences, tokens_of
from bench.conversations.scene import REQUEST_SECONDS, SCOPES, serves, stage
from bench.harness import cli
from bench.harness.problems import concluded

COUNTS = {"kvstore": 1, "router": 2, "prefill": 1, "decode": 2, "frontend": 2}
PRICE = Price.parse("0.05/0.05/0.20")
SETTINGS = {
    "BATON_FILES_URL": "file://{directory}/files",
    "BATON_USAGE_PRICES": f"*={PRICE}",
    "BATON_ENGINE_SIM_DECODE_STEP_SECONDS": "0.005",
}
TENANT = "small"
PROMPT_TOKENS, OUTPUT_TOKENS = 20, 4
"""Of a line, about."""
_POLL_SECONDS = 0.2


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Print what was paid for, and what is wrong."""
    async with (
        stage(COUNTS, SETTINGS) as made,
        httpx.AsyncClient(timeout=REQUEST_SECONDS) as http,
    ):
        lines = lines_of(options.lines, made.up.model, random.Random(1))
        for number, line in enumerate(lines):
            message = {"role": "user", "content": f"line {number}"}
            line["body"] |= {"messages": [message], "max_tokens": OUTPUT_TOKENS}
        budget = options.paid * PRICE.cost(PROMPT_TOKENS, 0, OUTPUT_TOKENS)
        admin, urls = made.up.admin, cycle(made.up.http)
        await admin.create_tenant(TENANT, Tier.PRO, budget_nanodollars_per_month=budget)
        _, secret = await admin.create_key(await admin.find_project(TENANT, "default"), SCOPES)
        client = Client(secret, lambda: next(urls), http)
        for url in made.up.http:
            await serves(url, secret)
        batch = await client.ended(await client.create(lines))
        output = await client.lines(batch["output_file_id"])
        errors = await client.lines(batch["error_file_id"])
        costs = [PRICE.cost(*tokens_of(line)) for line in output]

        async with asyncio.timeout(REQUEST_SECONDS):
            while (found := await admin.spending.of(Subject.TENANT, TENANT)).reserved:
                await asyncio.sleep(_POLL_SECONDS)  # routers write it each second
        spent = found.spent
    problems = list(file_differences(batch, [line["custom_id"] for line in lines], output, errors))
    codes = Counter(line["error"]["code"] for line in errors)
    if set(codes) != {"insufficient_quota"}:
        problems.append(f"errors are {dict(codes)}")
    if spent != sum(costs) or not budget - max(costs) < spent <= budget:
        problems.append(f"of {budget} {spent} are spent, and outputs cost {sum(costs)}")
    counts: dict[str, Any] = {
        "lines in the output": len(output),
        "lines with insufficient_quota": len(errors),
        "budget, nano-dollars": budget,
        "spent": spent,
    }
    for name, value in counts.items():
        print(f"{name}: {value}")
    return concluded(options, counts, problems)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--lines", type=int, default=5000, help="default: 5,000")
    parser.add_argument("--paid", type=int, default=3000, help="about so many; default: 3,000")


if __name__ == "__main__":
    cli.main(measure, __doc__, arguments, smallest="--lines 60 --paid 30")
