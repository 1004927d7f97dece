"""Region embeddings of Unified VLP, as in the paper and as in the released code."""

from dataclasses import replace
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from diptych.core import Batch
from diptych.core.shares import Source
from diptych.models.dropout import Dropout
from diptych.runtime.devices import to_device
from diptych.runtime.errors import DataError, RecipeError


def geometry(batch: Batch, norm: Source, form: Source) -> Float[Tensor, "B R G"]:
    """Return corners and relative area of each box (G = 5).

    With form `official`, the detector's confidence is the sixth number (G = 6).

    norm `paper`: corners are divided by the image's size. norm `official`: they are divided by the largest coordinate
    of the image's boxes. The released code uses it as the size (vlp/seq2seq_loader.py:338, "lazy normalization").
    """
    boxes = batch.boxes
    if norm == "official" and boxes.shape[1]:
        pixels = boxes * batch.sizes.to(boxes.dtype)[:, [0, 1, 0, 1]][:, None]
        pixels = pixels * batch.regions_present[..., None]
        width = pixels[..., [0, 2]].amax((1, 2)) + 1e-5
        height = pixels[..., [1, 3]].amax((1, 2)) + 1e-5
        boxes = pixels / torch.stack([width, height, width, height], -1)[:, None]
    area = ((boxes[..., 3] - boxes[..., 1]) * (boxes[..., 2] - boxes[..., 0])).clamp(min=0)
    parts = [boxes, area[..., None]] + ([batch.scores[..., None]] if form == "official" else [])
    return torch.cat(parts, -1)


# True: the whole image is read as a region. "given": only if the store has a feature of the whole image.
WholeRegion = bool | Literal["given"]


def whole_region(setting: WholeRegion, stored: bool) -> bool:
    """Return True if the model reads the feature of the whole image.

    Raises RecipeError if `setting` is True but the store does not have this feature (`stored` is False).
    """
    if setting is True and not stored:
        raise RecipeError(
            "model.whole_region=true reads a feature of the whole image as an additional region, which the store "
            "lacks. Extract it (diptych extract DATA --out OUT --detector ... --image-feature densenet121), or set "
            "model.whole_region=false"
        )
    return setting is not False and stored


def whole_projection(region: int, whole: int) -> nn.Linear | None:
    """Return a layer that maps features of whole images to the size of region features. None: the sizes are equal.

    `whole` is 0 if there is no feature of the whole image. The papers have no such layer: in their data, one network
    computes both features.
    """
    return None if whole in (0, region) else nn.Linear(whole, region)


def with_image_feature(batch: Batch, projection: nn.Linear | None) -> Batch:
    """Append the whole image as a region with its own feature and without class.

    This region is never masked. Raises DataError if the feature is missing or has the wrong size.
    """
    whole = whole_feature(batch, projection)

    def last(values: Tensor, row: Tensor) -> Tensor:
        return torch.cat([values, row.to(values).expand(values.shape[0], 1, *values.shape[2:])], 1)

    off, on = torch.zeros(1, 1, device=batch.boxes.device), torch.ones(1, 1, device=batch.boxes.device)
    return replace(
        batch,
        boxes=last(batch.boxes, to_device([0.0, 0.0, 1.0, 1.0], batch.boxes.device)),
        scores=last(batch.scores, on),
        regions_present=last(batch.regions_present, on),
        chosen=last(batch.chosen, off),
        hidden=last(batch.hidden, off),
        features=None if batch.features is None else torch.cat([batch.features, whole[:, None]], 1),
        classes=None if batch.classes is None else last(batch.classes, off[..., None]),
    )


def whole_feature(batch: Batch, projection: nn.Linear | None) -> Float[Tensor, "B F"]:
    """Return the features of whole images in the size of region features. Raises DataError if they do not fit."""
    if batch.whole is None:
        raise DataError("the model needs a feature of the whole image; extract with --image-feature", key=batch.keys[0])
    size = wanted = batch.whole.shape[1]
    if projection is not None:
        wanted = projection.in_features
    elif batch.features is not None:
        wanted = batch.features.shape[2]
    if size != wanted:
        raise DataError(
            f"the feature of the whole image has {size} values, expected {wanted}; extract it again", key=batch.keys[0]
        )
    return batch.whole if projection is None else projection(batch.whole)


