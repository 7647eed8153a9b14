"""Two models with room for one, run for real: requests start and end their workers."""

import json
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread

import pytest

from baton.client import Answer, BatonClientError, Client
from tests.integration.cli.conftest import Baton, Starter
from tests.support.processes.launcher import Launcher

pytestmark = [pytest.mark.xdist_group("on_demand"), pytest.mark.timeout(300)]

PROMPT = list(range(3, 83))
"""Five blocks of 16 tokens."""
COMBINED = "prefill=0,decode=0,combined=1"


@pytest.fixture(scope="module")
def turns(
    tmp_path_factory: pytest.TempPathFactory, checkpoint: Path, launcher: Launcher
) -> Iterator[Baton]:
    """Two models that take turns."""
    starter = Starter(tmp_path_factory.mktemp("turns"), checkpoint, launcher)
    run = starter(
        "up",
        *("--model", f"{checkpoint}:{COMBINED}"),
        *("--model", f"{checkpoint}:name=second,{COMBINED}"),
        *("--on-demand", "1", "--min-stay", "0"),
    )
    run.until_up()
    yield run
    starter.end()


def answer(client: Client, model: str) -> Answer:
    return client.generate(PROMPT, model=model, max_tokens=12, temperature=0.0).answer()


def workers(run: Baton) -> list[str]:
    rows = json.loads(run.call("status", "--json").stdout)
    return [row["model"] for row in rows if row["role"] == "combined"]


def test_each_model_answers_in_its_turn_and_finds_its_kv(turns: Baton) -> None:
    assert "1 of 2 models have workers at the same time" in turns.stdout
    assert workers(turns) == ["tiny"]
    listed = json.loads(turns.call("models", "ls", "--json").stdout)
    assert {one["name"]: one["state"] for one in listed} == {"second": "on_demand", "tiny": "ready"}
    turns.begin_listening()
    with Client(turns.line("gRPC"), timeout=90.0) as client:
        first = answer(client, "tiny")
        second = answer(client, "second")
        again = answer(client, "tiny")
    assert (first.usage.cached_tokens, second.usage.cached_tokens) == (0, 0)
    assert again.usage.cached_tokens > 0
    assert again.token_ids == first.token_ids
    assert turns.heard().count("Starting") == 2
    assert workers(turns) == ["tiny"]


def test_models_come_change_and_go(turns: Baton, checkpoint: Path) -> None:
    added = turns.call("models", "add", f"{checkpoint}:name=third,{COMBINED}")
    assert added.returncode == 0, added.stderr
    assert "Starting combined-2 once there is room." in added.stdout
    assert workers(turns) == ["third"]
    changed = turns.call("models", "set", "second", "decode=1", "combined=0")
    assert changed.returncode == 0, changed.stderr
    assert "the change applies from its next turn on" in changed.stdout
    removed = turns.call("models", "remove", "third")
    assert removed.returncode == 0, removed.stderr
    assert json.loads(turns.call("models", "ls", "--json").stdout)[-1]["name"] == "tiny"
    assert turns.call("models", "remove", "unknown").returncode == 2


def test_ctrl_c_in_the_middle_of_a_turn_leaves_no_process(turns: Baton) -> None:
    turns.begin_listening()

    def ask() -> None:
        with Client(turns.line("gRPC"), timeout=90.0) as client, suppress(BatonClientError):
            answer(client, "second")  # served while frontends drain, if its worker was in time

    waiting = Thread(target=ask)
    waiting.start()
    assert turns.says("Starting decode-0 of second.", 60)
    pids = turns.children()
    turns.process.send_signal(signal.SIGINT)
    assert turns.ends(60) == 0, turns.stderr
    waiting.join(60)
    assert not waiting.is_alive()
    assert turns.left(pids, 5.0) == {}
