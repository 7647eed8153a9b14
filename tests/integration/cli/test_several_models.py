"""Several models on one cluster, run for real: own pools; one store, router and frontend."""

import json
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import openai
import pytest

from baton.client import Answer, BatonClientError, Client
from tests.integration.cli.conftest import Baton, Starter
from tests.support.processes.launcher import Launcher
from tests.support.wait import eventually_blocking

pytestmark = [pytest.mark.xdist_group("several_models"), pytest.mark.timeout(300)]

PROMPT = list(range(3, 83))
"""Five blocks of 16 tokens."""
COMBINED = "prefill=0,decode=0,combined=1"


@pytest.fixture(scope="module")
def two(
    tmp_path_factory: pytest.TempPathFactory, checkpoint: Path, launcher: Launcher
) -> Iterator[Baton]:
    """Two models of one worker each."""
    starter = Starter(tmp_path_factory.mktemp("two"), checkpoint, launcher)
    run = starter(
        "up",
        *("--model", f"{checkpoint}:{COMBINED}"),
        *("--model", f"{checkpoint}:name=org/second,{COMBINED}"),
    )
    run.until_up()
    yield run
    starter.end()


def answer(client: Client, model: str) -> Answer:
    return client.generate(PROMPT, model=model, max_tokens=12, temperature=0.0).answer()


def test_each_model_answers_and_finds_only_its_own_kv(two: Baton) -> None:
    with Client(two.line("gRPC"), timeout=60.0) as client:
        first = answer(client, "tiny")
        second = answer(client, "org/second")
        again = [answer(client, name) for name in ("tiny", "org/second")]
    assert [one.token_ids for one in again] == [first.token_ids, second.token_ids]
    assert (first.usage.cached_tokens, second.usage.cached_tokens) == (0, 0)
    assert all(one.usage.cached_tokens > 0 for one in again)


def test_commands_name_both(two: Baton) -> None:
    assert "tiny (1 combined)" in two.stdout
    assert "org/second (1 combined)" in two.stdout
    served = json.loads(two.call("models", "ls", "--json").stdout)
    assert [one["name"] for one in served] == ["org/second", "tiny"]
    rows = json.loads(two.call("status", "--json").stdout)
    assert {row["id"]: row["model"] for row in rows if row["role"] == "combined"} == {
        "combined-0": "tiny",
        "combined-1": "org/second",
    }
    explained = two.call("route", "explain", "--prompt-tokens", "9", "--model", "org/second")
    assert "combined-1" in explained.stdout, explained.stderr
    assert two.call("chat", "Hello", "--model", "tiny", "--max-tokens", "3").returncode == 0
    unnamed = two.call("chat", "Hello")
    assert unnamed.returncode == 2
    assert "choose one of org/second, tiny with --model" in unnamed.stderr


def test_auto_chooses_one_of_them(two: Baton, tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text(
        'models = ["tiny", "org/second"]\n'
        '[[rules]]\nname = "code"\ncode = true\nmodels = ["org/second", "tiny"]\n'
    )
    assert two.call("auto", "set", str(rules)).returncode == 0
    code = "def f(x):\n    return x"
    with openai.OpenAI(base_url=two.line("OpenAI"), api_key="none") as client:
        eventually_blocking(lambda: any(one.id == "auto" for one in client.models.list()))
        for text, model in (("Hello", "tiny"), (code, "org/second")):
            whole = client.chat.completions.with_raw_response.create(
                model="auto", messages=[{"role": "user", "content": text}], max_tokens=3
            )
            assert (whole.headers["x-baton-model"], whole.parse().model) == (model, model)
    explained = two.call("route", "explain", "--model", "auto", "--chat", "--prompt", code)
    assert "auto: rule code matches: org/second, tiny" in explained.stdout, explained.stderr
    assert "combined-1" in explained.stdout
    assert two.call("auto", "rm").returncode == 0


def test_models_come_change_and_go_under_load(two: Baton, checkpoint: Path) -> None:
    ended = Event()
    answers: list[tuple[int, ...]] = []
    failures: list[BatonClientError] = []

    def ask_on() -> None:
        with Client(two.line("gRPC"), timeout=60.0) as client:
            while not ended.is_set():
                try:
                    answers.append(tuple(answer(client, "tiny").token_ids))
                except BatonClientError as error:
                    failures.append(error)

    load = Thread(target=ask_on)
    load.start()
    try:
        added = two.call("models", "add", f"{checkpoint}:name=third,{COMBINED},engine=sim")
        assert added.returncode == 0, added.stderr
        assert "Starting combined-2." in added.stdout
        with Client(two.line("gRPC"), timeout=60.0) as client:
            assert answer(client, "third").usage.cached_tokens == 0
        changed = two.call("models", "set", "tiny", "decode=1", "combined=0")
        assert changed.returncode == 0, changed.stderr
        assert changed.stdout.splitlines()[:2] == ["Starting decode-0.", "Draining combined-0."]
        removed = two.call("models", "remove", "third")
        assert removed.returncode == 0, removed.stderr
    finally:
        ended.set()
        load.join(60)
    assert failures == []
    assert len(set(answers)) == 1
    rows = json.loads(two.call("status", "--json").stdout)
    assert {row["id"]: row["model"] for row in rows if row["model"]} == {
        "decode-0": "tiny",
        "combined-1": "org/second",
    }
    assert two.call("models", "remove", "third").returncode == 2
