"""Adapters that are added, replaced and removed while workers serve."""

import asyncio

import pytest

from baton.client import NotFoundError, UnavailableError
from baton.errors import BatonError, Reason
from baton.models.adapters.register import register
from tests.integration.adapters.conftest import AdapterCluster
from tests.support.engine.model import prompt_of
from tests.support.wait import eventually


async def test_tokens_are_those_of_merged_weights(adapted: AdapterCluster) -> None:
    base = adapted.expected(1, 40)
    running = asyncio.create_task(adapted.ask(1, 40))
    sql, chat = adapted.write("sql"), adapted.write("chat", 1, rank=4, alpha=3.0)
    await adapted.add("sql", sql)
    await adapted.add("org/chat", chat)
    assert await running == base, "while adapters were loaded"
    mixed = await asyncio.gather(
        adapted.ask(2, model="sql"),
        adapted.ask(3, model="org/chat"),
        adapted.ask(4),
        adapted.ask(5, adapter="sql"),
    )
    expected = [adapted.expected(n, 8, a) for n, a in ((2, sql), (3, chat), (4, None), (5, sql))]
    assert mixed == expected
    assert expected[0] != adapted.expected(2)
    assert await adapted.ask(2, model="sql") == expected[0], "from cached KV"


async def test_more_adapters_than_slots_take_turns(adapted: AdapterCluster) -> None:
    made = {f"a{n}": adapted.write(f"a{n}", n) for n in range(4)}
    for name, path in made.items():
        await adapted.add(name, path)
    found = await asyncio.gather(*(adapted.ask(n, model=name) for n, name in enumerate(made)))
    assert found == [adapted.expected(n, 8, path) for n, path in enumerate(made.values())]
    load = await adapted.load("decode-0")
    known = {bytes.fromhex(one.digest) for one in await adapted.admin.adapters()}
    assert len(load.resident_adapters) == load.adapter_slots == 2
    assert set(load.resident_adapters) < known
    assert load.adapter_load_seconds > 0


async def test_a_stream_keeps_its_version(adapted: AdapterCluster) -> None:
    old, new = adapted.write("old"), adapted.write("new", 1)
    await adapted.add("sql", old)
    stream = adapted.client.generate(
        prompt_of(40, 1), model="sql", max_tokens=200, temperature=0, ignore_eos=True
    )
    answer = asyncio.create_task(stream.answer())
    await adapted.ask(9, model="sql")
    await adapted.add("sql", new, replace=True)
    assert await adapted.ask(1, model="sql") == adapted.expected(1, 8, new)
    assert list((await answer).token_ids) == adapted.expected(1, 200, old)


async def test_what_is_removed_ends_what_runs_and_takes_no_more(adapted: AdapterCluster) -> None:
    path = adapted.write("sql")
    await adapted.add("sql", path)
    running = asyncio.create_task(adapted.ask(1, 200, model="sql"))
    await adapted.ask(9, model="sql")
    await adapted.admin.remove("sql")

    async def gone() -> bool:
        return not any(one.adapters for one in await adapted.client.models())

    await eventually(gone)
    assert await running == adapted.expected(1, 200, path)
    with pytest.raises(NotFoundError):
        await adapted.ask(2, adapter="sql")
    decode = adapted.services["decode-0"]

    async def released() -> bool:
        shown = await decode.metrics()
        (held,) = [v for name, v in shown.items() if name.startswith("baton_worker_adapters{")]
        return held == 0

    await eventually(released)
    with pytest.raises(BatonError) as caught:
        await adapted.admin.remove("sql")
    assert caught.value.reason is Reason.NOT_FOUND
    await adapted.add("sql", path)
    assert await adapted.ask(2, model="sql") == adapted.expected(2, 8, path)


async def test_a_stream_moves_with_its_adapter(adapted: AdapterCluster) -> None:
    path = adapted.write("sql")
    await adapted.add("sql", path)
    running = asyncio.create_task(adapted.ask(1, 300, model="sql"))
    await adapted.ask(9, model="sql")
    await adapted.add_service("decode", "decode-1")
    record = await adapted.admin.get("sql")
    await adapted.served("sql", record.digest)
    await adapted.services.pop("decode-0").stop()
    assert await running == adapted.expected(1, 300, path)


async def test_files_that_changed_are_not_served(adapted: AdapterCluster) -> None:
    path = adapted.write("sql")
    await adapted.add("sql", path)
    adapted.write("sql", 1)
    with pytest.raises(UnavailableError, match="not those that were registered"):
        await adapted.ask(1, model="sql", timeout=5)
    with pytest.raises(BatonError, match="is registered") as caught:
        await register(adapted.admin, "sql", "base", str(path))
    assert caught.value.field == "adapter"
    await adapted.add("sql", path, replace=True)
    assert await adapted.ask(1, model="sql") == adapted.expected(1, 8, path)
