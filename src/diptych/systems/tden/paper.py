"""The tables of TDEN (Li et al., AAAI 2021, arXiv 2101.11562)."""

from __future__ import annotations

from functools import partial

from diptych.systems.commands import BERT, CAPTION_METRICS, evaluate, finetune, folder, pretrain, submit
from diptych.systems.ledger import Paper, Part, Row, Table, numbers
from diptych.systems.unified_vlp import paper as unified_vlp
from diptych.systems.vl_bert import paper as vl_bert

AT, VCR = ("R1", "R5", "R10"), ("Q→A", "QA→R", "Q→AR")
PARTS = (
    Part("COCO test", unified_vlp.CAPTION, "caption"),
    Part("VQA 2.0 test-dev", unified_vlp.VQA, "vqa"),
    Part("Flickr30k image retrieval", AT, "retrieval"),
    Part("VCR val", VCR, "vcr"),
)
# Two numbers: of Karpathy's test pictures / of the server, c40; test-dev/test-std; val/test.
SERVED = (
    Part("COCO test 5k / server c40", unified_vlp.CAPTION, "caption"),
    Part("VQA 2.0 test-dev/test-std", unified_vlp.VQA, "vqa"),
    PARTS[2],
    Part("VCR val/test", VCR, "vcr"),
)
ICLR = "The numbers are the ICLR version's: VQA of base and of large, VCR of base."
_row = partial(Row, system="tden")


def _line(name: str, cells: str) -> Row:
    return Row(name, numbers(cells))


def four(name: str, model: str = "none", begin: str = "", served: bool = False) -> tuple[str, ...]:
    """The four tasks; `served`: what the servers score, too."""
    caption, scst, vqa, search, vcr = (folder(name, task) for task in ("caption", "scst", "vqa", "retrieval", "vcr"))
    given = [
        finetune("caption", "tden/caption", "COCO", model, caption, begin),
        finetune("caption", "tden/scst", "COCO", caption, scst),
        evaluate(scst, "COCO", CAPTION_METRICS),
        submit(scst, "COCO2014", "coco"),
        finetune("vqa", "tden/vqa", "VQA", model, vqa, begin),
        submit(vqa, "VQA", "vqa"),
        finetune("retrieval", "tden/retrieval", "FLICKR30K", model, search, begin),
        evaluate(search, "FLICKR30K"),
        finetune("vcr", "tden/vcr", "VCR", model, vcr, begin),
        evaluate(vcr, "VCR", "--split val"),
        submit(vcr, "VCR", "vcr"),
    ]
    return tuple(one for one in given if served or not ("--submit coco" in one or "--submit vcr" in one))


def pretrained(recipe: str, served: bool = False) -> tuple[str, ...]:
    return (pretrain(recipe, "CC", "--init BERT --vocab VOCAB"), *four(recipe, folder(recipe), served=served))


def iclr() -> tuple[str, ...]:
    recipe = "vl-bert/iclr/text-too"
    texts = "--init BERT --vocab VOCAB --set data.text=SENTENCES"
    return (
        pretrain(recipe, "CC", texts),
        *vl_bert.vqa(recipe, folder(recipe)),
        *vl_bert.vcr(recipe, folder(recipe))[:2],
    )


_TABLE_2 = {
    "1: MLM, MOC, ISM": "39.2 28.9 129.1 22.8 | 71.9 88.1 53.7 62.3 | 61.8 87.1 92.2 | 74.6 75.9 56.9",
    "2: MSG, ISM": "39.3 29.3 131.0 23.1 | 71.7 87.9 53.4 62.0 | 61.7 87.0 92.2 | 74.5 75.9 56.8",
    "3: MLM, MOC, MSG": "39.7 29.3 131.8 23.1 | 72.0 88.1 54.3 62.2 | 60.6 86.1 91.4 | 74.8 76.0 57.3",
    "4: MLM, MOC, MSG, ISM*": "39.5 29.2 130.3 23.0 | 71.9 88.0 54.2 62.2 | 60.2 85.7 91.2 | 74.6 76.4 57.2",
    "5: MLM, MOC, MSG, ISM": "39.7 29.4 132.4 23.2 | 72.1 88.1 54.2 62.6 | 62.5 86.7 92.3 | 74.8 76.1 57.3",
    "6: all, Two-Pass-A": "40.2 29.7 133.4 23.5 | 72.5 88.5 54.7 63.0 | 63.6 88.2 92.9 | 75.2 76.7 58.1",
    "7: all, Two-Pass-B": "40.1 29.6 133.0 23.4 | 72.3 88.4 54.2 62.7 | 63.6 87.8 92.9 | 75.3 76.9 58.2",
    "8: all, Two-Pass-C": "40.0 29.6 133.0 23.4 | 72.2 88.1 54.6 62.7 | 63.4 87.4 92.7 | 75.1 77.0 58.3",
}

