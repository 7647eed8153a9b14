"""A router's recording, replayed, gives every placement that its frontends were given."""

from pathlib import Path

from services.router.recording.files import read
from services.router.recording.records import AdmissionAdvanced, Record
from simulator.replay import replay
from tests.support.wait import eventually

CHAIN = [i.to_bytes(16, "little") for i in range(64)]


def recorded_in(path: Path) -> list[Record]:
    """Return the records of the only recording in a directory."""
    (directory,) = path.iterdir()
    assert directory.name.startswith("router-0-")
    return list(read(directory))


async def test_a_run_is_recorded_and_replayed(world, tmp_path: Path) -> None:
    await world.store("store-a")
    prefill = await world.prefill("p1")
    decode = await world.decode("d1")
    await decode.load(running=40, decode_step_seconds=0.01)
    router = await world.router({"recording.path": tmp_path, "queue.gate_seconds": 20})
    frontend = world.frontend(router)
    world.members["store-a"].hold(CHAIN)

    async def cached() -> bool:
        return (await frontend.place(CHAIN)).prediction.cached_tokens == 1024

    await eventually(cached, 10)
    kept = [await frontend.place(CHAIN[:count], keep=True) for count in (0, 10, 64)]
    world.members["store-a"].evict(CHAIN[32:])
    refused = await frontend.ask(excluded_instances=["d1", "p1"])
    assert refused.HasField("failed")
    await frontend.return_tickets([one.ticket for one in kept])
    for worker in (prefill, decode):
        await worker.load(pending_prompt_tokens=50_000)

    async def queued() -> bool:
        answer = await frontend.ask(CHAIN)
        if answer.HasField("placement"):
            await frontend.return_tickets([answer.placement.ticket])
        return answer.HasField("queued")

    await eventually(queued, 10)
    for worker in (prefill, decode):
        await worker.load(pending_prompt_tokens=0)
    placed = await frontend.read()
    await frontend.close()
    await router.stop(drain=False)

    records = recorded_in(tmp_path)
    answers = [one for record in records for one in getattr(record, "answers", [])]
    known = {one.ticket: one.decode for one in answers}
    assert {one.ticket: known.get(one.ticket) for one in kept} == dict.fromkeys(
        (one.ticket for one in kept), "d1"
    )
    assert any(one.refused == "NO_WORKER" for one in answers)
    late = [one for one in records if isinstance(one, AdmissionAdvanced) and one.answers]
    assert [one.answers[0].ticket for one in late] == [placed.placement.ticket]
    replayed = replay(records)
    assert (replayed.difference, replayed.answers) == (None, len(answers))
