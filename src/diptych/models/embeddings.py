"""Embeddings of words, positions and segments."""

from typing import cast

from jaxtyping import Float, Int
from torch import Tensor, nn

from diptych.models.dropout import Dropout
from diptych.models.system import ResolvedConfig


class TextEmbedding(nn.Module):
    """BERT's three embedding tables, and the layer norm and dropout over their sum.

    Regions share the segments, the norm and the dropout. So a model concatenates its own sequence and calls `finish`.
    """

    def __init__(self, config: ResolvedConfig, segments: int, norm_eps: float | None = None) -> None:
        """`segments`: rows of that table. `norm_eps` of the layer norm; None: as in the config."""
        super().__init__()
        self.words = nn.Embedding(config.vocabulary.size, config.width)
        self.positions = nn.Embedding(config.positions, config.width)
        self.segments = nn.Embedding(segments, config.width)
        self.norm = nn.LayerNorm(config.width, config.norm_eps if norm_eps is None else norm_eps)
        self.dropout = Dropout(config.dropout)

    def forward(
        self, words: Int[Tensor, "B L"], positions: Int[Tensor, "*L"], segments: Int[Tensor, "B L"]
    ) -> Float[Tensor, "B L D"]:
        """The sum of the three embeddings, not yet normalised. `positions` is (B, L), or (L,) for all samples."""
        return cast(Tensor, self.words(words) + self.positions(positions) + self.segments(segments))

    def finish(self, total: Float[Tensor, "B L D"]) -> Float[Tensor, "B L D"]:
        """Layer norm and dropout."""
        return cast(Tensor, self.dropout(self.norm(total)))
