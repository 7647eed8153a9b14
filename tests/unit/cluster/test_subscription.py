"""What is delivered to a reader of changes, and how much is kept for a slow one."""

import asyncio

import pytest

from baton.cluster.members.membership import MembershipChange
from baton.cluster.members.subscription import ChangeSubscription
from baton.internal.v1.cluster_pb2 import Instance
from tests.support.clock import within


class View:
    def __init__(self) -> None:
        self.alive: dict[str, Instance] = {}
        self.subscription = ChangeSubscription(self.alive, models=False)

    def up(self, instance_id: str, incarnation: str = "i-1", **fields) -> None:
        self.alive[instance_id] = Instance(id=instance_id, incarnation=incarnation, **fields)
        self.subscription.notify(MembershipChange("up", self.alive[instance_id]))

    def down(self, instance_id: str) -> None:
        self.subscription.notify(MembershipChange("down", self.alive.pop(instance_id)))

    async def read(self) -> list[tuple[str, str, str]]:
        async with within(1):
            changes = await self.subscription.read()
        return [(c.kind, c.instance.id, c.instance.incarnation) for c in changes]


@pytest.fixture
async def view():
    view = View()
    assert await view.read() == []
    return view


async def test_late_reader_gets_those_alive():
    subscription = ChangeSubscription({"a": Instance(id="a"), "b": Instance(id="b")}, models=True)
    changes = await subscription.read()
    assert [(c.kind, c.instance.id) for c in changes] == [("models", ""), ("up", "a"), ("up", "b")]


async def test_changes_come_in_the_order_of_their_first_mention(view):
    view.up("b")
    view.up("a")
    assert await view.read() == [("up", "b", "i-1"), ("up", "a", "i-1")]
    view.down("b")
    assert await view.read() == [("down", "b", "i-1")]


async def test_restart_that_was_not_read_is_down_and_up(view):
    view.up("a")
    await view.read()
    view.down("a")
    view.up("a", "i-2")
    assert await view.read() == [("down", "a", "i-1"), ("up", "a", "i-2")]


async def test_instance_that_came_and_went_unread_is_never_mentioned(view):
    view.up("a")
    view.down("a")
    view.up("b")
    assert await view.read() == [("up", "b", "i-1")]


async def test_many_updates_become_one(view):
    view.up("a")
    await view.read()
    for number in range(1000):
        view.up("a", store_id=str(number))
    assert await view.read() == [("update", "a", "i-1")]


async def test_models_are_delivered_before_the_instances_that_serve_them(view):
    view.up("a")
    view.subscription.notify(MembershipChange("models", Instance()))
    assert [kind for kind, _, _ in await view.read()] == ["models", "up"]


async def test_nothing_new_waits(view):
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await view.subscription.read()
