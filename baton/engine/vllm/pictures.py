"""Pictures for vLLM: decoded, scaled and placed by vLLM's own processor of the model."""

import warnings
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import torch
from PIL import Image
from vllm.config import VllmConfig
from vllm.multimodal import MULTIMODAL_REGISTRY
from vllm.multimodal.inputs import MultiModalFeatureSpec, MultiModalKwargsItem, PlaceholderRange
from vllm.multimodal.processing import ProcessorInputs, TimingContext

from baton.engine.base import SequenceRequest
from baton.engine.pictures import PictureError, PictureReader, PictureTokens
from baton.request.limits import MAX_PICTURE_PIXELS
from baton.settings import StartupError

IMAGE = "image"
"""vLLM's name of the modality."""
_FORMATS = ("PNG", "JPEG", "WEBP", "GIF")
_SIZES = ((64, 64), (640, 480), (480, 640), (1500, 200), (9, 700))
"""Of pictures by which a model shows whether the number of tokens depends on the size."""


class _Processed(NamedTuple):
    """A picture as vLLM's processor returns it."""

    stands_for: PictureTokens
    embedded: torch.Tensor | None
    """Which of them are given embeddings; None: all."""
    item: MultiModalKwargsItem
    """Input of the model's vision part."""


class VllmPictures(PictureReader):
    """The pictures of one model."""

    def __init__(self, config: VllmConfig, model: Path) -> None:
        """Find out what stands for a picture.

        Args:
            config: of a model that takes pictures.
            model: the checkpoint's directory.

        Raises:
            StartupError: it depends on the picture's size, or cannot be told.
        """
        self._processor: Any = MULTIMODAL_REGISTRY.create_processor(config.model_config)
        self._prompt = _prompt(config, self._processor.info.get_tokenizer())
        found = {self._process(Image.new("RGB", size, "gray")).stands_for for size in _SIZES}
        if len({each.tokens for each in found}) > 1:
            lengths = sorted(len(each.tokens) for each in found)
            raise StartupError(
                f"{model} has {lengths[0]} to {lengths[-1]} tokens for a picture, depending on its "
                "size, which is not supported yet: if its processor can treat all alike, set that "
                "with mm_processor_kwargs in BATON_ENGINE_VLLM_ARGS."
            )
        self.tokens = found.pop()

    def read(self, data: bytes) -> _Processed:
        processed = self._process(_decode(data))
        if processed.stands_for != self.tokens:
            raise PictureError(
                f"the model has {len(processed.stands_for.tokens)} tokens for it instead of "
                f"{len(self.tokens.tokens)}"
            )
        return processed

    def _process(self, image: Image.Image) -> _Processed:
        items = self._processor.info.parse_mm_data({IMAGE: [image]})
        inputs = ProcessorInputs(list(self._prompt), items)
        made = self._processor.apply(inputs, TimingContext(enabled=False))
        (place,) = made["mm_placeholders"][IMAGE]
        ids, end = made["prompt_token_ids"], place.offset + place.length
        expected = [*self._prompt[: place.offset], *ids[place.offset : end]]
        if ids != [*expected, *self._prompt[place.offset + 1 :]]:
            raise RuntimeError(f"vLLM made {ids} of the prompt {self._prompt} with a picture")
        (item,) = made["mm_kwargs"][IMAGE]
        tokens = PictureTokens(self._prompt[place.offset], tuple(ids[place.offset : end]))
        return _Processed(tokens, place.is_embed, item)


def picture_features(request: SequenceRequest) -> list[MultiModalFeatureSpec]:
    """Return a request's pictures for vLLM.

    Embeddings are shared by pictures of equal bytes under equal roots: no tenant learns from their
    cache what others sent.

    Raises:
        ValueError: not every run of placeholder tokens has its picture.
    """
    pictures: Sequence[_Processed] = request.pictures
    if len(pictures) != len(request.runs):
        raise ValueError(f"{len(pictures)} pictures for {len(request.runs)} runs of placeholders")
    return [
        MultiModalFeatureSpec(
            data=picture.item,
            modality=IMAGE,
            identifier=f"{request.root.hex()}-{run.digest.hex()}",
            mm_position=PlaceholderRange(run.offset, run.length, picture.embedded),
        )
        for run, picture in zip(request.runs, pictures, strict=True)
    ]


def _prompt(config: VllmConfig, tokenizer: Any) -> list[int]:
    """Return the tokens of the text that stands for one picture in vLLM's own prompts."""
    model_class: Any = config.model_config.registry.resolve_model_cls(
        config.model_config.architectures, config.model_config
    )[0]
    text = model_class.get_placeholder_str(IMAGE, 1)
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False)
    return ids


def _decode(data: bytes) -> Image.Image:
    """Return a decoded picture, or the first frame of an animated one."""
    try:
        with warnings.catch_warnings():
            # PIL warns of pictures that are larger than its own limit.
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            image = Image.open(BytesIO(data), formats=_FORMATS)
            width, height = image.size
            if width * height > MAX_PICTURE_PIXELS:
                raise PictureError(
                    f"{width} × {height} pixels exceed the limit of {MAX_PICTURE_PIXELS} pixels"
                )
            return image.convert("RGB")
    except PictureError:
        raise
    except Exception as error:  # a decoder may fail in any way
        raise PictureError("it is broken") from error
