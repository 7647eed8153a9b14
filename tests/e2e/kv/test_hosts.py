"""Prefill and decode on hosts that share no memory: KV travels from store to store."""

from tests.e2e.conftest import OUTPUT_TOKENS, TORCH
from tests.e2e.kv.test_exactness import GREEDY
from tests.support.engine.model import MODEL, prompt_of


async def test_kv_reaches_a_decode_worker_on_another_host(local_cluster, reference):
    cluster = await local_cluster(far=True, **TORCH)
    computed = (await cluster.load(cluster.decodes[0])).computed_tokens
    [[expected]] = await reference("llama", [prompt_of(500)], GREEDY)
    answer = await cluster.client.generate(
        prompt_of(500), model=MODEL, max_tokens=OUTPUT_TOKENS, ignore_eos=True, **GREEDY
    ).answer()

    assert answer.token_ids == expected
    where = {step.name: step for step in answer.steps}
    assert where["prefill"].instance == "prefill-0"
    assert where["transfer"].tokens == 500
    # The decode worker computed none of the prompt: its KV came through both stores.
    computed = (await cluster.load(cluster.decodes[0])).computed_tokens - computed
    assert computed == OUTPUT_TOKENS - 1
    assert (await cluster.stat(cluster["kvstore-1"])).objects >= 500 // 16
