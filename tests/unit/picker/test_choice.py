"""Which frontend is picked, and who is rejected."""

import random
from collections.abc import Sequence
from typing import Any

import pytest

from baton.errors import BatonError, Reason
from baton.internal.v1.cluster_pb2 import Instance
from services.picker.choice.frontends import FrontendChoice
from services.picker.choice.outlooks import Outlook
from services.picker.choice.picker import EndpointPicker
from services.picker.exchange.request import PickRequest


def frontend(host: str, *, draining: bool = False, http: bool = True) -> Instance:
    address = f"{host}:8000" if http else ""
    return Instance(id=host, http_address=address, draining=draining)


def choice(*frontends: Instance) -> FrontendChoice:
    return FrontendChoice(lambda: list(frontends), random.Random(1))


class Routers:
    """Routers that all say the same."""

    def __init__(self, **outlook: Any) -> None:
        self.outlook = Outlook(**outlook)

    async def of(self, model: str) -> Outlook:
        assert model == "m"
        return self.outlook


def picker(frontends: Sequence[Instance], **outlook: Any) -> EndpointPicker:
    routers: Any = Routers(**outlook)
    return EndpointPicker(choice(*frontends), routers, ("sheddable", "batch"))


def test_the_frontend_with_the_fewest_requests_is_first() -> None:
    chosen = choice(*map(frontend, "abcd"))
    for endpoint, requests in {"a:8000": 2, "b:8000": 1, "d:8000": 3}.items():
        for _ in range(requests):
            chosen.begin(endpoint)
    assert chosen.choose() == ["c:8000", "b:8000", "a:8000"]
    chosen.begin("c:8000")
    chosen.begin("c:8000")
    assert chosen.choose()[0] == "b:8000"
    chosen.end("b:8000")
    assert chosen.active == {"a:8000": 2, "c:8000": 2, "d:8000": 3}


def test_equal_frontends_take_turns_by_chance() -> None:
    chosen = choice(*map(frontend, "abc"))
    firsts = [chosen.choose()[0] for _ in range(300)]
    assert {one for one in firsts if firsts.count(one) > 60} == {"a:8000", "b:8000", "c:8000"}


def test_draining_frontends_are_the_last_resort() -> None:
    assert choice(frontend("a", draining=True), frontend("b")).choose() == ["b:8000"]
    assert choice(frontend("a", draining=True)).choose() == ["a:8000"]
    assert choice(frontend("a", http=False)).choose() == []


@pytest.mark.parametrize(
    ("subset", "expected"),
    [
        (None, ["a:8000", "fd00::1"]),
        ({"a:8000"}, ["a:8000"]),
        ({"a"}, ["a:8000"]),
        ({"fd00::1"}, ["fd00::1"]),
        ({"a:9000"}, []),
        (set(), []),
    ],
)
def test_a_subset_restricts_the_choice(subset: Any, expected: list[str]) -> None:
    known = [frontend("a"), Instance(id="six", http_address="[fd00::1]:8000")]
    chosen = choice(*known).choose(None if subset is None else frozenset(subset))
    shown = sorted("fd00::1" if "fd00" in one else one for one in chosen)
    assert shown == expected


@pytest.mark.parametrize("model", ["", "m"])
async def test_a_request_gets_a_frontend(model: str) -> None:
    assert await picker([frontend("a")]).pick(PickRequest(model, "batch")) == ["a:8000"]


async def test_without_a_frontend_there_is_503() -> None:
    with pytest.raises(BatonError, match=r"no frontend is available$") as caught:
        await picker([]).pick(PickRequest("m"))
    assert (caught.value.reason, caught.value.http_status) == (Reason.UNAVAILABLE, 503)
    with pytest.raises(BatonError, match="that the gateway allows"):
        await picker([frontend("a")]).pick(PickRequest(subset=frozenset(["b"])))


@pytest.mark.parametrize(("seconds", "retry"), [(0.2, 1.0), (7.5, 7.5), (1e9, 60.0)])
async def test_sheddable_requests_do_not_wait(seconds: float, retry: float) -> None:
    waiting = picker([frontend("a")], waits=True, wait_seconds=seconds)
    assert await waiting.pick(PickRequest("m", "premium")) == ["a:8000"]
    assert await waiting.pick(PickRequest("", "batch")) == ["a:8000"]
    with pytest.raises(
        BatonError, match="'m' have to wait, and those with objective 'batch'"
    ) as it:
        await waiting.pick(PickRequest("m", "batch"))
    assert (it.value.http_status, it.value.retry_after) == (429, retry)


async def test_nobody_gets_into_a_full_queue() -> None:
    full = picker([frontend("a")], waits=True, full=True, wait_seconds=90.0)
    with pytest.raises(BatonError, match="the queues for model 'm' are full") as caught:
        await full.pick(PickRequest("m"))
    assert (caught.value.http_status, caught.value.retry_after) == (429, 60.0)
