"""A model on a web server: a directory with a list of its files and their digests."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from urllib.parse import quote

from baton.engine.checkpoint.record import RECORD, parse_record
from baton.engine.support.documents import CheckpointError
from baton.models.digests import Digest
from baton.models.errors import PullError
from baton.models.limits import PullLimits
from baton.models.secrets import AccessToken
from baton.models.sources.http import SourceClient
from baton.models.sources.manifest import SUMS, parse_sums
from baton.models.sources.source import FileBody, ModelListing, RemoteFile, list_revision

LISTS = (RECORD, SUMS)
"""In this order: the first that exists is the list."""


class WebSource:
    """Files below an address, listed by its completion record or its SHA256SUMS.

    Args:
        base: `https://` or `http://` address of the directory, or of the list in it; without
            password, query and fragment.
        limits: of the download.
        token: for the server, if it needs one.
    """

    def __init__(self, base: str, limits: PullLimits, token: AccessToken | None) -> None:
        self.name = self.identity = base
        self.requested = ""
        above, _, last = base.rpartition("/")
        self._lists = (last,) if last in LISTS else LISTS
        self._base = above if last in LISTS else base.rstrip("/")
        self._limits = limits
        self._client = SourceClient(
            limits, base, token, "set --token-file to a token that may read it."
        )

    def list_files(self, wants: Callable[[str], bool]) -> ModelListing:
        """Return the files of the list; errors as `ModelSource.list_files`."""
        for name in self._lists:
            data = self._client.read(f"{self._base}/{name}", name)
            if data is None:
                continue
            return (
                self._from_record(data, wants) if name == RECORD else self._from_sums(data, wants)
            )
        raise PullError(
            f"{self.name} has no {' and no '.join(self._lists)}: in the directory that it serves, "
            f"run `sha256sum * > {SUMS}`."
        )

    @contextmanager
    def open(self, file: RemoteFile, offset: int) -> Iterator[FileBody]:
        """Request a file; errors as `ModelSource.open`."""
        with self._client.body(self._url(file.path), file.path, offset, file.size) as body:
            yield body

    def close(self) -> None:
        """Close connections."""
        self._client.close()

    def _from_record(self, data: bytes, wants: Callable[[str], bool]) -> ModelListing:
        try:
            record = parse_record(data, f"{RECORD} of {self.name}")
        except CheckpointError as error:
            raise PullError(str(error)) from error
        files = tuple(
            RemoteFile(file.path, file.size, Digest("sha256", file.sha256))
            for file in record.files
            if wants(file.path)
        )
        return ModelListing(self.name, record.revision, files)

    def _from_sums(self, data: bytes, wants: Callable[[str], bool]) -> ModelListing:
        digests = {
            path: digest for path, digest in parse_sums(data, self.name).items() if wants(path)
        }
        with ThreadPoolExecutor(self._limits.parallel) as pool:
            sizes = pool.map(lambda path: self._client.size(self._url(path), path), digests)
            files = tuple(
                RemoteFile(path, size, Digest("sha256", digest))
                for (path, digest), size in zip(digests.items(), sizes, strict=True)
            )
        return ModelListing(self.name, list_revision(files), files)

    def _url(self, path: str) -> str:
        return f"{self._base}/{quote(path)}"
