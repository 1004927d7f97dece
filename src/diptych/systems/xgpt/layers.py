"""XGPT's layers before the encoder: embeddings, the refining layer, and grounding of words in regions."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from diptych.core import Batch
from diptych.models.decoder import closed_of
from diptych.models.dropout import Dropout
from diptych.models.transformer import LayerSizes
from diptych.models.visual import geometry, region_features


class WordEmbedding(nn.Module):
    """Embed words as norm(word + position), without segments (section 3)."""

    def __init__(self, words: int, positions: int, sizes: LayerSizes) -> None:
        super().__init__()
        self.words = nn.Embedding(words, sizes.width)
        self.positions = nn.Embedding(positions, sizes.width)
        self.norm, self.dropout = nn.LayerNorm(sizes.width, sizes.norm_eps), Dropout(sizes.dropout)

    def forward(self, words: Int[Tensor, "B L"], positions: Int[Tensor, "#B L"]) -> Float[Tensor, "B L D"]:
        return self.finish(self.words(words) + self.positions(positions))

    def finish(self, total: Float[Tensor, "B L D"]) -> Float[Tensor, "B L D"]:
        finished: Tensor = self.dropout(self.norm(total))
        return finished


class RegionProjection(nn.Module):
    """Embed regions as norm(W [feature | box]) (section 3).

    A box is five numbers: corners and share of the image's area.

    A hidden region has no feature, but keeps its box.
    """

    def __init__(self, feature_size: int, sizes: LayerSizes) -> None:
        super().__init__()
        self.feature_size = feature_size
        self.project = nn.Linear(feature_size + 5, sizes.width)
        self.norm, self.dropout = nn.LayerNorm(sizes.width, sizes.norm_eps), Dropout(sizes.dropout)

    def forward(self, batch: Batch) -> Float[Tensor, "B R D"]:
        features = region_features(batch, self.feature_size).masked_fill(batch.hidden[..., None], 0)
        total = self.project(torch.cat([features, geometry(batch, "paper", "paper")], -1))
        embedded: Tensor = self.dropout(self.norm(total))
        return embedded


class RefiningLayer(nn.Module):
    """Attention on attention over the regions (Appendix A.1, as in AoANet, Huang et al. 2019).

    x' = norm(x + sigmoid(W1 q + W2 a + b1) * (W3 q + W4 a + b2)). q are the queries computed from x; a is the output of
    self-attention with these queries.
    """

    def __init__(self, sizes: LayerSizes) -> None:
        super().__init__()
        self.heads, self.size = sizes.heads, sizes.width // sizes.heads
        self.qkv = nn.Linear(sizes.width, 3 * sizes.width)
        self.gate = nn.Linear(2 * sizes.width, sizes.width)  # its weight is [W1 | W2] in the paper, its bias b1
        self.found = nn.Linear(2 * sizes.width, sizes.width)  # its weight is [W3 | W4] in the paper, its bias b2
        self.attention_dropout = Dropout(sizes.attention_dropout)
        self.norm, self.dropout = nn.LayerNorm(sizes.width, sizes.norm_eps), Dropout(sizes.dropout)

    def forward(self, x: Float[Tensor, "B R D"], present: Bool[Tensor, "B R"]) -> Float[Tensor, "B R D"]:
        rows = self.qkv(x)
        q, k, v = rows.unflatten(-1, (3, self.heads, self.size)).permute(2, 0, 3, 1, 4).unbind(0)
        scores = torch.add(closed_of(present, rows), q @ k.transpose(-1, -2), alpha=self.size**-0.5)
        attended = (self.attention_dropout(torch.softmax(scores, -1)) @ v).transpose(1, 2).flatten(2)
        both = torch.cat([rows[..., : x.shape[-1]], attended], -1)
        refined: Tensor = self.norm(x + self.dropout(torch.sigmoid(self.gate(both)) * self.found(both)))
        return refined


class Grounding(nn.Module):
    """Replace a word i by a weighted mean of the regions j (IDA, section 4.3).

    The weights are the softmax over j of A_ij = W [x_i | x_j | x_i * x_j]. W is a matrix 1 x 3D, because A_ij is a
    number (the paper writes "3 x h"). The first third of W has no effect: it adds the same number for all j, which the
    softmax cancels. It is kept, as in the paper.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.score = nn.Linear(3 * width, 1, bias=False)

    def weights(
        self, words: Float[Tensor, "B T D"], regions: Float[Tensor, "B R D"], present: Bool[Tensor, "B R"]
    ) -> Float[Tensor, "B T R"]:
        """Return the attention weight of each word to each region.

        Each word's weights of the `present` regions sum to 1.
        """
        of_word, of_region, of_both = self.score.weight.view(3, -1)
        scores = (words * of_both) @ regions.transpose(-1, -2)
        scores = scores + (words @ of_word)[..., None] + (regions @ of_region)[:, None]
        return torch.softmax(scores + closed_of(present, scores)[:, 0], -1)

    def forward(
        self, words: Float[Tensor, "B T D"], regions: Float[Tensor, "B R D"], present: Bool[Tensor, "B R"]
    ) -> Float[Tensor, "B T D"]:
        """Return embeddings that replace the word embeddings, including their position embeddings.

        Words of an image without regions are unchanged.
        """
        grounded = self.weights(words, regions, present) @ regions
        return torch.where(present.any(1)[:, None, None], grounded, words)
