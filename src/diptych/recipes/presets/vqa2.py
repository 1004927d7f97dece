"""VQA v2 as Unified VLP, VL-BERT (section 4.2.2) and TDEN ask it: a choice among 3,129 answers, BUTD's protocol.

Their papers say of the split only that it is the official one, so their recipes train on its 444 k questions of train;
the code of the first two adds the 214 k of val for the server, on which nothing is then left to validate.
"""

from __future__ import annotations

from typing import Any

from diptych.recipes.recipe import DataConfig

VQA2 = DataConfig(answers_most=3129)
AND_VAL: dict[str, Any] = {"split": "train+val"}
