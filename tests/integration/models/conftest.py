"""Downloads from a server of the test's own, by each kind of source."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from baton.models.limits import PullLimits
from baton.models.pull.progress import PullProgress
from baton.models.pull.pull import ModelPull, PullResult
from baton.models.pull.store import ModelStore
from baton.models.secrets import SourceSecrets
from baton.models.sources.addresses import open_source
from baton.models.sources.select import FileSelection
from tests.support.models.server import BUCKET, PREFIX, REPOSITORY, ModelServer

Pull = Callable[..., PullResult]
LIMITS = PullLimits(
    attempts=3, backoff_seconds=0.0, max_backoff_seconds=0.0, progress_bytes=10_000_000
)
"""Waits for nothing but the server."""
KINDS = ("web", "hub", "bucket")


def address(kind: str, server: ModelServer) -> str:
    """Return the address at which a server has its model."""
    return {
        "web": f"{server.url}/web/",
        "hub": f"hf://{REPOSITORY}",
        "bucket": f"s3://{BUCKET}/{PREFIX}",
    }[kind]


@pytest.fixture
def aws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Has botocore find credentials in a file, and nothing of this machine."""
    path = tmp_path / "credentials"
    path.write_text(
        "[default]\naws_access_key_id = AKIAEXAMPLE\naws_secret_access_key = very-secret-key\n"
    )
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(path))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "no-config"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    return path


@pytest.fixture
def pull(aws: Path) -> Pull:
    """Download a server's model."""

    def run(
        kind: str,
        server: ModelServer,
        target: Path | None,
        limits: PullLimits = LIMITS,
        token_file: Path | None = None,
        cache: Path | None = None,
        **changed: float,
    ) -> PullResult:
        limits = replace(limits, **changed)
        endpoint = server.url if kind in ("hub", "bucket") else ""
        secrets = SourceSecrets(token_file)
        source = open_source(address(kind, server), limits, {}, secrets, endpoint)
        try:
            return ModelPull(
                source,
                ModelStore(target, cache),
                FileSelection(),
                limits,
                PullProgress(),
                lambda: None,
            ).run()
        finally:
            source.close()

    return run