TDEN = Paper(
    "tden",
    "Li et al. 2021, arXiv 2101.11562",
    (
        Table(
            1,
            "Four tasks, against the state of the art",
            (
                _line("BUTD", "36.3 27.7 120.1 21.4 | 65.3/65.7 81.8/82.2 44.2/43.9 56.1/56.3 | - - - | - - -"),
                _line("AoANet", "38.9 29.2 129.8 22.4 | - - - - | - - - | - - -"),
                _line("BAN", "- - - - | 70.0/70.4 85.4/85.8 54.0/53.7 60.5/60.7 | - - - | - - -"),
                _line("DFAF", "- - - - | 70.2/70.3 86.1/- 53.3/- 60.5/- | - - - | - - -"),
                _line("MCAN", "- - - - | 70.6/70.9 86.8/- 53.3/- 60.7/- | - - - | - - -"),
                _line("SCAN", "- - - - | - - - - | 48.6 77.7 85.2 | - - -"),
                _line("R2C", "- - - - | - - - - | - - - | 63.8/65.1 67.2/67.3 43.1/44.0"),
                _row(
                    "TDEN−",
                    numbers(
                        "38.8 28.8 128.2 22.8 | 69.8/- 86.3/- 49.5/- 60.4/- | 55.6 81.8 88.5 | 73.0/- 74.4/- 54.5/-"
                    ),
                    four("tden/without-pretraining", begin=BERT),
                    note="Without pre-training on pictures; that it begins from BERT is not said.",
                ),
                _line("LXMERT", "- - - - | 72.4/72.5 -/88.2 -/54.2 -/63.1 | - - - | - - -"),
                _line("VisualBERT", "- - - - | 70.8/71.0 - - - | - - - | 70.8/71.6 73.2/73.2 52.2/52.4"),
                _line("ViLBERT", "- - - - | 70.6/70.9 - - - | 58.2 84.9 91.5 | 72.4/73.3 74.5/74.6 54.0/54.8"),
                Row(
                    "VL-BERT",
                    numbers("- - - - | 71.2/72.2 - - - | - - - | 73.8/- 74.4/- 55.2/-"),
                    iclr(),
                    "vl-bert",
                    ICLR,
                ),
                Row(
                    "Unified VLP",
                    numbers("39.5 29.3 129.3 23.2 | 70.5/70.7 87.2/87.4 52.1/52.1 60.3/60.5 | - - - | - - -"),
                    (
                        *unified_vlp.self_critical(),
                        *unified_vlp.vqa(unified_vlp.FULL, folder(unified_vlp.FULL)),
                    ),
                    "unified-vlp",
                ),
                _row(
                    "TDEN (Single-stream)",
                    numbers(
                        "38.6 28.8 128.6 22.6 | 70.7/- 86.9/- 53.7/- 60.6/- | 56.2 84.3 90.3 | 73.3/- 74.9/- 55.2/-"
                    ),
                    pretrained("tden/pretrain/single-stream"),
                ),
                _row(
                    "TDEN (Two-stream)",
                    numbers(
                        "39.1 29.1 129.6 22.9 | 70.9/- 87.2/- 52.8/- 61.0/- | 59.2 85.4 90.9 | 73.9/- 75.3/- 55.8/-"
                    ),
                    pretrained("tden/pretrain/two-stream"),
                ),
                _row(
                    "TDEN (Two-stream decoupled)",
                    numbers(
                        "40.2/70.7 29.7/38.7 133.4/130.4 23.5 | 72.5/72.8 88.5/88.8 54.7/53.8 63.0/63.2 | "
                        "63.6 88.2 92.9 | 75.2/75.7 76.7/76.4 58.1/58.0"
                    ),
                    pretrained("tden/pretrain/decoupled", served=True),
                ),
            ),
            SERVED,
        ),
        Table(
            2,
            "Proxy tasks and scheduled sampling",
            tuple(
                _row(name, numbers(cells), pretrained(f"tden/pretrain/table-2-row-{row}"))
                for row, (name, cells) in enumerate(_TABLE_2.items(), start=1)
            ),
            PARTS,
        ),
    ),
    {"tden/pretrain": "10 epochs on 16 P40"},
)
