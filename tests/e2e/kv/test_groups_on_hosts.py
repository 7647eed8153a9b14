"""Models with windows, chunks and states on hosts that share no memory: cuts of other stores."""

from typing import Any

import pytest

from tests.e2e.kv.test_groups import OUTPUT_TOKENS, TABLES, Reference, ask, settings_of
from tests.support.engine.model import prompt_of
from tests.support.services.cluster import LocalCluster


@pytest.mark.parametrize("table", TABLES)
async def test_a_cut_in_another_hosts_store_is_found_and_fetched(
    local_cluster: Any, random_model: Any, table: str
) -> None:
    reference = Reference(random_model(), table)
    cluster: LocalCluster = await local_cluster(
        own=True,
        far=True,
        prefill=0,
        decode=1,
        combined=1,
        settings=settings_of(table, **{"placement.disaggregation": "never"}),
    )
    assert await cluster["combined-0"].stop() == 0
    prompt = prompt_of(325)
    tokens, _ = await ask(cluster, prompt)
    assert tokens == reference.tokens(prompt)
    await cluster.start("combined-0")
    assert await cluster["decode-0"].stop() == 0
    before = (await cluster.stat(cluster["kvstore-0"])).objects

    turn = [*prompt, *tokens, *prompt_of(30, 7)]
    again, cached = await ask(cluster, turn)
    assert again == reference.tokens(turn)
    assert cached == (len(prompt) + OUTPUT_TOKENS - 1) // 16 * 16
    # What came from the other host is in this one's store now.
    assert (await cluster.stat(cluster["kvstore-0"])).objects > before
    await cluster.at_baseline()


async def test_a_prompts_cut_is_handed_over_to_another_host(
    local_cluster: Any, random_model: Any
) -> None:
    table = TABLES[1]
    reference = Reference(random_model(), table)
    cluster: LocalCluster = await local_cluster(own=True, far=True, settings=settings_of(table))
    [decode] = cluster.decodes
    before = (await cluster.load(decode)).computed_tokens
    prompt = prompt_of(325)
    assert (await ask(cluster, prompt))[0] == reference.tokens(prompt)
    # With a state, a cut ends on a block: the prompt's last 5 tokens are computed again.
    computed = (await cluster.load(decode)).computed_tokens - before
    assert computed <= 325 % 16 + OUTPUT_TOKENS
    await cluster.at_baseline()
