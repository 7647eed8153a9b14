"""What tests of every area stand on: a real etcd, clusters in this process, processes.

One event loop runs everything (see pyproject.toml), so that clusters can be shared between tests.
"""

import asyncio
import gc
import logging
import os
import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import certifi
import httpx
import pytest
import structlog
from _pytest.nodeid import NodeId
from hypothesis import HealthCheck, Phase, settings

from baton.cluster.etcd.client import Etcd
from baton.cluster.etcd.local import LocalEtcd
from baton.postgres.local.programs import remove_data
from baton.postgres.local.server import LocalPostgres
from baton.telemetry.scope import PROCESS, current
from tests.support.clock import DEADLINE_SECONDS
from tests.support.environ import change_only_between_agents
from tests.support.examples import examples
from tests.support.loops.accepted import close_what_a_closed_server_accepts
from tests.support.processes.launcher import Launcher
from tests.support.processes.process import ServiceSpawner
from tests.support.runs.host import take_own_host
from tests.support.runs.hung_tests import HungTests
from tests.support.runs.order import ordered, repeat
from tests.support.runs.order import round_ as round_
from tests.support.state.databases import Databases

if TYPE_CHECKING:
    from tests.support.services.service import LocalServices
    from tests.support.services.shared import SharedClusters

# NIXL listens on whatever UCX may use.
os.environ.setdefault("UCX_NET_DEVICES", "lo")

# Other tests run on the other cores: engines compute with one thread, and where a test wants more
# they do not spin while they wait for each other. Read when torch is loaded.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# What tests ask over HTTP is answered when this machine comes to it, and not by default in 5 s.
vars(httpx._config.DEFAULT_TIMEOUT_CONFIG).update(
    dict.fromkeys(("connect", "read", "write", "pool"), DEADLINE_SECONDS)
)

# How long an example takes is the machine's affair. Failing examples are shown as found: to make
# one smaller takes minutes, in which the test's own time ends, and nothing would be shown.
settings.register_profile(
    "tests",
    max_examples=examples(40),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[phase for phase in Phase if phase is not Phase.shrink],
    print_blob=True,
)
settings.load_profile("tests")

_END = "-----END CERTIFICATE-----\n"
_failed = pytest.StashKey[bool]()


@pytest.hookimpl(trylast=True)  # after pytest's own, which says where temporary files go
def pytest_configure(config: pytest.Config) -> None:
    """Take a host of one's own, and write exceptions that are logged without local variables.

    With them each takes a second.
    """
    take_own_host(config)
    plain = structlog.dev.ConsoleRenderer(
        colors=False, exception_formatter=structlog.dev.plain_traceback
    )
    structlog.configure(processors=[*structlog.get_config()["processors"][:-1], plain])
    config.pluginmanager.register(HungTests())


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests that need vLLM, chdb or Triton where it is not installed, unless CI is true."""
    if item.get_closest_marker("vllm") and find_spec("vllm") is None:
        assert os.environ.get("CI") != "true", "vLLM is not installed: make vllm"
        pytest.skip("vLLM is not installed: make vllm")
    if item.get_closest_marker("clickhouse") and find_spec("chdb") is None:
        assert os.environ.get("CI") != "true", "chdb is not installed: make test-clickhouse"
        pytest.skip("chdb is not installed: make test-clickhouse")
    if item.get_closest_marker("cuda") and find_spec("triton") is None:
        assert os.environ.get("CI") != "true", "Triton is not installed: make test-cuda"
        pytest.skip("Triton is not installed: make test-cuda")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    repeat(metafunc)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order tests, and name each one's group in its id, by which xdist finds the worker for it.

    xdist 3.8 does so too, in an attribute that pytest 9.2 does not read: without this, each worker
    starts the cluster and builds the wheel that a group is to share.
    """
    items[:] = ordered(items)
    if not getattr(config.option, "loadgroup", False):
        return
    for item in items:
        if (group := item.get_closest_marker("xdist_group")) is not None:
            item._id = NodeId.parse(f"{item.nodeid}@{group.args[0]}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    item.stash[_failed] = item.stash.get(_failed, False) or report.failed
    return report


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Collect no garbage while tests are imported: little is, and to look costs a sixth."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Let the garbage collector pass over all that imports made."""
    gc.collect()
    gc.freeze()
    # What a test makes stays young until its end, where it is cheap to look at.
    gc.set_threshold(100_000, 50, 50)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None):
    """Free what a test held in cycles: engines their pages, and stores map arenas, until then.

    Of each test what is young. All takes a tenth of a second: at the end of a file with services.
    """
    result = yield
    last = nextitem is None or nextitem.path != item.path
    gc.collect(2 if last and "unit" not in item.path.parts else 1)
    return result


