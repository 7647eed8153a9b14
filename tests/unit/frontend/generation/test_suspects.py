"""Requests that workers were lost of: what they are known by, and for how long."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from baton.errors import BatonError, Reason
from baton.v1 import common_pb2
from services.frontend.generation.assigned import suspects as module
from services.frontend.generation.assigned.suspects import REFUSE_SECONDS, Suspects
from services.frontend.requests.digest import digest_of
from services.frontend.requests.request import ResolvedRequest

RequestFor = Callable[..., ResolvedRequest]


def refused(suspects: Suspects, request: ResolvedRequest) -> bool:
    try:
        suspects.check(request)
    except BatonError as error:
        assert error.reason is Reason.POISON_REQUEST
        assert (error.retry_after, error.http_status) == (None, 400)
        return True
    return False


def test_a_request_is_known_by_its_tenant_prompt_and_parameters(request_for: RequestFor) -> None:
    request = request_for(temperature=0.5)
    tenant = common_pb2.RequestContext(tenant="other", model="m")
    adapter = common_pb2.RequestContext(adapter="a", model="m")
    others = [
        request_for(temperature=0.6),
        request_for("stop", temperature=0.5),
        request_for(temperature=0.5, n=2),
        replace(request, prompt=[40, 42]),
        replace(request, prompt=[40, 41, 0]),
        replace(request, context=tenant),
        replace(request, context=adapter),
    ]
    digests = {digest_of(one) for one in others}
    assert len(digests) == len(others)
    assert digest_of(request) not in digests
    same = common_pb2.RequestContext(request_id="another", model="m")
    again = replace(request_for(temperature=0.5, seed=7), context=same, output_so_far=(1,))
    assert digest_of(request) == digest_of(again)


def test_what_was_lost_with_a_worker_is_suspect_until_it_is_cleared(
    request_for: RequestFor,
) -> None:
    suspects = Suspects()
    request, other = request_for(), request_for(temperature=0.1)
    assert not suspects.check(request)
    suspects.suspect(request)
    assert suspects.check(request)
    assert not suspects.check(other)
    suspects.clear(request)
    suspects.clear(other)
    assert not suspects.check(request)


def test_what_is_refused_is_told_and_can_be_lifted(request_for: RequestFor) -> None:
    mine, theirs = Suspects(), Suspects()
    mine.on_refused = theirs.add_refused
    request = request_for()
    for one in (mine, theirs):
        one.suspect(request)
    mine.refuse(request, "d0")
    assert refused(mine, request)
    assert refused(theirs, request)
    mine.lift(digest_of(request))
    assert not refused(mine, request)
    assert not mine.check(request), "it is not suspect either"


def test_all_of_it_is_forgotten_after_ten_minutes(request_for: RequestFor) -> None:
    now = 0.0
    suspects = Suspects(lambda: now)
    first, second = request_for(), request_for(temperature=0.1)
    suspects.suspect(first)
    suspects.refuse(second, "d0")
    now = REFUSE_SECONDS - 1.0
    suspects.suspect(first)
    assert refused(suspects, second)
    now += 2.0
    assert not refused(suspects, second)
    assert suspects.check(first), "it was suspected again"
    now += REFUSE_SECONDS
    assert not suspects.check(first)


def test_what_is_remembered_is_bounded(
    request_for: RequestFor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_REMEMBERED", 3)
    suspects = Suspects()
    requests = [replace(request_for(), prompt=[number]) for number in range(4)]
    for request in requests:
        suspects.refuse(request, "d0")
    assert [refused(suspects, request) for request in requests] == [False, True, True, True]
