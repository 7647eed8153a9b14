"""Models are looked up, and listed while they can be asked."""

import random
from typing import Any

import pytest

from baton.errors import BatonError, Reason
from baton.internal.v1 import cluster_pb2
from services.frontend.models.registry import Model, Registry
from services.frontend.placement.fallback import random_placement

A, B = b"A" * 32, b"B" * 32
"""Digests of two tokenizers."""


def card(
    name: str, layout: bytes = b"1", digest: bytes = A, **fields: Any
) -> cluster_pb2.ModelCard:
    return cluster_pb2.ModelCard(name=name, layout_id=layout, tokenizer_digest=digest, **fields)


def reason_of(registry: Registry, name: str) -> Reason:
    with pytest.raises(BatonError) as caught:
        registry.get(name)
    assert (caught.value.retry_after is not None) == (
        caught.value.reason in (Reason.NO_WORKER, Reason.MODEL_LOADING)
    )
    return caught.value.reason


def test_a_model_needs_a_tokenizer_and_a_worker(model: Model) -> None:
    registry = Registry()
    assert reason_of(registry, "a") is Reason.NO_WORKER, "nothing is known yet"
    registry.set_cards([card("b"), card("a"), card("other", digest=B, tokenizer_bytes=7)])
    assert not registry.opened
    assert reason_of(registry, "a") is Reason.MODEL_LOADING
    assert registry.missing() == {A, B}
    assert registry.wanted()[B] == 7
    registry.add_tokenizer(A, model.tokenizer)
    assert registry.opened
    assert [one.name for one in registry.listed()] == ["a", "b"]
    assert registry.get("a").tokenizer is registry.get("b").tokenizer
    assert reason_of(registry, "other") is Reason.MODEL_LOADING
    for name in ("nobody", "../etc/passwd"):
        assert reason_of(registry, name) is Reason.MODEL_NOT_FOUND
    registry.set_cards([])
    assert not registry.listed()
    assert reason_of(registry, "a") is Reason.NO_WORKER


def test_a_tokenizer_that_no_card_names_is_forgotten(model: Model) -> None:
    registry = Registry()
    registry.set_cards([card("a"), card("b")])
    registry.add_tokenizer(A, model.tokenizer)
    registry.set_cards([card("b")])
    assert not registry.missing()
    registry.set_cards([])
    registry.set_cards([card("b")])
    assert registry.missing() == {A}


def test_a_refused_tokenizer_is_not_asked_for_again(model: Model) -> None:
    registry = Registry()
    registry.set_cards([card("a"), card("none", digest=b"")])
    registry.refuse_tokenizer(A, "it is damaged")
    assert not registry.missing()
    assert reason_of(registry, "a") is Reason.UNAVAILABLE
    assert reason_of(registry, "none") is Reason.UNAVAILABLE
    registry.set_cards([card("a"), card("a", digest=B)])
    assert reason_of(registry, "a") is Reason.MODEL_LOADING
    registry.add_tokenizer(B, model.tokenizer)
    assert registry.get("a").tokenizer_digest == B


def test_a_model_with_two_tokenizers_keeps_to_that_of_most_workers(model: Model) -> None:
    registry = Registry()
    registry.set_cards(
        [card("m", b"1", A, eos_token_ids=[1]), card("m", b"1", B, eos_token_ids=[2])]
    )
    registry.add_tokenizer(A, model.tokenizer)

    def move(number: int, digest: bytes, *, alive: bool = True, draining: bool = False) -> bytes:
        worker = instance(f"d{number}", cluster_pb2.ROLE_DECODE, tokenizer_digest=digest)
        worker.draining = draining
        registry.follow(worker, alive=alive)
        chosen = registry.get("m")
        assert {one.tokenizer_digest for one in chosen.cards} == {chosen.tokenizer_digest}
        assert chosen.eos_token_ids == ({1} if chosen.tokenizer_digest == A else {2})
        return chosen.tokenizer_digest

    assert move(1, A) == A
    assert move(2, B) == A
    assert move(3, B) == A, "B is not loaded"
    registry.add_tokenizer(B, model.tokenizer)
    assert registry.get("m").tokenizer_digest == B
    assert move(4, A) == B, "on a tie, the one in use"
    assert move(2, B, draining=True) == A
    assert move(2, B) == A
    assert move(1, A, alive=False) == B


def test_a_model_can_do_what_all_its_layouts_can(model: Model) -> None:
    registry = Registry()
    registry.set_cards(
        [
            card("m", b"1", context_tokens=10, features=["x", "y"], created_seconds=7),
            card("m", b"2", context_tokens=8, features=["y", "z"], created_seconds=9),
        ]
    )
    registry.add_tokenizer(A, model.tokenizer)
    found = registry.get("m")
    assert (found.context_tokens, found.features, found.created_seconds) == (8, ("y",), 7)
    assert len(found.cards) == 2


def instance(name: str, role: Any, layout: bytes = b"1", **fields: Any) -> cluster_pb2.Instance:
    return cluster_pb2.Instance(id=name, role=role, model="m", layout_id=layout, **fields)


def test_chance_pairs_workers_of_one_layout_and_tokenizer(model: Model) -> None:
    prefill, decode = cluster_pb2.ROLE_PREFILL, cluster_pb2.ROLE_DECODE
    members = [
        instance("p1", prefill, b"1", store_id="s"),
        instance("p2", prefill, b"2"),
        instance("d1", decode, b"1"),
        instance("d2", decode, b"2", draining=True),
        instance("d3", decode, b"1", tokenizer_digest=A),
        cluster_pb2.Instance(id="s", role=cluster_pb2.ROLE_KVSTORE, address="host:1"),
    ]
    view = {one.id: one for one in members}
    for seed in range(20):
        placement = random_placement(view, model, frozenset(), random.Random(seed))
        assert placement is not None
        assert placement.prefill.instance_id == "p1"
        assert placement.decode.instance_id == "d1"
        assert [source.address for source in placement.sources] == ["host:1"]
    alone = random_placement(view, model, {"p1"}, random.Random(0))
    assert alone is not None
    assert not alone.HasField("prefill")
    assert random_placement(view, model, {"d1"}, random.Random(0)) is None
    other = Model("other", model.tokenizer, model.cards)
    assert random_placement(view, other, frozenset(), random.Random(0)) is None
