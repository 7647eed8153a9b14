"""Prefill and decode on hosts that share no memory: KV travels from store to store."""

from baton.internal.v1 import kvstore_pb2, kvstore_pb2_grpc
from baton.rpc.channels import open_channel
from tests.e2e.conftest import MODEL, OUTPUT_TOKENS
from tests.e2e.test_exactness import GREEDY, prompt_of


async def test_kv_reaches_a_decode_worker_on_another_host(start_cluster, reference):
    cluster = await start_cluster(engine="torch", env={"BATON_ENGINE_DTYPE": "float64"}, far=True)
    computed = (await cluster.load(cluster.decodes[0])).computed_tokens
    [[expected]] = reference("llama", [prompt_of(500)], GREEDY)
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
    async with open_channel(cluster.far_kvstore.address) as channel:
        stub = kvstore_pb2_grpc.KvStoreServiceStub(channel)
        stat = await stub.Stat(kvstore_pb2.StatRequest(), timeout=5)
    assert stat.objects >= 500 // 16
    await cluster.at_baseline()
