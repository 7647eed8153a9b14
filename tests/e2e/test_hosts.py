"""Prefill and decode on hosts that share no memory: KV travels from store to store."""

from baton.rpc.channels import open_channel
from baton.v1 import kvstore_pb2, kvstore_pb2_grpc
from tests.e2e.conftest import MODEL, to_another_host
from tests.e2e.test_exactness import prompt_of


async def test_kv_reaches_a_decode_worker_on_another_host(start_cluster, tmp_path):
    cluster = await start_cluster(engine="torch", env={"BATON_ENGINE_DTYPE": "float64"})
    options = {"model": MODEL, "max_tokens": 24, "ignore_eos": True, "seed": 3}
    near = await cluster.client.generate(prompt_of(500), **options).answer()

    store = await to_another_host(cluster, tmp_path)
    far = await cluster.client.generate(prompt_of(500), **options).answer()

    assert far.token_ids == near.token_ids
    where = {step.name: step for step in far.steps}
    assert where["decode"].instance == "decode-far"
    assert where["transfer"].tokens == 500
    # The decode worker computed none of the prompt: its KV came through both stores.
    assert (await cluster.load(cluster.decodes[0])).computed_tokens == 23
    async with open_channel(store.address) as channel:
        stub = kvstore_pb2_grpc.KvStoreServiceStub(channel)
        stat = await stub.Stat(kvstore_pb2.StatRequest(), timeout=5)
    assert stat.objects >= 500 // 16
    await cluster.at_baseline()
