"""KV is found again, and KV that is wrong is never used."""

from pathlib import Path

from baton.kv.arena.file import PAGE_BYTES, ArenaHeader
from tests.e2e.conftest import TORCH
from tests.support.engine.model import MODEL, prompt_of
from tests.support.services.cluster import LocalCluster

SAMPLING = {"temperature": 0.8, "seed": 11, "max_tokens": 40, "ignore_eos": True}


async def turn(cluster: LocalCluster, prompt: list[int]) -> tuple[tuple[int, ...], int, int]:
    """Output, cached tokens as the answer says, computed tokens as the engines count."""
    before = await cluster.computed_tokens()
    answer = await cluster.client.generate(prompt, model=MODEL, **SAMPLING).answer()
    return (
        answer.token_ids,
        answer.usage.cached_tokens,
        await cluster.computed_tokens() - before,
    )


def poison(arena_dir: Path) -> int:
    """Flip one bit in every KiB of the arena's contents; answers how many."""
    flipped = 0
    for path in arena_dir.glob("*.arena"):
        with path.open("r+b") as file:
            header = ArenaHeader.unpack(file.read(PAGE_BYTES))
            for at in range(header.data_at, path.stat().st_size, 1024):
                file.seek(at)
                byte = file.read(1)
                if byte != b"\0":
                    file.seek(at)
                    file.write(bytes([byte[0] ^ 1]))
                    flipped += 1
    return flipped


async def test_the_second_turn_finds_the_first_ones_prompt_and_answer(local_cluster):
    cluster = await local_cluster(**TORCH)
    first = prompt_of(300)
    answer, cached, computed = await turn(cluster, first)
    assert cached == 0
    assert computed == 300 + 39

    second = [*first, *answer, *prompt_of(30, seed=1)]
    _, cached, computed = await turn(cluster, second)
    # Every full block of the first turn; its last token never went through a pass.
    assert cached == (300 + 39) // 16 * 16 == 336
    assert computed == len(second) - 336 + 39


async def test_a_poisoned_store_costs_time_and_no_token(local_cluster):
    cluster = await local_cluster(**TORCH)
    prompt = prompt_of(640)
    clean, _, _ = await turn(cluster, prompt)

    await cluster.empty_engines()
    again, cached, computed = await turn(cluster, prompt)
    assert again == clean
    assert cached == 640 - 1
    assert computed == 1 + 39

    await cluster.empty_engines()
    assert poison(cluster.directory_of("kvstore-0")) > 100
    bad_before = (await cluster.stat()).bad_objects
    poisoned, cached, computed = await turn(cluster, prompt)
    assert poisoned == clean
    assert (await cluster.stat()).bad_objects > bad_before
    assert cached < 320
    assert computed > 320
