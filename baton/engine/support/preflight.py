"""Check settings and config.json before an engine is created."""

from baton.engine.checkpoint.model_config import read_config
from baton.engine.support.check import check_architecture
from baton.engine.support.documents import CheckpointError
from baton.engine.vllm.environment import check_version
from baton.settings import EngineSettings, StartupError


def check_engine(settings: EngineSettings) -> None:
    """Check that the engine is installed and serves the checkpoint; takes milliseconds.

    Raises:
        StartupError: it is not installed, or does not serve it; the text names one that does.
    """
    try:
        if settings.kind == "vllm":
            check_version()
            if settings.model is not None:
                check_architecture(settings.model, settings.kind, settings.context_tokens)
        elif settings.model is not None:
            read_config(settings.model, settings.context_tokens, settings.kind)
    except CheckpointError as error:
        raise StartupError(str(error)) from error
