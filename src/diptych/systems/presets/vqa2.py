"""VQA v2 as Unified VLP, VL-BERT (section 4.2.2) and TDEN ask it: a choice among 3,129 answers, BUTD's protocol.

VL-BERT's and TDEN's papers say of the split only that it is the official one, so their recipes train on its 444 k
questions of train. Unified VLP's appendix says that its results on test, Tables 2 and 4, are of models of train and
val, those of Table 7 of train alone. VL-BERT's code adds the 214 k of val too; nothing is then left to validate on.
"""

from __future__ import annotations

from typing import Any

from diptych.systems.recipe import DataConfig

VQA2 = DataConfig(answers_most=3129)
AND_VAL: dict[str, Any] = {"split": "train+val"}
