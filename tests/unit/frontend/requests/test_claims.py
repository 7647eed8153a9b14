"""Requests of one execution id at one frontend: one runs, unless another takes over."""

import pytest

from baton.errors import BatonError, Reason
from services.frontend.requests.claims import Claims, RequestClaim
from services.frontend.requests.request import GenerationRequest, TextPrompt


def asking(execution_id: str = "e", **fields: object) -> GenerationRequest:
    return GenerationRequest("m", TextPrompt("x"), execution_id=execution_id, **fields)  # type: ignore[arg-type]


def begin(claims: Claims, tenant: str = "t", **fields: object) -> RequestClaim:
    claim = claims.begin(asking(**fields), tenant)
    assert claim is not None
    return claim


def test_a_second_one_of_the_same_tenant_and_id_is_refused() -> None:
    claims = Claims(lambda: 0.0)
    first = begin(claims)
    for _ in range(2):
        with pytest.raises(BatonError) as caught:
            begin(claims)
        assert caught.value.reason is Reason.ALREADY_EXISTS
    others = [begin(claims, "other"), begin(claims, prompt_index=1)]
    assert len({claim.key for claim in (first, *others)}) == 3
    claims.end(first, finished=False)
    begin(claims)


def test_a_request_that_names_no_execution_claims_none() -> None:
    claims = Claims()
    for _ in range(2):
        assert claims.begin(asking("", request_id="r"), "t") is None


def test_one_that_takes_over_ends_the_one_before() -> None:
    now = 0.0
    claims = Claims(lambda: now)
    ended: list[BatonError] = []
    first = begin(claims)
    first.on_superseded = ended.append
    second = begin(claims, take_over=True)
    assert [error.reason for error in ended] == [Reason.ABORTED]
    claims.end(first, finished=False)
    with pytest.raises(BatonError, match="is already running"):
        begin(claims)
    claims.end(second, finished=True)
    with pytest.raises(BatonError, match="ended within the last 60 s"):
        begin(claims)
    third = begin(claims, take_over=True)
    third.on_superseded = ended.append
    claims.supersede(third.execution)
    claims.supersede(third.execution)
    claims.supersede(first.execution)
    assert len(ended) == 2
    claims.end(third, finished=True)
    now = 61.0
    begin(claims)
