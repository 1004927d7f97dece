"""Score pairs without labels: the cosine of image and text by a CLIP model of open_clip.

LAION-400M (Schuhmann et al. 2021) kept pairs of 0.3 or more with ViT-B/32; LAION-5B (2022) kept English pairs of 0.28.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import normalize

from diptych.runtime.extras import requires_extra
from diptych.runtime.files import sha256_of
from diptych.vision.backbones.open_clip import loaded
from diptych.vision.decoder import shared_decoders
from diptych_mine.judge.scoring import Pair, Scorer

CLIP = "clip:"  # prefix of the name in --scorer
LEAST = 0.28
BATCH = 32  # images that are encoded together: a large model takes gigabytes for hundreds


@dataclass(frozen=True)
class ClipScorer:
    """A model of open_clip with its preparation of images and its tokeniser."""

    version: str
    model: Any
    prepare: Any
    tokenise: Any
    least: float = LEAST

    @torch.inference_mode()
    def score(self, pairs: Sequence[Pair]) -> list[float]:
        bodies = {id(pair.picture): pair.picture for pair in pairs}
        rows = {key: number for number, key in enumerate(bodies)}
        together = (list(bodies.values())[start : start + BATCH] for start in range(0, len(bodies), BATCH))
        seen = normalize(torch.cat([self.model.encode_image(self._pixels(batch)) for batch in together]), dim=1)
        read = normalize(self.model.encode_text(self.tokenise([pair.text for pair in pairs])), dim=1)
        cosines: list[float] = (seen[[rows[id(pair.picture)] for pair in pairs]] * read).sum(1).tolist()
        return cosines

    def _pixels(self, bodies: Sequence[bytes]) -> Tensor:
        pictures = [Image.fromarray(shared_decoders().read(body, "the file")) for body in bodies]
        return torch.stack([self.prepare(picture) for picture in pictures])


@cache
def load_clip(name: str) -> Scorer:
    """Open `clip:ARCHITECTURE/WEIGHTS`, once per process. WEIGHTS: a name that open_clip knows, or a file.

    Raises RecipeError for unknown names, and CheckpointError for unreadable weights.
    """
    with requires_extra(f"--scorer {name}", "open-clip"):
        import open_clip
    architecture, _, weights = name.removeprefix(CLIP).partition("/")
    file = Path(weights) if Path(weights).is_file() else None
    option = f"as --scorer clip:{architecture}/FILE"
    model, _ = loaded(architecture if file else f"{architecture}/{weights}".rstrip("/"), None, file, True, option)
    version = f"clip-{architecture}-{weights if file is None else sha256_of(file)[:16]}"
    settings = open_clip.transform.PreprocessCfg(**model.visual.preprocess_cfg)
    prepare = open_clip.transform.image_transform_v2(settings, is_train=False)
    torch.set_num_threads(1)
    return ClipScorer(version, model.float().eval(), prepare, open_clip.get_tokenizer(architecture))
