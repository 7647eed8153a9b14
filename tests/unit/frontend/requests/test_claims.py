"""Requests of one id at one frontend: one runs, unless another takes over."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from baton.errors import BatonError, Reason
from baton.v1 import common_pb2
from services.frontend.requests.claims import Claim, Claims
from services.frontend.requests.request import ResolvedRequest
from services.frontend.requests.request_id import IdSource

RequestFor = Callable[..., ResolvedRequest]


def begin(
    claims: Claims,
    request: ResolvedRequest,
    source: IdSource = IdSource.FIELD,
    *,
    take_over: bool = False,
) -> Claim:
    claim = claims.begin(request, source, take_over)
    assert claim is not None
    return claim


def test_a_second_one_of_the_same_tenant_and_id_is_refused(request_for: RequestFor) -> None:
    claims, request = Claims(lambda: 0.0), request_for()
    first = begin(claims, request)
    for other in (request, request_for(temperature=0.3)):
        with pytest.raises(BatonError) as caught:
            begin(claims, other)
        assert caught.value.reason is Reason.ALREADY_EXISTS
    tenant = common_pb2.RequestContext(request_id="r", model="m", tenant="other")
    assert begin(claims, replace(request, context=tenant)).key != first.key
    claims.end(first, finished=False)
    begin(claims, request)


def test_an_id_of_a_header_names_one_request_of_each_content(request_for: RequestFor) -> None:
    claims, request = Claims(lambda: 0.0), request_for()
    begin(claims, request, IdSource.HEADER)
    begin(claims, replace(request, prompt=[50]), IdSource.HEADER)
    with pytest.raises(BatonError, match="runs already"):
        begin(claims, request, IdSource.HEADER)


def test_an_id_that_was_drawn_is_no_claim(request_for: RequestFor) -> None:
    claims, request = Claims(), request_for()
    assert claims.begin(request, IdSource.DRAWN, False) is None
    assert claims.begin(request, IdSource.DRAWN, False) is None


def test_one_that_takes_over_ends_the_one_before(request_for: RequestFor) -> None:
    now = 0.0
    claims, request = Claims(lambda: now), request_for()
    ended: list[BatonError] = []
    first = begin(claims, request)
    first.on_superseded = ended.append
    second = begin(claims, request, take_over=True)
    assert [error.reason for error in ended] == [Reason.ABORTED]
    claims.end(first, finished=False)
    with pytest.raises(BatonError, match="runs already"):
        begin(claims, request)
    claims.end(second, finished=True)
    with pytest.raises(BatonError, match="ended within the last 60 s"):
        begin(claims, request)
    third = begin(claims, request, take_over=True)
    third.on_superseded = ended.append
    claims.supersede(third.execution)
    claims.supersede(third.execution)
    claims.supersede(first.execution)
    assert len(ended) == 2
    claims.end(third, finished=True)
    now = 61.0
    begin(claims, request)
