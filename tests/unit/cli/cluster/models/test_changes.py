"""Changes of a running cluster's models: what starts, what drains, and what is refused."""

import asyncio
import io
import shutil
from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from baton.cli.cluster.local.files.rundir import RunDirectory
from baton.cli.cluster.local.models.changes import ModelChanges, WorkerBase
from baton.cli.cluster.local.models.control import ModelChange, ask, reachable, serve_changes
from baton.cli.cluster.local.models.find import find_models
from baton.cli.cluster.local.models.streams import streams_of
from baton.cli.cluster.local.output.report import Reporter
from baton.cli.cluster.local.plan import inner_settings, plan
from baton.cli.cluster.local.preparation import Preparation
from baton.cli.cluster.local.spec import ProcessSpec
from baton.cli.shared.errors import CommandError
from baton.cli.shared.options import ClusterOptions
from baton.engine.testing.random_checkpoint import write_random_checkpoint
from tests.support.clock import Stopwatch

ETCD = ("127.0.0.1:1",)


class Workers:
    """A supervisor whose processes serve when `ready` is set; `broken` ones never do."""

    def __init__(self) -> None:
        self.running: list[str] = []
        self.registered: list[str] = []
        self.ready = asyncio.Event()
        self.ready.set()
        self.broken: set[str] = set()
        self.view = SimpleNamespace(instances={})
        self.history: list[str] = []

    def register(self, spec: ProcessSpec, _: object) -> None:
        self.registered.append(spec.id)

    def add(self, name: str) -> bool:
        self.running.append(name)
        self.history.append(f"+{name}")
        return True

    async def wait_added(self, names: Iterable[str]) -> None:
        await self.ready.wait()
        if bad := self.broken & set(names):
            raise CommandError(f"{bad.pop()} does not start", 1)

    async def forget(self, name: str) -> None:
        if name in self.running:
            self.running.remove(name)
        self.history.append(f"-{name}")


class Cluster:
    """A cluster of one model with one combined worker, its control socket, and fake processes."""

    def __init__(self, directory: RunDirectory, models: Path, **options: Any) -> None:
        self.models = models
        self.workers = Workers()
        self.forgotten: list[str] = []
        self.path = directory.control
        chosen = ClusterOptions(
            model=[str(models / "first")],
            prefill=0,
            decode=0,
            combined=1,
            engine="sim",
            http_port=0,
            grpc_port=0,
            **options,
        )
        found = find_models(chosen)
        preparation = Preparation(None, directory, Reporter(Console(file=io.StringIO())))
        prepared = [preparation.prepare(spec) for spec in plan(chosen, found, ETCD, (0, 1))]
        self.workers.running = [one.spec.id for one in prepared if one.spec.model]
        self.changes = ModelChanges(
            chosen,
            found,
            prepared,
            preparation,
            WorkerBase(inner_settings(chosen, ETCD, {}), {}, (0, 1)),
            self.workers,  # type: ignore[arg-type]
            self._forget,
            lambda: 8 << 30,
        )

    async def _forget(self, name: str) -> None:
        self.forgotten.append(name)

    async def ask(self, action: Any, name: str, /, **options: str) -> list[str]:
        """Ask on the socket; return what it says."""
        if action == "add":
            options["path"] = str(self.models / name)
        change = ModelChange(action, "" if action == "add" else name, options, 0.2)
        async with aclosing(ask(self.path, change)) as said:
            return [sentence async for sentence in said]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("models")
    first = write_random_checkpoint(directory / "first")
    shutil.copytree(first, directory / "second")
    shutil.copytree(first, directory / "third")
    return directory


@pytest.fixture
async def cluster(tmp_path: Path, models: Path) -> AsyncIterator[Cluster]:
    with RunDirectory(tmp_path / ("a-long-name-of-a-directory" * 4)) as directory:
        one = Cluster(directory, models)
        async with serve_changes(one.path, one.changes):
            yield one


async def test_a_model_comes_gets_other_workers_and_goes(cluster: Cluster) -> None:
    said = await cluster.ask("add", "second", combined="2", dtype="float32")
    assert said == ["Starting combined-1, combined-2."]
    assert cluster.changes.names == ["first", "second"]
    assert await cluster.ask("set", "second", decode="1", prefill="1", combined="1") == [
        "Starting prefill-0, decode-0.",
        "Draining combined-2.",
    ]
    assert cluster.workers.history[-3:] == ["+prefill-0", "+decode-0", "-combined-2"]
    assert await cluster.ask("remove", "second") == []
    assert cluster.workers.running == ["combined-0"]
    assert cluster.forgotten == ["second"]
    await cluster.ask("add", "second")
    assert cluster.workers.running == ["combined-0", "combined-3"], "numbers are not used again"


