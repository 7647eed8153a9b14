"""Lines of a batch that gets no room in its class run as interactive requests, at its price."""

import json
from pathlib import Path
from typing import Any

import httpx

from baton.internal.v1 import router_pb2
from baton.usage.report.files import RecordFiles, files_of
from baton.v1 import common_pb2
from tests.support.clock import DEADLINE_SECONDS
from tests.support.state.databases import Databases
from tests.support.wait import eventually

LINES = 8
CHAT = "/v1/chat/completions"
NEVER = 600.0


async def test_lines_without_room_begin_again_as_urgent_ones(
    empty_stage: Any, databases: Databases, tmp_path: Path
) -> None:
    stage = empty_stage
    model = stage.model
    await stage.set(
        {
            "state.url": await databases.migrated(),
            "state.statement_seconds": 20.0,
            "files.url": (tmp_path / "files").as_uri(),
            "batches.completion_windows": "300s,24h",
            "batches.max_running": LINES,
            "usage.spool_path": tmp_path / "spool",
            "usage.jsonl_path": tmp_path / "records",
            "usage.prices": f"{model}=9/9/9,{model}+batch=0.1/0.1/0.1",
        }
    )
    place, script = stage.router.place, stage.worker("d0").script
    script.step_seconds = NEVER  # of tokens that begin now

    def place_fast_if_urgent(query: router_pb2.PlaceQuery) -> router_pb2.Placement:
        script.step_seconds = 0.001 if query.urgent else NEVER
        return place(query)

    stage.router.place = place_fast_if_urgent
    messages = [{"role": "user", "content": "abc"}]
    asked: dict[str, Any] = {
        "requests": [
            {"body": {"model": model, "messages": messages, "max_tokens": 3}} for _ in range(LINES)
        ],
        "completion_window": "300s",
    }
    async with httpx.AsyncClient(base_url=stage.http_url, timeout=DEADLINE_SECONDS) as client:

        async def created() -> Any:
            answer = await client.post("/v1/batch", json=asked)
            return answer.json() if answer.status_code == 200 else None  # no connection yet

        made = await eventually(created)

        async def ended() -> Any:
            found = (await client.get(f"/v1/batches/{made['id']}")).json()
            return found if found["status"] not in ("validating", "in_progress") else None

        batch = await eventually(ended)

        async def complete() -> Any:
            found = (await client.get(f"/v1/batches/{made['id']}")).json()
            return found if found["status"] == "completed" else None

        batch = await eventually(complete)
        assert batch["request_counts"] == {"total": LINES, "completed": LINES, "failed": 0}
        output = await client.get(f"/v1/files/{batch['output_file_id']}/content")
        named = [json.loads(line)["custom_id"] for line in output.text.splitlines()]
        assert named == [f"request-{at + 1}" for at in range(LINES)]
    urgent = [query.context.request_id for query in stage.router.queries if query.urgent]
    first = [query.context.request_id for query in stage.router.queries if not query.urgent]
    assert len(urgent) == len(set(urgent)) == LINES and set(first) == set(urgent)
    batch_class = common_pb2.PRIORITY_CLASS_BATCH
    assert {query.context.priority for query in stage.router.queries} == {batch_class}
    assert await stage.frontend.stop() == 0
    records = list(RecordFiles(files_of(tmp_path / "records")))
    assert len(records) == LINES
    for one in records:
        assert one.batch and one.priority_class == "batch"
        assert one.cost_nanodollars == 100 * (one.prompt_tokens + (one.output_tokens or 0))
