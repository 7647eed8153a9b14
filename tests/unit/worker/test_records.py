"""What a worker registers, and the names that it must not take."""

from dataclasses import replace
from typing import Any

import pytest

from baton.engine.base import EngineInfo, Operators
from baton.engine.factory import create_engine
from baton.internal.v1 import cluster_pb2
from baton.settings import EngineSettings, StartupError
from baton.worker.adapters.known import KnownAdapters
from baton.worker.records import adapter_records, check_names, operators_record


@pytest.fixture(scope="module")
def info() -> EngineInfo:
    made = create_engine(EngineSettings(kind="sim", sim_time_scale=0)).info
    return replace(made, adapters={"sql": b"S" * 16, "chat": b"C" * 16})


def test_a_record_says_what_an_engine_computes_with(info: EngineInfo) -> None:
    assert operators_record(info) is None
    compiled = replace(info, operators=Operators(variant="x86-64-v4"))
    plain = replace(info, operators=Operators(reason="no compiler"))
    assert operators_record(compiled) == cluster_pb2.Operators(variant="x86-64-v4")
    assert operators_record(plain) == cluster_pb2.Operators(reason="no compiler")


def test_a_record_names_adapters_with_their_digests(info: EngineInfo) -> None:
    found = [
        (one.name, one.digest) for one in adapter_records(KnownAdapters(info.adapters).current)
    ]
    assert found == [("chat", b"C" * 16), ("sql", b"S" * 16)]


def other(model: str, *adapters: str, **fields: Any) -> cluster_pb2.Instance:
    named = [cluster_pb2.Adapter(name=name) for name in adapters]
    return cluster_pb2.Instance(id="d9", model=model, adapters=named, **fields)


@pytest.mark.parametrize(
    ("model", "there", "words"),
    [
        ("sql", [], ["the same name 'sql'", "ENGINE_ADAPTERS"]),
        ("m", [other("sql")], ["adapter 'sql'", "the model", "d9", "ENGINE_ADAPTERS"]),
        ("m", [other("n", "chat")], ["adapter 'chat'", "the adapter", "d9"]),
        ("m", [other("n", "m")], ["model 'm'", "the adapter", "ENGINE_MODEL_NAME"]),
    ],
)
def test_a_name_that_means_something_else_is_refused(
    info: EngineInfo, model: str, there: list[cluster_pb2.Instance], words: list[str]
) -> None:
    with pytest.raises(StartupError) as caught:
        check_names(model, info, [cluster_pb2.Instance(id="router-0"), *there])
    for word in words:
        assert word in str(caught.value)


def test_names_of_the_same_model_and_others_are_let_be(info: EngineInfo) -> None:
    check_names("m", info, [other("m", "sql", "more"), other("n", "else"), other("")])
