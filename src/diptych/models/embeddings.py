"""Words, positions and segments -> embeddings."""

from jaxtyping import Float, Int
from torch import Tensor, nn

from diptych.models.dropout import Dropout


class TextEmbedding(nn.Module):
    """The three lookups of BERT, and the norm and dropout over their sum.

    Regions share the segments, the norm and the dropout, so a model adds up its own sequence and calls `finish`.
    """

    def __init__(
        self, *, words: int, width: int, positions: int, segments: int, dropout: float, norm_eps: float
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.positions = nn.Embedding(positions, width)
        self.segments = nn.Embedding(segments, width)
        self.norm = nn.LayerNorm(width, norm_eps)
        self.dropout = Dropout(dropout)

    def forward(
        self, words: Int[Tensor, "B L"], positions: Int[Tensor, "*L"], segments: Int[Tensor, "B L"]
    ) -> Float[Tensor, "B L D"]:
        """The sum of the three, not yet normed. `positions` is (B, L) or (L,), the same for all."""
        total: Tensor = self.words(words) + self.positions(positions) + self.segments(segments)
        return total

    def finish(self, total: Float[Tensor, "B L D"]) -> Float[Tensor, "B L D"]:
        finished: Tensor = self.dropout(self.norm(total))
        return finished
