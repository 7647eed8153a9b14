"""Builds the query that a frontend would send to a router to place a described request."""

import asyncio

import grpc

from baton.cli.inspect.route.described_request import DescribedRequest
from baton.cli.shared.cluster_view import ClusterView
from baton.cli.shared.errors import EXIT_FAILED, CommandError
from baton.client import BatonClientError, Client
from baton.cluster import keys
from baton.cluster.etcd.client import Etcd
from baton.internal.v1 import cluster_pb2, router_pb2
from baton.kv.keys import chain_root, full_block_keys, pack, token_bytes
from baton.v1 import common_pb2

TOKENIZE_SECONDS = 10.0


async def query_of(
    view: ClusterView, etcd: Etcd, cluster: str, described: DescribedRequest
) -> router_pb2.PlaceQuery:
    """Return the query that a frontend would send.

    Args:
        view: the cluster's instances and models.
        etcd: etcd, which stores tenants' salts.
        cluster: the cluster's name.
        described: the request.

    Raises:
        CommandError: there is no such model or adapter, or no frontend tokenizes its text.
        EtcdError: etcd is unavailable.
    """
    model = described.model or _only_model(view)
    cards = view.cards(model)
    if not cards:
        there = ", ".join(view.model_names) or "none"
        raise CommandError(f"no worker serves model {model!r}. Models: {there}.")
    digest = _adapter_digest(view, model, described.adapter)
    tokens: tuple[int, ...] = ()
    if described.text:
        tokens = await asyncio.to_thread(
            _tokenize, described, model, described.frontend or _frontend(view)
        )
    query = router_pb2.PlaceQuery(
        prompt_tokens=len(tokens) or described.prompt_tokens,
        max_tokens=described.max_tokens,
        n=1,
        deadline_seconds=described.deadline,
        ttft_target_seconds=described.ttft_target,
        adapter_digest=digest,
    )
    context = query.context
    context.tenant, context.model, context.adapter = described.tenant, model, described.adapter
    if described.priority:
        name = f"PRIORITY_CLASS_{described.priority.upper()}"
        context.priority = common_pb2.PriorityClass.Value(name)
    salt = await _salt(etcd, cluster, described.tenant)
    if tokens and salt:  # without a salt, the tenant has made no requests: nothing of it is cached
        data = token_bytes(tokens)
        for card in cards:
            root = chain_root(model, card.weights_digest, card.layout_id, digest, salt)
            query.chains.add(
                layout_id=card.layout_id,
                keys=pack(full_block_keys(root, data, card.block_tokens)),
                block_tokens=card.block_tokens,
            )
    return query


def _frontend(view: ClusterView) -> str:
    """Return the address of a frontend of the cluster.

    Raises:
        CommandError: there is none.
    """
    frontends = sorted(
        (member.draining, member.id, member.address)
        for member in view.instances.values()
        if member.role == cluster_pb2.ROLE_FRONTEND
    )
    if not frontends:
        raise CommandError(
            "The cluster has no frontend to tokenize the prompt: set --frontend or "
            "--prompt-tokens.",
            EXIT_FAILED,
        )
    return frontends[0][2]


def _only_model(view: ClusterView) -> str:
    names = view.model_names
    if len(names) != 1:
        there = ", ".join(names) or "none"
        raise CommandError(f"The cluster serves several models: set --model. Models: {there}.")
    return names[0]


def _adapter_digest(view: ClusterView, model: str, adapter: str) -> bytes:
    if not adapter:
        return b""
    for member in view.instances.values():
        for one in member.adapters:
            if member.model == model and one.name == adapter:
                return one.digest
    raise CommandError(f"no worker of model {model!r} serves adapter {adapter!r}.")


async def _salt(etcd: Etcd, cluster: str, tenant: str) -> bytes:
    stored = await etcd.get(keys.tenant(cluster, tenant))
    return keys.decode(cluster_pb2.TenantPolicy, stored).cache_salt if stored else b""


def _tokenize(described: DescribedRequest, model: str, address: str) -> tuple[int, ...]:
    """Return the tokens of the text, from the frontend at an address.

    Raises:
        CommandError: it does not respond, or rejects the request.
    """
    credentials = None
    if described.frontend_tls or described.frontend_ca is not None:
        ca = described.frontend_ca
        credentials = grpc.ssl_channel_credentials(ca.read_bytes() if ca is not None else None)
    text = described.text
    with Client(address, credentials=credentials) as client:
        try:
            found = client.tokenize(
                [{"role": "user", "content": text}] if described.chat else text,
                model=described.adapter or model,
                timeout=TOKENIZE_SECONDS,
            )
        except BatonClientError as error:
            raise CommandError(
                f"the frontend at {address} failed to tokenize the prompt ({error}): set another "
                "--frontend, or --prompt-tokens.",
                EXIT_FAILED,
            ) from error
    if not found.token_ids:
        raise CommandError("The prompt has no tokens.")
    return found.token_ids
