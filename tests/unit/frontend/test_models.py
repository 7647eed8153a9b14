"""Models are looked up, and listed while they can be asked."""

import random
from typing import Any

import pytest

from baton.errors import BatonError, Reason
from baton.internal.v1 import cluster_pb2
from services.frontend.placement.fallback import random_placement
from services.frontend.requests.models import Model, Registry


def card(name: str, layout: bytes = b"1", **fields: Any) -> cluster_pb2.ModelCard:
    return cluster_pb2.ModelCard(name=name, layout_id=layout, **fields)


def test_a_model_needs_a_tokenizer_and_a_worker(model: Model) -> None:
    registry = Registry({"b": model.tokenizer, "a": model.tokenizer, "idle": model.tokenizer})
    registry.refresh([card("b"), card("a"), card("elsewhere")])
    assert [one.name for one in registry.listed()] == ["a", "b"]
    for name, reason in (
        ("idle", Reason.NO_WORKER),
        ("elsewhere", Reason.MODEL_NOT_FOUND),
        ("../etc/passwd", Reason.MODEL_NOT_FOUND),
    ):
        with pytest.raises(BatonError) as caught:
            registry.get(name)
        assert caught.value.reason is reason
    registry.refresh([])
    assert not registry.listed()


def test_a_model_can_do_what_all_its_layouts_can(model: Model) -> None:
    registry = Registry({"m": model.tokenizer})
    registry.refresh(
        [
            card("m", b"1", context_tokens=10, features=["x", "y"], created_seconds=7),
            card("m", b"2", context_tokens=8, features=["y", "z"], created_seconds=9),
        ]
    )
    found = registry.get("m")
    assert (found.context_tokens, found.features, found.created_seconds) == (8, ("y",), 7)
    assert len(found.cards) == 2


def instance(name: str, role: Any, layout: bytes = b"1", **fields: Any) -> cluster_pb2.Instance:
    return cluster_pb2.Instance(id=name, role=role, model="m", layout_id=layout, **fields)


def test_chance_pairs_workers_of_one_layout() -> None:
    prefill, decode = cluster_pb2.ROLE_PREFILL, cluster_pb2.ROLE_DECODE
    members = [
        instance("p1", prefill, b"1", store_id="s"),
        instance("p2", prefill, b"2"),
        instance("d1", decode, b"1"),
        instance("d2", decode, b"2", draining=True),
        cluster_pb2.Instance(id="s", role=cluster_pb2.ROLE_KVSTORE, address="host:1"),
    ]
    view = {one.id: one for one in members}
    for seed in range(20):
        placement = random_placement(view, "m", frozenset(), random.Random(seed))
        assert placement is not None
        assert placement.prefill.instance_id == "p1"
        assert placement.decode.instance_id == "d1"
        assert [source.address for source in placement.sources] == ["host:1"]
    alone = random_placement(view, "m", {"p1"}, random.Random(0))
    assert alone is not None
    assert not alone.HasField("prefill")
    assert random_placement(view, "m", {"d1"}, random.Random(0)) is None
    assert random_placement(view, "other", frozenset(), random.Random(0)) is None
