"""The frontend's composition: what is made of what, and in which order it goes."""

from functools import partial

from baton.cluster.discovery import Discovery
from baton.cluster.etcd import Etcd
from baton.cluster.registration import Registration
from baton.cluster.tenants import CacheSalts
from baton.internal.v1 import cluster_pb2
from baton.process.process import Process
from baton.rpc.server import Server
from baton.settings import FrontendSettings
from baton.v1 import inference_pb2_grpc
from services.frontend.generation.inference import Inference
from services.frontend.grpc.servicer import SERVICE, InferenceServicer, record_call
from services.frontend.http.middleware import RequestMiddleware
from services.frontend.http.server import HttpServer
from services.frontend.models.loader import TokenizerLoader
from services.frontend.models.registry import Registry
from services.frontend.openai.routes import Handlers, Routes
from services.frontend.placement.placement import PlacementFinder
from services.frontend.placement.router_client import RouterClient
from services.frontend.text.tokenizer import TokenizerThreads
from services.frontend.workers.pool import WorkerPool

_LOAD_SECONDS = 10.0
"""For the tokenizers of models that are served already, before clients may come."""


async def compose(process: Process, settings: FrontendSettings) -> None:
    """Start a frontend; returns when it serves."""
    stack = process.stack
    registry = Registry()
    limits = settings.limits
    threads = TokenizerThreads(limits.max_tokenizing)
    stack.callback(threads.close)
    cluster = settings.etcd.cluster
    etcd = await stack.enter_async_context(
        Etcd(settings.etcd.endpoints, settings.etcd.timeout_seconds)
    )
    discovery = await stack.enter_async_context(Discovery(etcd, cluster, settings.etcd))
    registry.set_cards(discovery.models.values())
    loader = await stack.enter_async_context(
        TokenizerLoader(registry, lambda: discovery.instances.values(), settings.workers)
    )
    loader.update()
    pool = await stack.enter_async_context(
        WorkerPool(discovery.report_unreachable, settings.workers)
    )
    router_client = await stack.enter_async_context(
        RouterClient(
            partial(discovery.by_role, cluster_pb2.ROLE_ROUTER),
            discovery.report_unreachable,
            settings.placement,
        )
    )
    process.spawn(_follow(discovery, registry, loader, pool, router_client), "follow-cluster")
    inference = Inference(
        registry,
        pool,
        PlacementFinder(router_client, lambda: discovery.instances),
        CacheSalts(etcd, cluster),
        threads,
        settings,
    )
    server = await stack.enter_async_context(
        Server(
            settings.grpc,
            process.name,
            settings.advertise_host,
            process.incarnation,
            on_call_end=record_call,
        )
    )
    servicer = InferenceServicer(inference, limits.stall_seconds)
    server.add(
        partial(inference_pb2_grpc.add_InferenceServiceServicer_to_server, servicer), SERVICE
    )
    handlers = Handlers(inference, settings.http, limits)
    http = HttpServer(RequestMiddleware(Routes(handlers)), settings.http, limits.stall_seconds)
    await stack.enter_async_context(http)
    # Beside others on its port, it would refuse models that they serve.
    await loader.wait_loaded(_LOAD_SECONDS)
    await http.start()
    await server.start()
    stack.push_async_callback(inference.stop)
    registration = await stack.enter_async_context(
        Registration(
            etcd,
            cluster,
            cluster_pb2.Instance(
                id=process.instance_id,
                incarnation=process.incarnation,
                role=cluster_pb2.ROLE_FRONTEND,
                address=server.address,
                http_address=_address(settings, http.port),
                metrics_address=process.metrics_address,
            ),
            settings=settings.etcd,
        )
    )

    async def become_ready() -> None:
        await loader.wait_listed()
        if not inference.draining:
            server.set_ready(True)

    process.spawn(become_ready(), "become ready")

    async def drain() -> None:
        inference.draining = True
        server.set_ready(False)
        await registration.update(draining=True)
        await inference.idle()

    process.on_drain(drain)


def _address(settings: FrontendSettings, port: int) -> str:
    host = settings.advertise_host or settings.http.host
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def _follow(
    discovery: Discovery,
    registry: Registry,
    loader: TokenizerLoader,
    pool: WorkerPool,
    router_client: RouterClient,
) -> None:
    """Keep the models, the worker pool and the session with a router true to the cluster."""
    async for change in discovery.changes():
        if change.kind == "models":
            registry.set_cards(discovery.models.values())
            loader.update()
        else:
            alive = change.kind != "down"
            registry.follow(change.instance, alive=alive)
            pool.follow(change.instance, alive=alive)
            router_client.follow(change.instance, alive=alive)
