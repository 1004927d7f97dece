"""Outputs of the authors' code, and our samples rebuilt from the inputs that it was given."""

from functools import cached_property
from pathlib import Path

import pytest
import torch
from torch import Tensor

from diptych.core import BIDIRECTIONAL, IGNORE, TEXT_AFTER_REGIONS, Regions, Sample
from diptych.systems.unified_vlp.checkpoint import import_unified_vlp
from diptych.systems.unified_vlp.model import UnifiedVLP
from tests.parity.detector_sets import WEIGHTS, names, sets
from tests.parity.sets import SETS, Official, weights
from tests.support.checkpoints import load_checkpoint

collect_ignore = [] if any(names(folder, WEIGHTS) for folder in sets("vlp_x101")) else ["test_vlp_x101_network.py"]


@pytest.fixture(scope="session", params=SETS)
def parity_folder(request: pytest.FixtureRequest) -> Path:
    return SETS[request.param]


class OfficialVLP(Official):
    @cached_property
    def model(self) -> UnifiedVLP:
        theirs = weights(self.folder, "weights", self.vocabulary_file.parent)
        sizes = {"heads": self.config["heads"], "max_regions": self.config["regions"]}
        return load_checkpoint(UnifiedVLP, import_unified_vlp, theirs, self.vocabulary_file, **sizes)[0].eval()

    @property
    def regions(self) -> int:
        return int(self.config["regions"])

    @property
    def sep(self) -> int:
        return self.special["[SEP]"]

    def sample(self, case: str, row: int) -> Sample:
        read = {k.removeprefix(f"{case}."): v[row] for k, v in self.inputs.items() if k.startswith(f"{case}.")}
        length = int(self.inputs["raw.caption_len"][row]) + 1
        text = read["input_ids"][self.regions + 2 :][: 0 if case == "decode" else length]
        labels = torch.full_like(text, IGNORE)
        if "masked_pos" in read:
            said = read["masked_weights"].bool()
            labels[read["masked_pos"][said] - self.regions - 2] = read["masked_lm_labels"][said]
        regions = self._regions(row)
        if "vis_masked_pos" in read:
            hidden = torch.zeros(self.regions, dtype=torch.bool)
            hidden[read["vis_masked_pos"] - 1] = True
            regions = regions.hide(hidden)
        truth = {}
        if "ans_labels" in read:
            truth = {"answer_scores": {n: float(v) for n, v in enumerate(read["ans_labels"]) if v}}
        return Sample(
            key=f"{case}/{row}",
            picture=str(row),
            regions=regions,
            text=text,
            text_labels=labels,
            attention=TEXT_AFTER_REGIONS if case.startswith(("s2s", "decode")) else BIDIRECTIONAL,
            truth=truth,
        )

    def _regions(self, row: int) -> Regions:
        raw = self.inputs["raw.region_bbox"][row]
        # The picture's size is not told. A power of two makes fractions exact.
        size = 2 ** int(raw[:, :4].max().log2().ceil())
        return Regions(
            boxes=raw[:, :4] / size,
            scores=raw[:, 5],
            size=(size, size),
            classes=self.inputs["raw.region_cls_prob"][row],
            features=self.inputs["raw.region_feat"][row],
        )

    def valid(self, case: str) -> Tensor:
        """(B, L) of our sequence: what is there."""
        batch = self.batch(case)
        mark = torch.ones(len(batch), 1, dtype=torch.bool)
        return torch.cat([mark, batch.regions_present, mark, batch.text_present], 1)


@pytest.fixture(scope="session")
def unified_vlp(parity_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> OfficialVLP:
    folder = parity_folder / "unified_vlp"
    if not folder.is_dir():
        pytest.skip(f"{parity_folder} has no unified_vlp")
    return OfficialVLP.of(folder, tmp_path_factory.mktemp("parity"), "grads")
