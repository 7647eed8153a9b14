"""Parameters that a request does not say are the model's, where it has some."""

from dataclasses import replace

import pytest

from baton.internal.v1 import cluster_pb2
from baton.sampling import SamplingParams
from baton.tenancy.directory.principal import LOCAL
from baton.worker.records import model_card
from services.frontend.models.model import ResolvedModel, ServedModel
from services.frontend.requests.request import (
    EncodedPrompt,
    GenerationRequest,
    ResolvedRequest,
    TextPrompt,
)
from services.frontend.requests.validation.model_checks import with_defaults
from services.frontend.requests.validation.resolve import resolve
from tests.support.engine.info import engine_info

RECOMMENDED = SamplingParams(
    temperature=0.5, top_k=20, min_p=0.25, repetition_penalty=1.5, max_tokens=40
)


@pytest.fixture
def recommending(model: ServedModel) -> ServedModel:
    card = cluster_pb2.ModelCard()
    card.CopyFrom(model.cards[0])
    card.features.extend(["penalties", "min_p"])
    card.sampling_defaults.CopyFrom(RECOMMENDED.to_proto())
    return ServedModel("m", model.tokenizer, (card,))


def resolved(model: ServedModel, prompt: int = 2, **said: object) -> ResolvedRequest:
    asked = GenerationRequest(
        "m", TextPrompt("x"), SamplingParams.from_options(said), frozenset(said)
    )
    found = ResolvedModel(model, "", b"")
    return resolve(with_defaults(asked, model), found, EncodedPrompt([1] * prompt), 7, LOCAL)


def test_what_is_said_goes_before_what_is_recommended(recommending: ServedModel) -> None:
    sampling = resolved(recommending).sampling
    assert SamplingParams.from_proto(sampling) == replace_(RECOMMENDED, seed=7)
    # Also where it is what nothing said would be.
    sampling = resolved(recommending, temperature=1.0, top_k=0, max_tokens=3).sampling
    asked = SamplingParams.from_proto(sampling)
    assert (asked.temperature, asked.top_k, asked.min_p, asked.max_tokens) == (1.0, 0, 0.25, 3)


def test_a_recommended_length_is_what_the_context_has_room_for(recommending: ServedModel) -> None:
    assert resolved(recommending, prompt=90).sampling.max_tokens == 10


def test_nothing_is_recommended_that_a_worker_does_not_support(recommending: ServedModel) -> None:
    other = cluster_pb2.ModelCard()
    other.CopyFrom(recommending.cards[0])
    other.features.remove("penalties")
    both = replace(recommending, cards=(*recommending.cards, other))
    assert set(both.sampling_defaults) == {"temperature", "top_k", "min_p", "max_tokens"}
    card = model_card(engine_info(features=("min_p",)), "m", RECOMMENDED)
    assert {field.name for field, _ in card.sampling_defaults.ListFields()} == set(
        both.sampling_defaults
    )


def replace_(params: SamplingParams, **changes: object) -> SamplingParams:
    return SamplingParams.from_options(
        {name: getattr(params, name) for name in params.__struct_fields__} | changes
    )
