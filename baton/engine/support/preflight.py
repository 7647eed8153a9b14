"""Check settings and the checkpoint before an engine is created."""

from baton.engine.checkpoint.integrity import check_contents, check_directory
from baton.engine.checkpoint.model_config import read_config
from baton.engine.support.check import check_architecture
from baton.engine.support.documents import CheckpointError
from baton.engine.vllm.environment import check_version
from baton.settings import EngineSettings, StartupError


def check_engine(settings: EngineSettings) -> None:
    """Check that the engine is installed, serves the checkpoint, and has all of it.

    Takes milliseconds, except for digests of files that changed since they were downloaded
    (`engine.model_digests`).

    Raises:
        StartupError: it is not installed, does not serve it (the text names one that does), or the
            checkpoint is incomplete or damaged.
    """
    try:
        if settings.model is not None:
            check_directory(settings.model)
        if settings.kind == "vllm":
            check_version()
            if settings.model is not None:
                check_architecture(settings.model, settings.kind, settings.context_tokens)
        elif settings.model is not None:
            read_config(settings.model, settings.context_tokens, settings.kind)
        if settings.model is not None:
            check_contents(settings.model, settings.kind != "sim", settings.model_digests)
    except CheckpointError as error:
        raise StartupError(str(error)) from error
