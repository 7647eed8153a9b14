"""Models are looked up, and listed while they can be asked."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from baton.errors import BatonError, Reason
from baton.internal.v1 import cluster_pb2
from baton.v1 import common_pb2
from services.frontend.models.model import ServedModel
from services.frontend.models.registry import Registry
from services.frontend.placement.fallback import random_placement
from services.frontend.requests.request import ResolvedRequest

A, B = b"A" * 32, b"B" * 32
"""Digests of two tokenizers."""


def anyone(_: cluster_pb2.Instance) -> bool:
    return True


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


def test_a_model_needs_a_tokenizer_and_a_worker(model: ServedModel) -> None:
    registry = Registry(lambda _: True)
    assert reason_of(registry, "a") is Reason.NO_WORKER, "nothing is known yet"
    registry.set_cards([card("b"), card("a"), card("other", digest=B, tokenizer_bytes=7)])
    assert reason_of(registry, "a") is Reason.MODEL_LOADING
    assert registry.missing() == {A, B}
    assert registry.wanted()[B] == 7
    registry.add_tokenizer(A, model.tokenizer)
    assert registry.get("a").model.tokenizer is registry.get("b").model.tokenizer
    assert reason_of(registry, "other") is Reason.MODEL_LOADING
    for name in ("nobody", "../etc/passwd"):
        assert reason_of(registry, name) is Reason.MODEL_NOT_FOUND
    registry.set_cards([])
    assert reason_of(registry, "a") is Reason.NO_WORKER


def test_a_model_is_listed_once_a_worker_that_decodes_it_is_connected(model: ServedModel) -> None:
    connected: set[str] = set()
    registry = Registry(lambda worker: worker.id in connected)

    def listed() -> list[str]:
        registry.update_listed()
        return [one.name for one in registry.listed()]

    worker = instance("d1", cluster_pb2.ROLE_DECODE, tokenizer_digest=A)
    worker.adapters.extend(adapters(sql=b"1"))
    registry.set_cards([card("m"), card("n")])
    registry.follow(instance("p1", cluster_pb2.ROLE_PREFILL, tokenizer_digest=A), alive=True)
    registry.follow(worker, alive=True)
    connected |= {"p1", "d1"}
    assert not registry.can_serve("m"), "its tokenizer is not loaded"
    registry.add_tokenizer(A, model.tokenizer)
    assert [name for name in ("m", "n", "sql", "p1", "") if registry.can_serve(name)] == [
        "m",
        "sql",
    ]
    connected.clear()
    assert not registry.can_serve("m")
    assert not registry.can_serve("sql")
    assert not listed()
    connected.add("d1")
    assert listed() == ["m"]
    connected.clear()
    assert listed() == ["m"], "requests wait for the worker"
    registry.set_cards([card("n")])
    assert not listed()


def test_a_tokenizer_that_no_card_names_is_forgotten(model: ServedModel) -> None:
    registry = Registry(lambda _: True)
    registry.set_cards([card("a"), card("b")])
    registry.add_tokenizer(A, model.tokenizer)
    registry.set_cards([card("b")])
    assert not registry.missing()
    registry.set_cards([])
    registry.set_cards([card("b")])
    assert registry.missing() == {A}


def test_a_refused_tokenizer_is_not_asked_for_again(model: ServedModel) -> None:
    registry = Registry(lambda _: True)
    registry.set_cards([card("a"), card("none", digest=b"")])
    registry.refuse_tokenizer(A, "it is damaged")
    assert not registry.missing()
    assert reason_of(registry, "a") is Reason.UNAVAILABLE
    assert reason_of(registry, "none") is Reason.UNAVAILABLE
    registry.set_cards([card("a"), card("a", digest=B)])
    assert reason_of(registry, "a") is Reason.MODEL_LOADING
    registry.add_tokenizer(B, model.tokenizer)
    assert registry.get("a").model.tokenizer_digest == B


def test_a_model_with_two_tokenizers_keeps_to_that_of_most_workers(model: ServedModel) -> None:
    registry = Registry(lambda _: True)
    registry.set_cards(
        [card("m", b"1", A, eos_token_ids=[1]), card("m", b"1", B, eos_token_ids=[2])]
    )
    registry.add_tokenizer(A, model.tokenizer)

    def move(number: int, digest: bytes, *, alive: bool = True, draining: bool = False) -> bytes:
        worker = instance(f"d{number}", cluster_pb2.ROLE_DECODE, tokenizer_digest=digest)
        worker.draining = draining
        registry.follow(worker, alive=alive)
        chosen = registry.get("m").model
        assert {one.tokenizer_digest for one in chosen.cards} == {chosen.tokenizer_digest}
        assert chosen.eos_token_ids == ({1} if chosen.tokenizer_digest == A else {2})
        return chosen.tokenizer_digest

    assert move(1, A) == A
    assert move(2, B) == A
    assert move(3, B) == A, "B is not loaded"
    registry.add_tokenizer(B, model.tokenizer)
    assert registry.get("m").model.tokenizer_digest == B
    assert move(4, A) == B, "on a tie, the one in use"
    assert move(2, B, draining=True) == A
    assert move(2, B) == A
    assert move(1, A, alive=False) == B


def test_a_model_can_do_what_all_its_layouts_can(model: ServedModel) -> None:
    registry = Registry(lambda _: True)
    registry.set_cards(
        [
            card("m", b"1", context_tokens=10, features=["x", "y"], created_seconds=7),
            card("m", b"2", context_tokens=8, features=["y", "z"], created_seconds=9),
        ]
    )
    registry.add_tokenizer(A, model.tokenizer)
    found = registry.get("m").model
    assert (found.context_tokens, found.features, found.created_seconds) == (8, ("y",), 7)
    assert len(found.cards) == 2


def instance(name: str, role: Any, layout: bytes = b"1", **fields: Any) -> cluster_pb2.Instance:
    return cluster_pb2.Instance(id=name, role=role, model="m", layout_id=layout, **fields)


def adapters(**digests: bytes) -> list[cluster_pb2.Adapter]:
    return [cluster_pb2.Adapter(name=name, digest=digest) for name, digest in digests.items()]


def test_an_adapter_is_found_by_its_own_name_and_beside_its_model(model: ServedModel) -> None:
    registry = Registry(lambda _: True)
    registry.set_cards([card("m"), card("n")])
    registry.add_tokenizer(A, model.tokenizer)
    worker = instance("d1", cluster_pb2.ROLE_DECODE, tokenizer_digest=A)
    worker.adapters.extend(adapters(sql=b"1", chat=b"2", n=b"3"))
    registry.follow(worker, alive=True)
    found = registry.get("m", "sql")
    assert (found.model.name, found.adapter, found.adapter_digest) == ("m", "sql", b"1")
    assert registry.get("sql") == found
    assert registry.get("m")[1:] == ("", b"")
    assert registry.get("n").model.name == "n", "a model's name is never an adapter's"
    assert sorted(registry.get("m").model.adapters) == ["chat", "n", "sql"]
    with pytest.raises(BatonError) as caught:
        registry.get("m", "sqk")
    assert (caught.value.reason, caught.value.field) == (Reason.MODEL_NOT_FOUND, "adapter")
    assert "'sqk'" in caught.value.message
    assert "chat, n, sql" in caught.value.message
    with pytest.raises(BatonError, match="it has no adapters"):
        registry.get("n", "sql")
    with pytest.raises(BatonError) as caught:
        registry.get("no", "sql")
    assert (caught.value.reason, caught.value.field) == (Reason.MODEL_NOT_FOUND, "model")
    registry.follow(worker, alive=False)
    for asked in (("m", "sql"), ("sql",)):
        with pytest.raises(BatonError) as caught:
            registry.get(*asked)
        assert caught.value.reason is Reason.NO_WORKER
        assert caught.value.retry_after is not None


def test_an_adapter_of_two_models_is_asked_for_with_its_model(model: ServedModel) -> None:
    registry = Registry(lambda _: True)
    registry.set_cards([card("m"), card("n")])
    registry.add_tokenizer(A, model.tokenizer)
    for name in ("m", "n"):
        worker = instance(f"d-{name}", cluster_pb2.ROLE_DECODE, tokenizer_digest=A)
        worker.model = name
        worker.adapters.extend(adapters(sql=name.encode()))
        registry.follow(worker, alive=True)
    with pytest.raises(BatonError) as caught:
        registry.get("sql")
    assert (caught.value.reason, caught.value.field) == (Reason.INVALID_FIELD, "model")
    assert "m, n" in caught.value.message
    assert registry.get("n", "sql").adapter_digest == b"n"


def test_an_adapter_with_two_digests_keeps_to_that_of_most_workers(model: ServedModel) -> None:
    registry = Registry(lambda _: True)
    registry.set_cards([card("m")])
    registry.add_tokenizer(A, model.tokenizer)

    def move(number: int, digest: bytes, *, alive: bool = True, **fields: Any) -> bytes:
        worker = instance(f"d{number}", cluster_pb2.ROLE_DECODE, tokenizer_digest=A, **fields)
        worker.adapters.extend(adapters(sql=digest))
        registry.follow(worker, alive=alive)
        return registry.get("m", "sql").adapter_digest

    assert move(1, b"old") == b"old"
    assert move(2, b"new") == b"old", "on a tie, the one in use"
    assert move(3, b"new") == b"new"
    assert move(4, b"old") == b"new"
    assert move(3, b"new", draining=True) == b"old"
    assert move(1, b"old", alive=False) == b"old"
    assert move(4, b"old", alive=False) == b"new"


def test_a_model_is_exact_while_no_worker_that_decodes_is_not(model: ServedModel) -> None:
    registry = Registry(lambda _: True)
    registry.set_cards([card("m")])
    registry.add_tokenizer(A, model.tokenizer)

    def exact_with(name: str, role: Any, *, alive: bool = True, exact: bool = False) -> bool:
        worker = instance(name, role, tokenizer_digest=A, inexact_continuation=not exact)
        registry.follow(worker, alive=alive)
        return registry.get("m").model.exact_continuation

    decode = cluster_pb2.ROLE_DECODE
    assert exact_with("d1", decode, exact=True)
    assert exact_with("p1", cluster_pb2.ROLE_PREFILL)
    assert not exact_with("d2", decode)
    assert not exact_with("d3", decode, exact=True)
    assert exact_with("d2", decode, alive=False)


def test_chance_pairs_workers_of_one_layout_and_tokenizer(
    model: ServedModel, request_for: Callable[..., ResolvedRequest]
) -> None:
    prefill, decode = cluster_pb2.ROLE_PREFILL, cluster_pb2.ROLE_DECODE
    members = [
        instance("p1", prefill, b"1", store_id="s"),
        instance("p2", prefill, b"2"),
        instance("d1", decode, b"1", adapters=adapters(sql=b"1")),
        instance("d2", decode, b"2", draining=True),
        instance("d3", decode, b"1", tokenizer_digest=A),
        cluster_pb2.Instance(id="s", role=cluster_pb2.ROLE_KVSTORE, address="host:1"),
    ]
    view = {one.id: one for one in members}
    request = request_for()
    for seed in range(20):
        placement = random_placement(view, request, anyone, random.Random(seed))
        assert placement is not None
        assert placement.prefill.instance_id == "p1"
        assert placement.decode.instance_id == "d1"
        assert [source.address for source in placement.sources] == ["host:1"]
    alone = random_placement(view, request, lambda one: one.id != "p1", random.Random(0))
    assert alone is not None
    assert not alone.HasField("prefill")
    assert random_placement(view, request, lambda one: one.id != "d1", random.Random(0)) is None
    other = replace(request, model=ServedModel("other", model.tokenizer, model.cards))
    assert random_placement(view, other, anyone, random.Random(0)) is None
    for digest, placed in ((b"1", True), (b"2", False)):
        context = common_pb2.RequestContext(model="m", adapter="sql")
        adapted = replace(request, context=context, adapter_digest=digest)
        placement = random_placement(view, adapted, anyone, random.Random(0))
        assert (placement is not None) is placed
        if placement is not None:  # p1 does not have it
            assert not placement.HasField("prefill")


def test_a_model_says_what_computes_it_and_whether_tokens_are_the_same(model: ServedModel) -> None:
    def served(*cards: cluster_pb2.ModelCard) -> ServedModel:
        return ServedModel("m", model.tokenizer, cards)

    exact = card("m", engine="torch", dtype="float64")
    rounded = card("m", b"2", engine="vllm", dtype="bfloat16", inexact_reason="it has AMX")
    one = served(exact)
    assert (one.engine, one.dtype, one.deterministic, one.inexact_reason) == (
        *("torch", "float64"),
        *(True, ""),
    )
    both = served(exact, rounded)
    assert (both.engine, both.dtype) == ("torch,vllm", "bfloat16,float64")
    assert (both.deterministic, both.inexact_reason) == (False, "it has AMX")
    two = served(exact, card("m", b"2", engine="torch", dtype="bfloat16"))
    assert (two.deterministic, two.inexact_reason) == (
        False,
        "its workers have 2 different engine layouts",
    )
    assert served(card("m")).deterministic is None, "a worker of an older release"


def test_a_kept_model_is_listed_without_workers_until_it_is_not_kept(model: ServedModel) -> None:
    registry = Registry(lambda _: True)
    registry.set_cards([card("m"), card("n")], ["m"])
    registry.add_tokenizer(A, model.tokenizer)
    registry.update_listed()
    assert [one.name for one in registry.listed()] == ["m"]
    assert registry.get("m").model.name == "m"
    assert registry.is_starting("m")
    assert not registry.is_starting("n")
    assert not registry.can_serve("m")
    worker = cluster_pb2.Instance(
        id="w", model="m", tokenizer_digest=A, role=cluster_pb2.ROLE_DECODE
    )
    registry.follow(worker, alive=True)
    assert not registry.is_starting("m")
    registry.follow(worker, alive=False)
    registry.set_cards([])
    assert reason_of(registry, "m") is Reason.NO_WORKER
