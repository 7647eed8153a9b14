"""The environment stays as it is while a NIXL agent is created."""

import os
import threading

import pytest

from services.kvstore.peers.transports.nixl.agent import NixlAgent
from tests.support.environ import change_only_between_agents


@pytest.mark.parametrize("change", ["add", "remove"])
def test_a_change_waits_for_the_agent(monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def create(_agent: NixlAgent) -> None:
        begun.set()
        go_on.wait()

    monkeypatch.setattr(NixlAgent, "__init__", create)
    change_only_between_agents(monkeypatch)
    os.environ["BATON_TEST_CHANGED"] = "before"
    calls = {
        "add": lambda: os.environ.update(BATON_TEST_CHANGED="after"),
        "remove": lambda: os.environ.pop("BATON_TEST_CHANGED"),
    }
    agent = threading.Thread(target=NixlAgent)
    other = threading.Thread(target=calls[change])
    try:
        agent.start()
        assert begun.wait(60)
        other.start()
        other.join(0.1)
        assert other.is_alive()
    finally:
        go_on.set()
        agent.join()
        other.join()
        after = os.environ.pop("BATON_TEST_CHANGED", None)
    assert after == ("after" if change == "add" else None)
