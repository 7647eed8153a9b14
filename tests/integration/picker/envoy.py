"""A real Envoy as the gateway: its configuration, as gateways with InferencePools make it."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.support.wait import eventually

PROGRAM = Path(__file__).resolve().parents[3] / "build" / "envoy" / "envoy" / "_bin" / "envoy"
_TYPE = "type.googleapis.com/envoy."
_MANAGER = "network.http_connection_manager.v3.HttpConnectionManager"
_KEY = "x-gateway-destination-endpoint"


def configuration(
    port: int, admin: int, picker: str, frontends: Sequence[str], mode: str, source: str
) -> dict[str, Any]:
    """Return Envoy's configuration.

    Args:
        port: of the listener.
        admin: of the administration.
        picker: address of the endpoint picker.
        frontends: addresses of the pool's endpoints.
        mode: how bodies are sent to the picker, both ways.
        source: where the destination is read: `header` or `metadata`.
    """
    duplex = mode == "FULL_DUPLEX_STREAMED"
    processing = {
        "request_header_mode": "SEND",
        "request_body_mode": mode,
        "request_trailer_mode": "SEND" if duplex else "SKIP",
        "response_header_mode": "SEND",
        "response_body_mode": mode if duplex else "NONE",
        "response_trailer_mode": "SEND" if duplex else "SKIP",
    }
    ext_proc = {
        "@type": f"{_TYPE}extensions.filters.http.ext_proc.v3.ExternalProcessor",
        "grpc_service": {"envoy_grpc": {"cluster_name": "picker"}},
        "processing_mode": processing,
        "message_timeout": "30s",
        "metadata_options": {
            "forwarding_namespaces": {"untyped": ["envoy.lb.subset_hint", "envoy.lb"]},
            "receiving_namespaces": {"untyped": ["envoy.lb"]},
        },
    }
    manager = {
        "@type": f"{_TYPE}extensions.filters.{_MANAGER}",
        "stat_prefix": "gateway",
        "route_config": {
            "virtual_hosts": [
                {
                    "name": "all",
                    "domains": ["*"],
                    "routes": [
                        {
                            "match": {"prefix": "/"},
                            "route": {"cluster": "frontends", "timeout": "0s"},
                        }
                    ],
                }
            ]
        },
        "http_filters": [
            {"name": "envoy.filters.http.ext_proc", "typed_config": ext_proc},
            {
                "name": "envoy.filters.http.router",
                "typed_config": {"@type": f"{_TYPE}extensions.filters.http.router.v3.Router"},
            },
        ],
    }
    where = {"metadata": {"key": "envoy.lb", "path": [{"key": _KEY}]}, "header": _KEY}[source]
    balancing = {
        "@type": f"{_TYPE}extensions.load_balancing_policies.override_host.v3.OverrideHost",
        "override_host_sources": [{source: where}],
        "fallback_policy": {"policies": [_policy("round_robin", "RoundRobin")]},
    }
    http2 = {
        "@type": f"{_TYPE}extensions.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": {"http2_protocol_options": {}},
    }
    return {
        "admin": {"address": _address(f"127.0.0.1:{admin}")},
        "static_resources": {
            "listeners": [
                {
                    "name": "http",
                    "address": _address(f"127.0.0.1:{port}"),
                    "filter_chains": [
                        {
                            "filters": [
                                {
                                    "name": "envoy.filters.network.http_connection_manager",
                                    "typed_config": manager,
                                }
                            ]
                        }
                    ],
                }
            ],
            "clusters": [
                {
                    **_cluster("picker", [picker]),
                    "typed_extension_protocol_options": {
                        "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": http2
                    },
                },
                {
                    **_cluster("frontends", frontends),
                    "load_balancing_policy": {
                        "policies": [
                            {
                                "typed_extension_config": {
                                    "name": "envoy.load_balancing_policies.override_host",
                                    "typed_config": balancing,
                                }
                            }
                        ]
                    },
                },
            ],
        },
    }


@asynccontextmanager
async def running(configuration: dict[str, Any], directory: Path) -> AsyncIterator[None]:
    """Run Envoy until the block exits; yield once it serves."""
    path = directory / "envoy.json"
    path.write_text(json.dumps(configuration))
    admin = configuration["admin"]["address"]["socket_address"]["port_value"]
    with (directory / "envoy.log").open("wb") as log:
        command = (str(PROGRAM), "-c", str(path), "--concurrency", "1", "--use-dynamic-base-id")
        process = await asyncio.create_subprocess_exec(*command, stdout=log, stderr=log)
        try:
            async with httpx.AsyncClient() as client:

                async def ready() -> bool:
                    assert process.returncode is None, (directory / "envoy.log").read_text()[-2000:]
                    try:
                        return (await client.get(f"http://127.0.0.1:{admin}/ready")).is_success
                    except httpx.TransportError:
                        return False

                await eventually(ready)
            yield
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


def _policy(name: str, kind: str) -> dict[str, Any]:
    config = {"@type": f"{_TYPE}extensions.load_balancing_policies.{name}.v3.{kind}"}
    full = f"envoy.load_balancing_policies.{name}"
    return {"typed_extension_config": {"name": full, "typed_config": config}}


def _cluster(name: str, addresses: Sequence[str]) -> dict[str, Any]:
    endpoints = [{"endpoint": {"address": _address(address)}} for address in addresses]
    return {
        "name": name,
        "type": "STATIC",
        "connect_timeout": "5s",
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": endpoints}]},
    }


def _address(address: str) -> dict[str, Any]:
    host, _, port = address.rpartition(":")
    return {"socket_address": {"address": host, "port_value": int(port)}}
