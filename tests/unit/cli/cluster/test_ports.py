"""A port that is in use is named, and who uses it if that is a cluster of this user."""

import socket
from pathlib import Path

import pytest

from baton.cli.cluster.local.files.rundir import LocalCluster, RunDirectory, base_directory
from baton.cli.cluster.local.ports import require_free
from baton.cli.shared.errors import CommandError


def test_a_second_cluster_is_told_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        with pytest.raises(CommandError, match=f"Port {port} on 127.0.0.1 is in use: free"):
            require_free("127.0.0.1", port, "--http-port", "BATON_HTTP_PORT")
        with RunDirectory(base_directory()) as run:
            run.publish(LocalCluster((), "local", "127.0.0.1:1", f"127.0.0.1:{port}"))
            with pytest.raises(
                CommandError, match="in use by cluster 'local' on this machine: free"
            ):
                require_free("127.0.0.1", port, "--http-port", "BATON_HTTP_PORT")