def place_input(
    batch: Batch, norm: Source, form: Source, classes: Float[Tensor, "B R C"] | None
) -> Float[Tensor, "B R P"]:
    """Return the input of the released `vis_pe_embed`: geometry and class probabilities, each layer-normalised."""
    numbers = geometry(batch, norm, form)
    parts = [F.layer_norm(numbers, numbers.shape[-1:])]
    if classes is not None:
        parts.append(F.layer_norm(classes, classes.shape[-1:]))
    return torch.cat(parts, -1)


class RegionEmbedding(nn.Module):
    """Embeddings of a region's feature and place. Their sum is an input of the transformer (Unified VLP, Eq. 1).

    paper:     feature = W_r R; place = W_p [norm(W_c C) | norm(W_g G)].
               With `fc7`, R is the input of the detector's last layer, which then belongs to the feature layers.
               The paper omits biases and nonlinearities; here the latter are ReLUs, as in the released code.
    official:  feature = two ReLU layers; the first can be initialised from the detector's fc7.
               place = one ReLU layer over G and C, which are layer-normalised without weights.
    """

    def __init__(
        self,
        *,
        width: int,
        feature_size: int,
        classes: int,
        form: Source,
        box_norm: Source,
        geometry_form: Source,
        dropout: float,
        norm_eps: float,
        fc7: bool = False,
    ) -> None:
        super().__init__()
        self.form, self.box_norm, self.geometry_form = form, box_norm, geometry_form
        self.classes, self.feature_size, self.norm_eps = classes, feature_size, norm_eps
        numbers = 6 if geometry_form == "official" else 5
        first = [nn.Linear(feature_size, feature_size), nn.ReLU()] if fc7 or form == "official" else []
        self.feature = nn.Sequential(*first, nn.Linear(feature_size, width), nn.ReLU())
        if form == "official":
            self.place = nn.Sequential(nn.Linear(numbers + classes, width), nn.ReLU())
        else:
            self.box = nn.Sequential(nn.Linear(numbers, width), nn.LayerNorm(width, norm_eps))
            if classes:
                self.kind = nn.Sequential(nn.Linear(classes, width), nn.LayerNorm(width, norm_eps))
            self.place = nn.Sequential(nn.Linear(width * (2 if classes else 1), width), nn.ReLU())
        self.dropout = Dropout(dropout)

    def forward(
        self, batch: Batch, unseen: Bool[Tensor, "B R"]
    ) -> tuple[Float[Tensor, "B R D"], Float[Tensor, "B R D"]]:
        """Return the embeddings of features and of places.

        The features and classes of `unseen` regions are set to 0, but not their boxes.
        """
        features, classes = self._inputs(batch)
        features = features.masked_fill(unseen[..., None], 0)
        if classes is not None:
            classes = classes.masked_fill(unseen[..., None], 0)
        if self.form == "official":
            place = self.place(place_input(batch, self.box_norm, self.geometry_form, classes))
        else:
            parts = [self.box(geometry(batch, self.box_norm, self.geometry_form))]
            if classes is not None:
                parts.insert(0, self.kind(classes))
            place = self.place(torch.cat(parts, -1))
        return self.dropout(self.feature(features)), self.dropout(place)

    def _inputs(self, batch: Batch) -> tuple[Tensor, Tensor | None]:
        features, empty = region_features(batch, self.feature_size), not batch.boxes.shape[1]
        if not self.classes:
            return features, None
        classes = features.new_zeros(*features.shape[:2], self.classes) if empty else batch.classes
        return features, _checked(batch, classes, "classes", self.classes)


def region_features(batch: Batch, size: int) -> Float[Tensor, "B R F"]:
    """Return the features of all regions, including masked ones.

    Raises DataError if they are missing or not of size `size`.
    """
    if batch.features is None and not batch.boxes.shape[1]:
        return batch.boxes.new_zeros(*batch.boxes.shape[:2], size)
    return _checked(batch, batch.features, "features", size)


def _checked(batch: Batch, values: Tensor | None, name: str, size: int) -> Tensor:
    if values is None:
        raise DataError(f"the image has no region {name}, which the model needs; extract it again", key=batch.keys[0])
    if values.shape[-1] != size:
        raise DataError(
            f"region {name} have {values.shape[-1]} values, the model needs {size}; extract again",
            key=batch.keys[0],
        )
    return values
