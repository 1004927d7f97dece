"""Initialise XGPT from BERT. The authors train their initial weights on texts (`xgpt/text`), so this is our choice."""

import os
import re

from diptych.models.weights import ImportReport
from diptych.systems import bert
from diptych.systems.xgpt.model import Xgpt


def start_xgpt(model: Xgpt, source: str | os.PathLike[str]) -> ImportReport:
    """Initialise the words, the word head, the encoder and the decoder from BERT. `source`: a file, folder, or hub id.

    The layers of a shared stack are BERT's. A separate decoder has BERT's self-attention and feed-forward layers; its
    attention to the encoder stays random. XGPT has no segments, so BERT's segment of the first text is added to the
    positions.
    """
    path, ours, report = bert.read_bert(source)
    bert.check_words(path, ours, model.config.vocabulary)
    positions = bert.fit_positions(ours["text.positions.weight"], model.config.positions)
    ours["text.positions.weight"] = positions + ours.pop("text.segments.weight")[0]
    ours = {re.sub(r"^encoder\.layers\.", "encoder.", name): value for name, value in ours.items()}
    report.renamed = {old: re.sub(r"^encoder\.layers\.", "encoder.", new) for old, new in report.renamed.items()}
    decoder = {re.sub(r"^encoder\.(\d+)", r"own_decoder.\1.layer", name): ours[name] for name in ours}
    return bert.load_known(model, ours | {n: v for n, v in decoder.items() if n in model.state_dict()}, report)
