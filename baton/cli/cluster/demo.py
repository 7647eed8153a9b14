"""`baton demo`: a cluster, a conversation that depends on reused KV, and its steps."""

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from rich.console import Console
from rich.text import Text

import baton
from baton.cli.cluster.local.cluster import RunningCluster, run
from baton.cli.cluster.local.models.find import find_models
from baton.cli.cluster.local.output.banner import program
from baton.cli.cluster.local.spec import summary
from baton.cli.shared.errors import EXIT_FAILED, CommandError
from baton.cli.shared.options import ClusterOptions
from baton.cli.shared.render import AnswerPrinter, print_steps, usage_line
from baton.client import AsyncClient, BatonClientError, Message

# The last reply is correct only if the KV of all previous turns is.
TURNS = (
    "Please remember: My name is Ada. The red lamp is in Kasimo. The code of Bruno is 4711.",
    "Tell me a story about a fox named Zimo",
    "What is the code of Bruno?",
)
ANSWER_TOKENS = 240
BUSY_TOKENS = 2000
TURN_SECONDS = 60.0


def demo(options: ClusterOptions, console: Console, errors: Console) -> bool:
    """Run the demo; return False if a signal ended it.

    Raises:
        CommandError: the cluster cannot start, or a question was not answered.
    """
    models = find_models(options)
    if len(models) > 1:
        raise CommandError("`baton demo` shows one model: start several with `baton up`.")
    console.print(f"Starting Baton {baton.__version__} …")

    async def converse(cluster: RunningCluster) -> None:
        console.print(
            f"Ready after {cluster.start_seconds:.1f} s, one process each: "
            f"1 etcd, {summary(cluster.specs)}.",
            highlight=False,
        )
        try:
            await _converse(cluster, console)
        except BatonClientError as error:
            raise CommandError(f"The request failed: {error}", EXIT_FAILED) from error

    ended = run(options, models, converse, errors, demo=True)
    if not ended.interrupted:
        console.print(
            f"\nStopped. Start a cluster that keeps running with `{program('baton')} up`.",
            highlight=False,
        )
    return not ended.interrupted


@asynccontextmanager
async def _busy(client: AsyncClient, cluster: RunningCluster) -> AsyncIterator[None]:
    """Keep each decode worker decoding other streams, as in production.

    For an idle decode worker, computing prompts itself is fastest. Next to running streams it takes
    longer, so that the router chooses a prefill worker, which the demo is meant to show.
    """
    decode_workers = sum(spec.service == "decode" for spec in cluster.specs)
    async with AsyncExitStack() as streams:
        for number in range(decode_workers):
            stream = await streams.enter_async_context(
                client.generate(
                    f"Story {number}",
                    model=cluster.models[0].name,
                    max_tokens=BUSY_TOKENS,
                    ignore_eos=True,
                )
            )
            await anext(stream)  # it is running
        yield


async def _converse(cluster: RunningCluster, console: Console) -> None:
    messages: list[Message] = []
    async with AsyncClient(cluster.grpc, timeout=TURN_SECONDS) as client, _busy(client, cluster):
        for question in TURNS:
            console.print(Text(f"\n> {question}", style="bold"))
            messages.append({"role": "user", "content": question})
            begun = time.monotonic()
            printer = AnswerPrinter(console)
            stream = client.chat(
                messages, model=cluster.models[0].name, max_tokens=ANSWER_TOKENS, temperature=0.0
            )
            async with stream:
                async for event in stream:
                    printer.feed(event)
            messages.append({"role": "assistant", "content": stream.text})
            if stream.finished is not None:
                console.print()
                print_steps(console, stream.finished.steps)
                console.print(usage_line(stream.finished.usage, time.monotonic() - begun))
