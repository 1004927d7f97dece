"""The tables of XGPT (Xia et al. 2020, arXiv 2003.01473)."""

from __future__ import annotations

from functools import partial

from diptych.systems.commands import CAPTION_METRICS, UNILM, evaluate, finetune, folder, pretrain
from diptych.systems.image_bert import paper as image_bert
from diptych.systems.ledger import Paper, Part, Row, Table, numbers
from diptych.systems.unified_vlp import paper as unified_vlp

CAPTION = ("C", "B@4", "M", "S")
COCO = (Part("COCO test", CAPTION, "caption"),)
BOTH = (Part("Flickr30k test", CAPTION, "caption"), *COCO)
TEXT, WEB = "xgpt/text", "xgpt/pretrain"
VOCAB = "--set data.vocabulary=VOCAB"
TASKS = ("IC", "IC + IMLM", "IC + IDA", "IC + TIFG", "IC + IMLM + IDA + TIFG")
BEFORE = {6: 2, 7: 3, 8: 4, 9: 5}  # rows of Table 2 in domain, and those with the same tasks out of domain
_row = partial(Row, system="xgpt")


def _line(name: str, cells: str) -> Row:
    return Row(name, numbers(cells))


def text() -> str:
    """SENTENCES: a text file; VOCAB: `diptych tokens --kind bpe --size 30000` of it."""
    return pretrain(TEXT, "CC", "--vocab VOCAB --set data.text=SENTENCES")


def web(recipe: str) -> tuple[str, str]:
    """Text, then pairs out of domain."""
    return text(), pretrain(recipe, "CC", f"--model {folder(TEXT)}")


def captions(model: str, name: str, data: str = "COCO", recipe: str = "xgpt/caption") -> tuple[str, ...]:
    out = folder(name, data.lower())
    return finetune("caption", recipe, data, model, out), evaluate(out, data, CAPTION_METRICS)


def in_domain(recipe: str, before: str, data: str = "COCO") -> str:
    return pretrain(recipe, data, f"--model {folder(before)}")


def table_2(row: int) -> tuple[str, ...]:
    first = f"xgpt/pretrain/table-2-row-{BEFORE.get(row, row)}"
    if row not in BEFORE:
        return (*web(first), *captions(folder(first), first))
    second = f"xgpt/in-domain/table-2-row-{row}"
    return (*web(first), in_domain(second, first), *captions(folder(second), second))


def table_3(name: str) -> tuple[str, ...]:
    recipe = f"xgpt/caption/table-3-{name}"
    out = folder(recipe)
    return finetune("caption", recipe, "COCO", "none", out, VOCAB), evaluate(out, "COCO", CAPTION_METRICS)


def table_4(masks: str) -> tuple[str, ...]:
    recipe = f"xgpt/pretrain/table-4-{masks}"
    return (*web(recipe), *captions(folder(recipe), recipe))


def on_coco() -> tuple[str, ...]:
    return (in_domain("xgpt/in-domain", WEB), *captions(folder("xgpt/in-domain"), "xgpt/in-domain"))


def on_flickr30k() -> tuple[str, ...]:
    recipe = "xgpt/in-domain/flickr30k"
    before = in_domain(recipe, WEB, "FLICKR30K")
    return (before, *captions(folder(recipe), recipe, "FLICKR30K", "xgpt/caption/flickr30k"))


def augmented() -> tuple[str, ...]:
    """XGPT writes captions of Flickr30k, and ImageBERT learns from them too."""
    model, more, out = folder("xgpt/in-domain/flickr30k", "flickr30k"), "FLICKR30K-MORE", folder("image-bert/augmented")
    return (
        *web(WEB),
        *on_flickr30k(),
        f"diptych augment FLICKR30K {more} --model {model} --captions 2",
        image_bert.pairs(),
        finetune("retrieval", image_bert.TUNED, more, folder(image_bert.FULL), out),
        evaluate(out, more),
    )


def text_alone() -> tuple[str, ...]:
    """The baseline: captions from a model of text."""
    return (
        text(),
        *captions(folder(TEXT), TEXT),
        *captions(folder(TEXT), TEXT, "FLICKR30K", "xgpt/caption/flickr30k"),
    )


def unified(model: str) -> tuple[str, ...]:
    """Unified VLP's rows, as in its own Table 2."""
    if model == "none":
        return (
            *unified_vlp.coco("unified-vlp/from-unilm", begin=UNILM),
            *unified_vlp.flickr30k("unified-vlp/from-unilm", begin=UNILM),
        )
    given = unified_vlp.FULL, folder(unified_vlp.FULL)
    return (unified_vlp.on_pairs(unified_vlp.FULL), *unified_vlp.coco(*given), *unified_vlp.flickr30k(*given))


