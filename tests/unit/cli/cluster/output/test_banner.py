"""What `baton up` says once it serves."""

from dataclasses import replace
from pathlib import Path

import pytest

from baton.cli.cluster.local.cluster import RunningCluster
from baton.cli.cluster.local.models.local_model import ROLES, LocalModel
from baton.cli.cluster.local.output.banner import banner, context, engine, metrics
from baton.cli.cluster.local.scaling.bounds import PoolBounds
from baton.cli.cluster.local.spec import ProcessSpec, StopOrder
from baton.internal.v1 import cluster_pb2
from baton.internal.v1.cluster_pb2 import ModelCard

CARD = ModelCard(
    context_tokens=512,
    checkpoint_context_tokens=4096,
    context_limit=cluster_pb2.CONTEXT_LIMIT_KV_MEMORY,
)
MODEL = LocalModel("a-model-with-a-long-name-and-many-parts-8b-instruct", Path("/m"), 0, 20, 0)
CLUSTER = RunningCluster(
    specs=(),
    name="local",
    models=(MODEL,),
    etcd=("127.0.0.1:50015",),
    grpc="127.0.0.1:50051",
    http="127.0.0.1:8000",
    logs=Path("/run/user/1000/baton/run-16923-rujdujn6/logs"),
    metric_targets=Path("/run/user/1000/baton/run-16923-rujdujn6/metric-targets.json"),
    metrics={f"decode-{n}": f"127.0.0.1:{40000 + n}" for n in range(20)},
    cards={MODEL.name: CARD},
    start_seconds=1.0,
)


@pytest.mark.parametrize(
    ("limit", "tokens", "said"),
    [
        (cluster_pb2.CONTEXT_LIMIT_CHECKPOINT, 4096, "4096 tokens, from the checkpoint"),
        (
            cluster_pb2.CONTEXT_LIMIT_SETTING,
            100,
            "100 tokens of the checkpoint's 4096, limited by BATON_ENGINE_CONTEXT_TOKENS",
        ),
        (
            cluster_pb2.CONTEXT_LIMIT_KV_MEMORY,
            512,
            "512 tokens of the checkpoint's 4096, limited by BATON_ENGINE_KV_BYTES",
        ),
        (cluster_pb2.CONTEXT_LIMIT_UNSPECIFIED, 64, "64 tokens"),
    ],
)
def test_the_context_is_told_with_what_bounds_it(
    limit: cluster_pb2.ContextLimit.ValueType, tokens: int, said: str
) -> None:
    card = ModelCard(context_tokens=tokens, checkpoint_context_tokens=4096, context_limit=limit)
    assert context(card) == said


def test_it_is_told_where_tokens_depend_on_the_batch() -> None:
    assert engine(ModelCard()) == "", "a worker of an older release"
    assert engine(ModelCard(engine="torch", dtype="float64")) == (
        "torch, float64: the same tokens in any batch, on any worker"
    )
    card = ModelCard(engine="torch", dtype="bfloat16", inexact_reason="this CPU has AMX")
    lines = [line.plain for line in banner(replace(CLUSTER, cards={MODEL.name: card}), "", None)]
    assert "  engine   torch, bfloat16: this CPU has AMX" in lines


def test_pools_that_scale_are_told_with_their_bounds() -> None:
    ids = ("router-0", "prefill-0", "decode-0", "decode-1", "frontend-0")
    specs = tuple(
        ProcessSpec(name, role, StopOrder.WORKERS, model="m" if role in ROLES else "")
        for name, role in ((name, name.rpartition("-")[0]) for name in ids)
    )
    scaled = replace(CLUSTER, specs=specs, bounds=PoolBounds(0, 4))
    lines = [line.plain for line in banner(scaled, "", None)]
    assert "  scaling  prefill 0 to 4, decode 0 to 4, as many as the router needs" in lines
    lines = [line.plain for line in banner(replace(scaled, bounds=None), "", None)]
    assert not [line for line in lines if line.startswith("  scaling")]


def test_metrics_are_ports_on_one_host_and_urls_on_several() -> None:
    one_host = {"router-0": "127.0.0.1:1", "decode-0": "127.0.0.1:2"}
    assert metrics(one_host).replace("\N{NO-BREAK SPACE}", " ") == (
        "http://127.0.0.1:PORT/metrics for router-0 1, decode-0 2"
    )
    assert metrics(one_host | {"decode-0": "10.0.0.1:2"}) == (
        "router-0 http://127.0.0.1:1/metrics, decode-0 http://10.0.0.1:2/metrics"
    )


def test_sentences_fit_a_narrow_terminal_and_paths_are_whole() -> None:
    lines = [line.plain for line in banner(CLUSTER, "", 80)]
    facts = lines[: lines.index("Try:")]
    assert max(map(len, facts)) <= 80
    for number in range(20):
        assert any(f"decode-{number} {40000 + number}" in line for line in facts)
    for path in (CLUSTER.logs, CLUSTER.metric_targets):
        assert any(line.endswith(f" {path}") for line in facts)


def test_in_a_file_each_fact_is_one_line() -> None:
    lines = [
        line.plain.split()[0]
        for line in banner(replace(CLUSTER, cards={MODEL.name: None}), "", None)
    ]
    assert lines[:8] == [
        "Ready",
        "cluster",
        "model",
        "OpenAI",
        "gRPC",
        "etcd",
        "metrics",
        "targets",
    ]


@pytest.mark.parametrize("key", ["", "sk-baton-x"])
def test_commands_to_try_name_the_cluster(key: str) -> None:
    lines = [line.plain for line in banner(replace(CLUSTER, name="second"), key, None)]
    commands = [line for line in lines if " chat " in line or " status " in line]
    assert len(commands) == 2
    assert all(" --cluster second" in line for line in commands)
    assert any(line.strip().startswith(f"BATON_API_KEY={key}") for line in commands) == bool(key)


def test_each_of_several_models_is_told_with_its_workers() -> None:
    second = LocalModel("second", Path("/n"), 1, 2, 0)
    two = replace(CLUSTER, models=(MODEL, second), cards={MODEL.name: CARD, "second": None})
    lines = [line.plain for line in banner(two, "", None)]
    assert f"  model    {MODEL.name} (20 decode)" in lines
    assert "  model    second (1 prefill, 2 decode)" in lines
    (chat,) = (line for line in lines if " chat " in line)
    assert chat.endswith(f" --model {MODEL.name}")
