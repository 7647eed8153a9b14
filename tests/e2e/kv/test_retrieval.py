"""Facts told to the demo model come back right over every way that KV can take.

Wrong KV shows here as a wrong answer: the last test exchanges two objects to prove that it would.
"""

import asyncio
import mmap
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from baton.cluster.tenants import DEFAULT_TENANT, CacheSalts
from baton.engine.base import SequenceRequest
from baton.engine.factory import create_engine
from baton.engine.local import run_local
from baton.internal.v1 import kvevents_pb2
from baton.kv.client.client import KvStoreClient
from baton.kv.keys import chain_root, prompt_keys
from baton.kv.tiers import TIERS
from baton.sampling import SamplingParams
from baton.settings import EngineSettings, KvSettings
from baton.settings.transports import SHM, TRANSPORTS
from tests.support.engine.model import MODEL, TRAINED
from tests.support.pairwise import pairwise
from tests.support.services.cluster import LocalCluster
from train.evaluate import Asker, retrieval, value_of
from train.text.conversation import Message
from train.tokenizer import render

MIB = 1024 * 1024
Pair = tuple[bytes, bytes]

ANSWER_TOKENS = 24
DISTANCES = (64, 256, 576)
QUESTIONS = 1
# Sums in another order, as chunks and batches make them, change no token.
ENGINE = {"engine.dtype": "float64"}
ROUNDS = 5
"""Of questions until KV comes from disk: a slow one is given some of what memory evicts."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A prompt, what one process answers, and what is right."""

    prompt: list[int]
    tokens: tuple[int, ...]
    answer: str
    value: str


class OneProcess:
    """The demo model in this process."""

    def __init__(self) -> None:
        settings = EngineSettings(model=TRAINED, dtype="float64", threads=1)
        self.engine = create_engine(settings)
        self.tokenizer = Tokenizer.from_file(str(TRAINED / "tokenizer.json"))

    def ask(self, prompts: Sequence[Sequence[Message]], values: Sequence[str]) -> list[Asked]:
        """Answers to rendered conversations, each as it would be alone."""
        ids = [self.tokenizer.encode(render(messages, ask=True)).ids for messages in prompts]
        stops = tuple(self.engine.info.eos_token_ids)
        outputs = run_local(
            self.engine,
            [
                SequenceRequest(
                    number,
                    self.root(b""),
                    prompt,
                    SamplingParams(temperature=0.0, max_tokens=ANSWER_TOKENS, stop_token_ids=stops),
                )
                for number, prompt in enumerate(ids)
            ],
        )
        return [
            Asked(prompt, tuple(output.tokens[0]), self.text(output.tokens[0]), value)
            for prompt, output, value in zip(ids, outputs, values, strict=True)
        ]

    def root(self, salt: bytes) -> bytes:
        """The empty prefix's key."""
        info = self.engine.info
        return chain_root(MODEL, info.weights_digest, info.layout.layout_id, b"", salt)

    def text(self, tokens: Sequence[int]) -> str:
        return self.tokenizer.decode(tokens).strip()


@pytest.fixture(scope="module")
def one_process() -> OneProcess:
    return OneProcess()


@pytest.fixture(scope="module")
def questions(one_process: OneProcess) -> list[Asked]:
    """About names and numbers that the model was not trained on."""
    asker = Asker(TRAINED)
    drawn = [
        question for distance in DISTANCES for question in retrieval(asker, distance, QUESTIONS)
    ]
    return one_process.ask([q.messages for q in drawn], [q.expected for q in drawn])


async def answer(cluster: LocalCluster, prompt: Sequence[int]) -> tuple[int, ...]:
    stream = cluster.client.generate(
        prompt, model=MODEL, max_tokens=ANSWER_TOKENS, temperature=0.0, seed=1
    )
    return (await stream.answer()).token_ids


async def answers(cluster: LocalCluster, questions: Sequence[Asked]) -> list[tuple[int, ...]]:
    return await asyncio.gather(*(answer(cluster, asked.prompt) for asked in questions))


def test_one_process_answers_what_it_was_told(questions):
    right = [value_of(asked.answer) == asked.value for asked in questions]
    assert sum(right) >= 0.75 * len(right), [(asked.answer, asked.value) for asked in questions]


async def from_dram(running: LocalCluster, questions: Sequence[Asked]) -> None:
    """What workers write lies there already, and a decode worker reads it from there."""
    decode = running.decodes[0]
    before = (await running.load(decode)).computed_tokens
    await right_answers(running, questions)
    # The decode worker computed answers only: each prompt came to it as KV.
    computed = (await running.load(decode)).computed_tokens - before
    assert computed <= sum(len(asked.tokens) for asked in questions)


async def from_disk(running: LocalCluster, questions: Sequence[Asked]) -> None:
    """All questions' KV does not fit in memory: what was asked first is read back from disk."""
    await right_answers(running, questions)
    for _ in range(ROUNDS):
        await running.empty_engines()
        await right_answers(running, questions)
        if (await running.kvstore.metrics())["baton_kv_disk_read_bytes_total"] > 0:
            return
    pytest.fail(f"in {ROUNDS} rounds nothing was read from disk")