async def test_what_does_not_start_leaves_the_cluster_as_it_was(cluster: Cluster) -> None:
    cluster.workers.broken = {"combined-2"}
    with pytest.raises(CommandError, match="combined-2 does not start") as caught:
        await cluster.ask("add", "second", combined="2")
    assert caught.value.code == 1
    assert cluster.workers.running == ["combined-0"]
    assert cluster.changes.names == ["first"]
    cluster.workers.broken = set()
    await cluster.ask("add", "second")
    assert cluster.changes.names == ["first", "second"]


async def test_a_model_changes_once_at_a_time(cluster: Cluster) -> None:
    cluster.workers.ready.clear()
    adding = asyncio.create_task(cluster.ask("add", "second"))
    while "combined-1" not in cluster.workers.running:
        await asyncio.sleep(0)
    for action, options in (("add", {}), ("set", {"combined": "3"}), ("remove", {})):
        with pytest.raises(CommandError, match="Model 'second' is being added: try again"):
            await cluster.ask(action, "second", **options)
    other = asyncio.create_task(cluster.ask("add", "third"))
    cluster.workers.ready.set()
    await asyncio.gather(adding, other)
    assert cluster.changes.names == ["first", "second", "third"]


async def test_of_two_models_that_are_removed_at_once_one_stays(cluster: Cluster) -> None:
    await cluster.ask("add", "second")
    gone = await asyncio.gather(
        cluster.ask("remove", "first"), cluster.ask("remove", "second"), return_exceptions=True
    )
    (refused,) = (one for one in gone if isinstance(one, CommandError))
    assert "is the only one: add another first, or stop the cluster" in str(refused)
    assert len(cluster.changes.names) == len(cluster.workers.running) == 1


@pytest.mark.parametrize(
    ("action", "name", "options", "said"),
    [
        ("add", "first", {}, "serves a model named 'first' already"),
        ("add", "absent", {}, "absent' does not exist"),
        ("add", "second", {"decod": "1"}, "'decod' is not an option of a model"),
        ("add", "second", {"combined": "-1"}, "combined is '-1': should be greater than"),
        ("add", "second", {"combined": "0"}, "Model 'second' has no decode worker"),
        ("add", "second", {"name": "a\x07"}, r"name is 'a\x07': string should match pattern"),
        ("add", "second", {"combined": "32"}, "Not enough memory: workers of first 512 MiB"),
        ("set", "absent", {"decode": "1"}, "serves no model 'absent'. Models: first."),
        ("set", "first", {"decode": "x"}, "decode is 'x': should be a valid integer"),
        ("set", "first", {"combined": "0"}, "Model 'first' would have no decode worker"),
        ("set", "first", {"dtype": "float32"}, "'dtype' cannot change while a model is served"),
        ("remove", "absent", {}, "The cluster serves no model 'absent'"),
        ("remove", "first", {}, "Model 'first' is the only one"),
    ],
)
async def test_what_cannot_be_done_is_refused_at_once(
    action: str, name: str, options: dict[str, str], said: str, cluster: Cluster
) -> None:
    seconds = []
    for _ in range(3):
        watch = Stopwatch()
        with pytest.raises(CommandError) as caught:
            await cluster.ask(action, name, **options)
        seconds.append(watch.seconds)
    assert said in str(caught.value)
    assert caught.value.code == 2
    assert cluster.workers.running == ["combined-0"]
    assert cluster.workers.registered == []
    assert min(seconds) < 0.5  # 20 ms on a quiet machine


async def test_pools_that_others_size_are_left_to_them(tmp_path: Path, models: Path) -> None:
    with RunDirectory(tmp_path / "run") as directory:
        scaled = Cluster(directory, models, autoscale="1:2")
        with pytest.raises(CommandError, match="--autoscale sets the numbers of workers"):
            await scaled.changes.set("first", {"combined": "2"}, lambda _: None)


async def test_nonsense_on_the_socket_is_answered(cluster: Cluster) -> None:
    for line in (b"\n", b"[]\n", b'{"action":"eat"}\n', b"x" * 70_000):
        with reachable(cluster.path) as short:
            reader, writer = await asyncio.open_unix_connection(short)
        writer.write(line)
        assert b"cannot be read" in await asyncio.wait_for(reader.readline(), 30)
        writer.close()
    await cluster.ask("add", "second")


def test_open_streams_are_read_from_metrics() -> None:
    text = "# TYPE baton_worker_streams gauge\nbaton_worker_streams 3.0\nbaton_worker_streams_x 9\n"
    assert streams_of(text) == 3
    assert streams_of("") == 0
