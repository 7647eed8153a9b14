"""Addresses of models, as users write them."""

from collections.abc import Mapping
from pathlib import Path

from baton.models.errors import PullError
from baton.models.limits import PullLimits
from baton.models.secrets import SourceSecrets, hub_token
from baton.models.sources.folder import FolderSource
from baton.models.sources.names import FORMS, after_scheme, check_url, scheme_of
from baton.models.sources.source import ModelSource


def open_source(
    address: str,
    limits: PullLimits,
    environment: Mapping[str, str],
    secrets: SourceSecrets = SourceSecrets(),
    endpoint: str = "",
) -> ModelSource:
    """Return the source that an address names; the caller closes it.

    Args:
        address: as `baton.models.sources.names.FORMS`.
        limits: of the download.
        environment: the variables; HF_ENDPOINT, HF_TOKEN and those of botocore are used.
        secrets: tokens and keys in files.
        endpoint: of the hub or of the S3 server; empty: HF_ENDPOINT, AWS_ENDPOINT_URL, or the
            public ones.

    Raises:
        PullError: the address or an option cannot be used, or a library is not installed.
    """
    scheme = scheme_of(address)
    if endpoint:
        if scheme not in ("hf", "s3"):
            raise PullError(f"--endpoint is for hf:// and s3://, not for {address}.")
        check_url(endpoint, "--endpoint")
    if secrets.token_file is not None and scheme not in ("hf", "https", "http"):
        raise PullError(
            f"--token-file is for hf:// and https://, not for {address}"
            + (": S3's credentials are botocore's, such as AWS_PROFILE." if scheme == "s3" else ".")
        )
    if scheme in ("", "file"):
        path = address.removeprefix("file://") if scheme else address
        return FolderSource(Path(path).expanduser().absolute(), address)
    if scheme in ("pvc", "oci"):
        raise PullError(
            f"{address} is mounted by Kubernetes, not downloaded: `baton models overlay` writes "
            "the manifests. To copy it, give the path at which it is mounted."
        )
    try:
        return _remote(scheme, address, limits, environment, secrets, endpoint)
    except ImportError as error:
        raise PullError(f"{address} needs {error.name}: install baton-serving[models].") from error


def _remote(
    scheme: str,
    address: str,
    limits: PullLimits,
    environment: Mapping[str, str],
    secrets: SourceSecrets,
    endpoint: str,
) -> ModelSource:
    if scheme == "hf":
        from baton.models.sources.hub import PUBLIC_HUB, HubSource

        hub = endpoint or environment.get("HF_ENDPOINT", "") or PUBLIC_HUB
        check_url(hub, "HF_ENDPOINT")
        token = hub_token(secrets, environment, hub.rstrip("/") == PUBLIC_HUB)
        return HubSource(f"hf://{after_scheme(address)}", hub, limits, token)
    if scheme == "s3":
        from baton.models.sources.bucket import BucketSource

        name = f"s3://{after_scheme(address)}"
        return BucketSource(name, endpoint, limits, secrets.credentials())
    if scheme in ("https", "http"):
        from baton.models.sources.web import WebSource

        check_url(address, "The address")
        return WebSource(address, limits, secrets.token())
    raise PullError(f"{scheme}:// is not known: use {FORMS}.")
