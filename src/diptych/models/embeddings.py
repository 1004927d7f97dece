"""Embeddings of words, positions and segments."""

from typing import cast

from jaxtyping import Float, Int
from torch import Tensor, nn

from diptych.models.dropout import Dropout
from diptych.models.system import ResolvedConfig


class TextEmbedding(nn.Module):
    """BERT's word, position and segment embeddings, with layer norm and dropout on their sum.

    Layer norm and dropout also apply to regions. A model therefore appends the regions to the result of `forward`, then
    calls `finish`.
    """

    def __init__(self, config: ResolvedConfig, segments: int, norm_eps: float | None = None) -> None:
        """`segments`: number of segments. `norm_eps`: epsilon of the layer norm; None: the config's."""
        super().__init__()
        self.words = nn.Embedding(config.vocabulary.size, config.width)
        self.positions = nn.Embedding(config.positions, config.width)
        self.segments = nn.Embedding(segments, config.width)
        self.norm = nn.LayerNorm(config.width, config.norm_eps if norm_eps is None else norm_eps)
        self.dropout = Dropout(config.dropout)

    def forward(
        self, words: Int[Tensor, "B L"], positions: Int[Tensor, "*L"], segments: Int[Tensor, "B L"]
    ) -> Float[Tensor, "B L D"]:
        """Return the sum of the three embeddings, not normalised. `positions` is (B, L), or (L,) for all samples."""
        return cast(Tensor, self.words(words) + self.positions(positions) + self.segments(segments))

    def finish(self, total: Float[Tensor, "B L D"]) -> Float[Tensor, "B L D"]:
        """Apply layer norm and dropout to the sum of embeddings."""
        return cast(Tensor, self.dropout(self.norm(total)))
