"""gRPC ignores an option that it does not know, without a word."""

from pathlib import Path

import pytest
from grpc._cython import cygrpc

from baton.client.call import CHANNEL_OPTIONS
from baton.rpc.channels import OPTIONS
from baton.rpc.server import server_options
from baton.settings import GrpcSettings


@pytest.mark.parametrize(
    "options", [CHANNEL_OPTIONS, OPTIONS, server_options(GrpcSettings())], ids=str
)
def test_every_option_is_one_that_grpc_knows(options: list[tuple[str, int]]) -> None:
    library = Path(cygrpc.__file__).read_bytes()
    unknown = [name for name, _ in options if name.encode() + b"\0" not in library]
    assert not unknown


def test_clients_ping_no_more_often_than_servers_allow() -> None:
    allowed = dict(server_options(GrpcSettings()))["grpc.http2.min_ping_interval_without_data_ms"]
    for options in (CHANNEL_OPTIONS, OPTIONS):
        assert dict(options)["grpc.keepalive_time_ms"] >= 2 * allowed
