"""A router's recording, replayed, gives every placement that its frontends were given."""

from pathlib import Path

from services.router.recording.files import read
from services.router.recording.records import Record, RequestPlaced
from services.router.simulation.replay import replay
from tests.support.wait import eventually

CHAIN = [i.to_bytes(16, "little") for i in range(64)]


def recorded_in(path: Path) -> list[Record]:
    """Return the records of the only recording in a directory."""
    (directory,) = path.iterdir()
    assert directory.name.startswith("router-0-")
    return list(read(directory))


async def test_a_run_is_recorded_and_replayed(world, tmp_path: Path) -> None:
    await world.store("store-a")
    await world.prefill("p1")
    decode = await world.decode("d1")
    await decode.load(running=40, decode_step_seconds=0.01)
    router = await world.router({"recording.path": tmp_path})
    frontend = world.frontend(router)
    world.members["store-a"].hold(CHAIN)

    async def cached() -> bool:
        return (await frontend.place(CHAIN)).prediction.cached_tokens == 1024

    await eventually(cached, 10)
    kept = [await frontend.place(CHAIN[:count], keep=True) for count in (0, 10, 64)]
    world.members["store-a"].evict(CHAIN[32:])
    refused = await frontend.ask(excluded_instances=["d1", "p1"])
    assert refused.HasField("failed")
    await frontend.close()
    await router.stop(drain=False)

    records = recorded_in(tmp_path)
    recorded = [one.outcome for one in records if isinstance(one, RequestPlaced)]
    assert [(one.ticket, one.decode) for one in recorded[-4:-1]] == [
        (one.ticket, one.decode.instance_id) for one in kept
    ]
    assert recorded[-1].refused == "NO_WORKER"
    replayed = replay(records)
    assert (replayed.difference, replayed.placements) == (None, len(recorded))
