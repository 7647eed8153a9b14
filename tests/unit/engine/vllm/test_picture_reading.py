"""Pictures of a model that vLLM serves: what stands for them, and which are refused."""

from pathlib import Path

import pytest

from baton.engine.factory import create_engine
from baton.engine.pictures import PictureError
from baton.engine.testing.random_vision import (
    PICTURE_TOKENS,
    random_png,
    write_vision_checkpoint,
)
from baton.settings import EngineSettings, StartupError

pytestmark = [pytest.mark.vllm, pytest.mark.xdist_group("vllm-engines")]


def settings(model: Path, **more: object) -> EngineSettings:
    known = {"kind": "vllm", "model": model, "dtype": "float32", "kv_bytes": 32 * 1024 * 1024}
    return EngineSettings.model_validate(known | more)


def test_a_model_with_more_tokens_for_larger_pictures_is_refused(tmp_path: Path) -> None:
    model = write_vision_checkpoint(tmp_path, split=True)
    with pytest.raises(
        StartupError, match=r"has 141 to 504 tokens for a picture, depending on its"
    ):
        create_engine(settings(model))
    alike = {"mm_processor_kwargs": {"do_image_splitting": False}}
    engine = create_engine(settings(model, vllm_args=alike))
    try:
        assert "pictures" in engine.info.features
    finally:
        engine.close_engine()


def test_pictures_are_read_or_refused(tmp_path: Path) -> None:
    engine = create_engine(settings(write_vision_checkpoint(tmp_path)))
    try:
        assert engine.info.pictures is not None
        placeholder, tokens = engine.info.pictures
        assert tokens.count(placeholder) == PICTURE_TOKENS
        assert len(tokens) == PICTURE_TOKENS + 3
        assert engine.pictures is not None
        for width, height in ((1, 1), (3000, 2), (2, 3000), (640, 480)):
            assert engine.pictures.read(random_png(0, width, height)).stands_for.tokens == tokens
        for data in (b"", b"no picture", random_png(0)[:-60], random_png(0)[:40]):
            with pytest.raises(PictureError, match="it is broken"):
                engine.pictures.read(data)
        with pytest.raises(PictureError, match="4097 × 4096 pixels exceed the limit of 16777216"):
            engine.pictures.read(random_png(0, 4097, 4096))
    finally:
        engine.close_engine()