_TABLE_2 = (
    "116.4 35.9 28.2 21.1",
    "117.7 36.2 28.2 21.2",
    "118.1 36.4 28.3 21.3",
    "117.3 36.0 28.2 21.2",
    "118.3 36.5 28.4 21.3",
    "119.1 36.7 28.5 21.5",
    "119.2 36.6 28.5 21.6",
    "118.2 36.4 28.4 21.3",
    "120.1 37.2 28.6 21.8",
)
_STAGES = [*(f"CC: {tasks}" for tasks in TASKS), *(f"CC, then COCO: {tasks}" for tasks in TASKS[1:])]

XGPT = Paper(
    "xgpt",
    "Xia et al. 2020, arXiv 2003.01473",
    (
        Table(
            1,
            "Captions, against the state of the art",
            (
                _line("BUTD", "56.6 27.3 21.7 16.0 | 113.5 36.2 27.0 20.3"),
                _line("NBT (with BBox)", "57.5 27.1 21.7 15.6 | 107.2 34.7 27.1 20.1"),
                _line("GCN-LSTM (spa)", "- - - - | 115.6 36.5 27.8 20.9"),
                _line("GCN-LSTM (sem)", "- - - - | 116.3 36.8 27.9 20.9"),
                _line("GVD", "62.3 27.3 22.5 16.5 | - - - -"),
                _line("AoANet", "- - - - | 119.8 37.2 28.4 21.3"),
                Row(
                    "Unified VLP*",
                    numbers("56.8 27.6 20.9 15.3 | 114.3 35.5 28.2 21.0"),
                    unified("none"),
                    "unified-vlp",
                    "Without pre-training on pictures, from UniLM.",
                ),
                Row(
                    "Unified VLP",
                    numbers("67.4 30.1 23.0 17.0 | 116.9 36.5 28.4 21.2"),
                    unified(unified_vlp.FULL),
                    "unified-vlp",
                ),
                _row(
                    "XGPT*",
                    numbers("53.0 25.7 20.3 14.7 | 113.0 34.4 27.8 20.8"),
                    text_alone(),
                    note="Pre-trained on text alone.",
                ),
                _row(
                    "XGPT",
                    numbers("70.9 31.8 23.6 17.6 | 120.1 37.2 28.6 21.8"),
                    (*web(WEB), *on_coco(), *on_flickr30k()),
                ),
            ),
            BOTH,
        ),
        Table(
            2,
            "Pre-training tasks, COCO test",
            tuple(
                _row(name, numbers(cells), table_2(row))
                for row, (name, cells) in enumerate(zip(_STAGES, _TABLE_2, strict=True), start=1)
            ),
            COCO,
        ),
        Table(
            3,
            "Structures without pre-training, COCO test",
            (
                _row("Tiny Enc", numbers("112.1 34.1 27.9 20.6"), table_3("tiny-enc")),
                _row("Tiny EncDec", numbers("110.8 33.7 27.6 20.5"), table_3("tiny-encdec")),
                _row("Tiny EncDecShare", numbers("112.7 34.6 27.9 20.7"), table_3("tiny-encdec-share")),
                _row("Base EncDecShare", numbers("112.9 35.0 27.9 20.8"), table_3("base-encdec-share")),
            ),
            COCO,
        ),
        Table(
            4,
            "IDA's masks, COCO test",
            (
                _row("multi [MASK]", numbers("117.8 36.1 28.2 21.3"), table_4("multi")),
                _row("single [MASK]", numbers("118.1 36.4 28.3 21.3"), table_4("single")),
            ),
            COCO,
        ),
        Table(
            5,
            "Image retrieval with captions that XGPT wrote, Flickr30k",
            (
                Row(
                    "ViLBERT",
                    numbers("58.2 84.9 91.5"),
                    note="The same can be asked of ImageBERT: its Table 2 without captions that were written.",
                ),
                Row(
                    "ViLBERT + augmentation",
                    numbers("60.4 86.4 91.9"),
                    augmented(),
                    note="With ImageBERT in ViLBERT's place.",
                ),
            ),
            (Part("Flickr30k image retrieval", ("R@1", "R@5", "R@10"), "retrieval"),),
        ),
        Table(
            6,
            "Captions that XGPT wrote beside people's: an example",
            (_row("XGPT-generated captions", (), note="`diptych augment` writes them, `diptych caption` shows them."),),
        ),
        Table(
            7,
            "The same: an example that went wrong",
            (_row("XGPT-generated captions", (), note="As Table 6."),),
        ),
    ),
    dict.fromkeys((WEB, "xgpt/in-domain"), "8 days on 8 V100, both stages together") | {"xgpt/caption": "4 GPUs"},
)
