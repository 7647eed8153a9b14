"""gRPC ignores an option that it does not know, without a word."""

from pathlib import Path

import pytest
from grpc._cython import cygrpc

from baton.client.channels import BALANCING_OPTIONS, CHANNEL_OPTIONS
from baton.rpc.channels import OPTIONS


@pytest.mark.parametrize("options", [CHANNEL_OPTIONS, BALANCING_OPTIONS, OPTIONS], ids=str)
def test_every_option_is_one_that_grpc_knows(options: list[tuple[str, object]]) -> None:
    library = Path(cygrpc.__file__).read_bytes()
    unknown = [name for name, _ in options if name.encode() + b"\0" not in library]
    assert not unknown
