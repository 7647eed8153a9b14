"""Metrics of routers, read."""

from baton.on_demand.routers import oldest_waits


def test_the_oldest_request_of_all_routers_counts() -> None:
    one = 'baton_router_queue_oldest_seconds{model="a"} 1.5\n'
    one += 'baton_router_queue_oldest_seconds{model="b"} 0.0\nbaton_other{model="b"} 9.0\n'
    other = 'baton_router_queue_oldest_seconds{model="a"} 3.5\n'
    assert oldest_waits([one, "", other]) == {"a": 3.5, "b": 0.0}