READ: dict[int, Callable[[LocalCluster, Sequence[Asked]], Awaitable[None]]] = {
    kvevents_pb2.TIER_DRAM: from_dram,
    kvevents_pb2.TIER_DISK: from_disk,
}
"""Asks everything so that KV comes out of a tier; a new tier has to say how."""
MEMORY = {
    kvevents_pb2.TIER_DRAM: {},
    kvevents_pb2.TIER_DISK: {
        "store.arena_bytes": 8 * MIB,
        "store.disk_bytes": 256 * MIB,
    },
}


async def right_answers(running: LocalCluster, questions: Sequence[Asked]) -> None:
    """Ask one after the other."""
    for asked in questions:
        assert await answer(running, asked.prompt) == asked.tokens


@pytest.mark.parametrize(("transport", "tier", "far"), pairwise(TRANSPORTS, TIERS, [False, True]))
async def test_every_way_of_kv_gives_the_same_answers(
    local_cluster, questions, transport, tier, far
):
    settings = {**ENGINE, **MEMORY[tier], "kv.transports": (transport,)}
    running = await local_cluster(
        own=True, engine="torch", model=TRAINED, settings=settings, far=far
    )
    first = questions[0]
    stream = running.client.generate(
        first.prompt, model=MODEL, max_tokens=ANSWER_TOKENS, temperature=0.0, seed=1
    )
    steps = {step.name: step for step in (await stream.answer()).steps}
    assert steps["prefill"].instance == "prefill-0", steps
    assert steps["decode"].instance == "decode-0"
    assert steps["transfer"].detail.startswith(transport)
    await READ[tier](running, questions)


def codes(count: int) -> list[tuple[list[Message], list[Message], str, str]]:
    """Pairs of conversations that differ in the digits of one number."""
    draw = random.Random("codes")
    pairs = []
    for _ in range(count):
        one, other = (str(n) for n in draw.sample(range(1000, 10_000), 2))
        both = [
            [
                Message("user", f"Please remember: The code of Zimo is {code}."),
                Message("assistant", "I will remember that."),
                Message("user", "What is the code of Zimo?"),
            ]
            for code in (one, other)
        ]
        pairs.append((both[0], both[1], one, other))
    return pairs


async def exchange(
    store: KvStoreClient, arena: Path, layout_id: bytes, size: int, pairs: Sequence[Pair]
) -> None:
    """Swap the bytes of pairs of objects in a store's memory, below everything that checks them."""
    fetching = store.fetch([key for pair in pairs for key in pair], layout_id, size)
    found: dict[int, bytes] = {}
    try:
        async for batch in fetching:
            for each in batch:
                copy = bytearray(each.nbytes)
                each.copy_to(memoryview(copy))
                found[each.index] = bytes(copy)
    finally:
        await fetching.aclose()
    assert len(found) == 2 * len(pairs), "not all objects are in the store"
    with arena.open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        for first in range(0, len(found), 2):
            one, other = found[first], found[first + 1]
            here, there = memory.find(one), memory.find(other)
            assert here != there and -1 not in (here, there)
            memory[here : here + size] = other
            memory[there : there + size] = one


@pytest.mark.parametrize("verify", ["always", "never"])
async def test_two_exchanged_objects_are_noticed_or_answer_wrongly(
    local_cluster, one_process, verify
):
    drawn = codes(4)
    here = one_process.ask([one for one, *_ in drawn], [code for *_, code, _ in drawn])
    there = one_process.ask([other for _, other, *_ in drawn], [code for *_, code in drawn])
    running = await local_cluster(
        own=True,
        engine="torch",
        model=TRAINED,
        settings={**ENGINE, "kv.verify": verify, "store.verify": verify},
    )
    for asked in (*here, *there):
        assert await answer(running, asked.prompt) == asked.tokens

    info = one_process.engine.info
    salt = await CacheSalts(running.etcd, running.name).get(DEFAULT_TENANT)
    root, size = one_process.root(salt), info.layout.block_tokens
    swapped = []
    for one, other in zip(here, there, strict=True):
        assert len(one.prompt) == len(other.prompt)
        both = enumerate(zip(one.prompt, other.prompt, strict=True))
        blocks = {at // size for at, (mine, its) in both if mine != its}
        keys = [prompt_keys(root, asked.prompt, size).full for asked in (one, other)]
        swapped += [(keys[0][block], keys[1][block]) for block in blocks]
    [path] = running.directory_of("kvstore-0").glob("*.arena")
    address = running.kvstore.address
    async with KvStoreClient(
        lambda: address, "saboteur", "1", settings=KvSettings(transports=(SHM,))
    ) as store:
        assert await store.wait_connected(5)
        await exchange(store, path, info.layout.layout_id, info.block_bytes, swapped)

    await running.empty_engines()
    bad = (await running.stat()).bad_objects
    found = await answers(running, here)
    if verify == "always":
        assert found == [asked.tokens for asked in here]
        assert (await running.stat()).bad_objects >= bad + len(swapped)
    else:
        # All are wrong, and some answer the very code that the other conversation was told.
        assert all(tokens != asked.tokens for tokens, asked in zip(found, here, strict=True))
        texts = [value_of(one_process.text(tokens)) for tokens in found]
        assert any(text == asked.value for text, asked in zip(texts, there, strict=True))