@pytest.fixture(scope="session", autouse=True)
def one_authority(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Trust one public authority: reading all of them takes each HTTP client 24 ms of CPU."""
    path = tmp_path_factory.mktemp("authorities") / "first.pem"
    path.write_text("".join(certifi.contents().partition(_END)[:2]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(path))
        yield


@pytest.fixture(scope="session", autouse=True)
def accepted_connections_closed() -> Iterator[None]:
    """Close what asyncio's servers accept while they are being closed."""
    with pytest.MonkeyPatch.context() as patch:
        close_what_a_closed_server_accepts(patch)
        yield


@pytest.fixture(scope="session", autouse=True)
def environment_changed_between_agents() -> Iterator[None]:
    """Change no variable while a NIXL agent is created."""
    with pytest.MonkeyPatch.context() as patch:
        change_only_between_agents(patch)
        yield


@pytest.fixture(autouse=True)
def logs_as_before() -> Iterator[None]:
    """Take back how a test's command configured logs: the stream that they go to ends with it."""
    config, root = structlog.get_config(), logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    if structlog.get_config() != config:
        structlog.configure(**config)
        root.handlers[:] = handlers
        root.setLevel(level)


@pytest.fixture(scope="session")
async def tasks_of_tests() -> WeakSet[asyncio.Task[Any]]:
    """Tasks of tests, as opposed to those of services in this process."""
    tasks: WeakSet[asyncio.Task[Any]] = WeakSet()

    def create(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> Any:
        task = asyncio.Task(coroutine, loop=loop, **options)
        if current() is PROCESS:
            tasks.add(task)
        return task

    asyncio.get_running_loop().set_task_factory(create)
    return tasks


@pytest.fixture(autouse=True)
async def no_task_outlives_its_test(
    tasks_of_tests: WeakSet[asyncio.Task[Any]],
) -> AsyncIterator[None]:
    """Cancel what a test left running, for the event loop goes on to the next one."""
    before = set(tasks_of_tests)
    yield
    left = {task for task in tasks_of_tests if not task.done()} - before
    left.discard(asyncio.current_task())
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left, timeout=5)


@pytest.fixture(scope="session")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalEtcd]:
    """A real etcd for the whole session; tests keep apart by `cluster`."""
    server = LocalEtcd(tmp_path_factory.mktemp("etcd"), durable=False)
    asyncio.run(server.start())
    yield server
    asyncio.run(server.stop())


@pytest.fixture(scope="session")
def launcher() -> Iterator[Launcher]:
    """Forks processes that have imported everything."""
    launcher = Launcher()
    yield launcher
    launcher.close()


@pytest.fixture(scope="session")
async def databases(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Databases]:
    """A real Postgres for the whole session; each test makes databases of its own."""
    directory = tmp_path_factory.mktemp("postgres") / "server"
    try:
        async with LocalPostgres(directory) as server:
            yield Databases(server)
    finally:
        remove_data(directory)


@pytest.fixture
async def own_postgres(tmp_path: Path) -> AsyncIterator[LocalPostgres]:
    """A Postgres of this test alone, which may kill it."""
    directory = tmp_path / "postgres"
    try:
        async with LocalPostgres(directory) as server:
            yield server
    finally:
        remove_data(directory)


@pytest.fixture
async def etcd_client(etcd: LocalEtcd) -> AsyncIterator[Etcd]:
    """A connection to the session's etcd."""
    async with Etcd(etcd.endpoints) as client:
        yield client


@pytest.fixture
def cluster() -> str:
    """A cluster name that no other test has."""
    return f"test-{secrets.token_hex(6)}"


@pytest.fixture
async def spawn_service(
    launcher: Launcher,
    etcd_client: Etcd,
    cluster: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> AsyncIterator[ServiceSpawner]:
    """Starts real processes in the test's own cluster; none outlives the test."""
    spawner = ServiceSpawner(launcher, etcd_client, cluster, tmp_path)
    try:
        yield spawner
    finally:
        await spawner.close(show_logs=request.node.stash.get(_failed, False))


@pytest.fixture
async def start_service(
    etcd_client: Etcd, cluster: str, tmp_path: Path
) -> AsyncIterator["LocalServices"]:
    """Starts services in this process, in the test's own cluster: `start_service("decode", {…})`.

    For all that does not need a process: a service is there after some ten milliseconds.
    """
    from tests.support.services.service import LocalServices

    services = LocalServices(etcd_client, cluster, tmp_path)
    yield services
    await services.close()


@pytest.fixture(scope="session")
def random_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Checkpoints of random weights: `random_model("qwen3")`."""
    from tests.support.engine.model import RandomModels

    return RandomModels(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="session")
async def shared_clusters(
    etcd: LocalEtcd,
    launcher: Launcher,
    tmp_path_factory: pytest.TempPathFactory,
    random_model: Callable[..., Path],
) -> AsyncIterator["SharedClusters"]:
    """Clusters in this process, shared by tests that ask for the same shape."""
    from baton.client.session import aio
    from tests.support.services.shared import SharedClusters

    def directory() -> Path:
        return tmp_path_factory.mktemp("cluster")

    with pytest.MonkeyPatch.context() as patch:
        # A session that the client keeps for its next request: until then the cluster is not idle.
        patch.setattr(aio, "IDLE_SECONDS", 0.1)
        clusters = SharedClusters(etcd.endpoints, launcher, directory, random_model)
        yield clusters
        await clusters.close()


@pytest.fixture
async def local_cluster(
    shared_clusters: "SharedClusters", request: pytest.FixtureRequest
) -> AsyncIterator[Callable[..., Any]]:
    """A whole cluster in this process: `await local_cluster(prefill=2, settings={...})`.

    Takes what `Shape` takes. Other tests use it too, so that its caches are not empty: ask with
    prompts of your own. With `own=True` it is this test's alone. Nothing may be held at the end,
    unless the test left a service stopped.
    """
    from tests.support.services.cluster import LocalCluster, Shape

    async with AsyncExitStack() as stack:
        used: list[LocalCluster] = []

        async def get(*, own: bool = False, **shape: Any) -> LocalCluster:
            wanted = Shape(**shape)
            if own:
                cluster = await stack.enter_async_context(shared_clusters.own(wanted))
            else:
                cluster = await shared_clusters.get(wanted)
            used.append(cluster)
            return cluster

        try:
            yield get
            for cluster in used:
                if all(service.running for service in cluster.services.values()):
                    await cluster.at_baseline()
        finally:
            if request.node.stash.get(_failed, False):
                for cluster in used:
                    await shared_clusters.drop(cluster)
