"""Adapters' files on this machine: downloaded into a bounded cache, or in a directory already."""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from baton.engine.checkpoint.record import hold_record
from baton.engine.lora.config import CONFIG, AdapterError
from baton.engine.lora.limits import AdapterLimits
from baton.engine.lora.weights import WEIGHTS
from baton.models.errors import PullError
from baton.models.limits import PullLimits
from baton.models.pull.progress import PullProgress
from baton.models.pull.pull import ModelPull
from baton.models.pull.store import ModelStore
from baton.models.sources.addresses import open_source
from baton.models.sources.names import scheme_of
from baton.models.sources.select import FileSelection
from baton.models.sources.source import ModelListing, ModelSource

DEFAULT_BYTES = 4 * 1024 * 1024 * 1024
DOWNLOADS = PullLimits(
    parallel=2, attempts=3, read_seconds=10.0, max_backoff_seconds=5.0, lock_seconds=60.0
)
_CONFIG_BYTES = 4 * 1024 * 1024


def default_directory() -> Path:
    """Return the cache that is used unless the settings name one: this user's."""
    return Path(tempfile.gettempdir(), f"baton-adapters-{os.getuid()}")


class HeldFiles:
    """An adapter's files, which stay until `close`, also if the cache needs room.

    Args:
        directory: in PEFT's layout.
        holder: descriptor that keeps it in the cache; None: it is none of the cache's.
    """

    def __init__(self, directory: Path, holder: int | None = None) -> None:
        self.directory = directory
        self._holder = holder

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let them go; a second call has no effect."""
        holder, self._holder = self._holder, None
        if holder is not None:
            os.close(holder)


class AdapterCache:
    """Downloads adapters; those used longest ago make room. Any thread may call it.

    Several processes may share its directory.

    Args:
        directory: created when it is first needed.
        max_bytes: of all adapters together; what is in use may exceed it for a while.
        pulls: limits of a download.
    """

    def __init__(
        self,
        directory: Path | None = None,
        max_bytes: int = DEFAULT_BYTES,
        pulls: PullLimits = DOWNLOADS,
    ) -> None:
        self._directory = directory or default_directory()
        self._max_bytes = max_bytes
        self._pulls = pulls
        self._closed = False

    def close(self) -> None:
        """End downloads within a second, each with an error."""
        self._closed = True

    def hold(self, directory: Path) -> HeldFiles | None:
        """Return files that were downloaded before; None: they had to make room."""
        holder = hold_record(directory)
        return None if holder is None else HeldFiles(directory, holder)

    def fetch(self, location: str, limits: AdapterLimits) -> HeldFiles:
        """Bring an adapter here, unless it is here; the caller closes what is returned.

        Its digest is not compared with any: its source may have another adapter now.

        Args:
            location: a directory's absolute path, or a URL as of `check_location`.
            limits: of the model; longer files are not downloaded.

        Raises:
            AdapterError: it cannot be downloaded, is too long, or the disk has no room.
        """
        if not scheme_of(location):
            return HeldFiles(Path(location))
        try:
            with self._opened(location) as source:
                bounded = _BoundedSource(source, self._most(limits))
                store = ModelStore(None, self._own_directory(), keep=1)
                selection = FileSelection((CONFIG, WEIGHTS))
                pull = ModelPull(
                    bounded, store, selection, self._pulls, PullProgress(), self._check_open
                )
                directory = pull.run().directory
                held = self.hold(directory)
                if held is None:
                    raise PullError(f"{directory} had to make room at once: try again.")
                os.utime(directory)
                store.prune_oldest(self._max_bytes)
        except (PullError, OSError) as error:
            raise AdapterError(str(error).removesuffix(".")) from error
        return held

    def _most(self, limits: AdapterLimits) -> int:
        return min(limits.max_bytes or self._max_bytes, self._max_bytes)

    def _own_directory(self) -> Path:
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            owner = self._directory.stat().st_uid
        except OSError as error:
            raise PullError(f"{self._directory} cannot be used: {error.strerror}.") from error
        if owner != os.getuid():
            raise PullError(
                f"{self._directory} belongs to another user: set BATON_ENGINE_ADAPTER_CACHE."
            )
        return self._directory

    def _check_open(self) -> None:
        if self._closed:
            raise PullError("this process is stopping.")

    @contextmanager
    def _opened(self, location: str) -> Iterator[ModelSource]:
        source = open_source(location, self._pulls, os.environ)
        try:
            yield source
        finally:
            source.close()


class _BoundedSource:
    """A source whose adapter is rejected before a byte of a file is requested if it is too long."""

    def __init__(self, source: ModelSource, max_bytes: int) -> None:
        self.name, self.identity, self.requested = source.name, source.identity, source.requested
        self.open, self.close = source.open, source.close
        self._source = source
        self._max_bytes = max_bytes

    def list_files(self, wants: Callable[[str], bool]) -> ModelListing:
        """Return the files; errors as `ModelSource.list_files`."""
        listing = self._source.list_files(wants)
        sizes = {file.path: file.size for file in listing.files}
        if missing := {CONFIG, WEIGHTS} - sizes.keys():
            raise PullError(
                f"{self.name} has no {min(missing)}: upload a directory that PEFT's "
                "save_pretrained wrote."
            )
        for path, most in ((CONFIG, _CONFIG_BYTES), (WEIGHTS, self._max_bytes)):
            if sizes[path] > most:
                raise PullError(
                    f"{self.name} has a {path} of {sizes[path]} bytes, and {most} are allowed."
                )
        return listing
