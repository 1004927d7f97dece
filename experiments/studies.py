"""What docs/results.md shows: a table for each study, and a line for each benchmark. docs/results/ has all figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from diptych import systems
from experiments.tables import Column, Path, Pivot

TITLES = {name: system.title for name, system in systems.SYSTEMS.items()}


@dataclass(frozen=True)
class Study:
    """A section of docs/results.md. `files` maps a name in the table to a result file (`""`: the only one)."""

    title: str
    files: Mapping[str, str]
    heads: Path
    rows: tuple[int, ...]
    columns: tuple[Column, ...]
    names: Mapping[str, str] = field(default_factory=dict)

    @property
    def pivot(self) -> Pivot:
        return Pivot(self.heads, self.rows, self.columns, self.names)


def _named(*names: str) -> tuple[Column, ...]:
    return tuple(Column((name,), name) for name in names)


SYSTEMS = Study(
    "Five systems on all tasks that they support",
    {"": "systems"},
    ("system",),
    (1,),
    (
        Column(("caption", "CIDEr"), "caption, CIDEr"),
        Column(("vqa", "accuracy yes/no"), "VQA yes/no"),
        Column(("vqa", "accuracy number"), "VQA number"),
        Column(("vqa", "accuracy other"), "VQA other"),
        Column(("vcr", "Q->A"), "VCR Q→A"),
        Column(("nlvr", "accuracy"), "NLVR"),
        Column(("referring", "accuracy"), "referring"),
        Column(("retrieval", "image retrieval R@10"), "image R@10"),
        Column(("retrieval", "text retrieval R@10"), "caption R@10"),
    ),
    TITLES,
)

STUDIES: dict[str, Study] = {
    "systems": SYSTEMS,
    "thorough": Study(
        "What pre-training is worth, by labelled scenes",
        {"": "thorough"},
        ("labelled", "arm"),
        (1, 2),
        (
            Column(("caption", "CIDEr"), "caption, CIDEr"),
            Column(("caption", "BLEU-4"), "BLEU-4"),
            Column(("vqa", "accuracy"), "VQA"),
            Column(("vqa", "accuracy yes/no"), "VQA yes/no"),
        ),
    ),
    "demo": Study(
        "The demo",
        {"": "demo"},
        ("arm",),
        (2,),
        tuple(
            Column(("test, detected regions", task, score), title)
            for task, score, title in (
                ("caption", "CIDEr", "caption, CIDEr"),
                ("caption", "BLEU-4", "BLEU-4"),
                ("vqa", "accuracy", "VQA"),
                ("vqa", "accuracy yes/no", "VQA yes/no"),
                ("vqa", "accuracy number", "VQA number"),
            )
        ),
    ),
    "flickr8k": Study(
        "Captions of photographs (Flickr8k)",
        {"": "flickr8k"},
        ("start",),
        (0,),
        _named("BLEU-1", "BLEU-4", "ROUGE-L", "CIDEr"),
    ),
    "scst": Study(
        "Self-critical training (SCST)",
        {"tden": "scst_tden", "unified-vlp": "scst_unified_vlp", "xgpt": "scst_xgpt"},
        ("system", "arm"),
        (0, 1),
        (
            *_named("CIDEr", "BLEU-4"),
            Column(("repeated bigrams",), "repeated bigrams, %", best="min"),
            Column(("objects named that are not there",), "objects not there, %", best="min"),
        ),
        TITLES,
    ),
    "captions_as_data": Study(
        "Captions as data (XGPT 6.1)",
        {"": "captions_as_data"},
        ("training captions",),
        (0,),
        _named("text retrieval R@1", "text retrieval R@10", "image retrieval R@1", "image retrieval R@10"),
        {"people's captions alone": "human", "people's and written captions": "human and generated"},
    ),
    "mining": Study(
        "What mining is worth (ImageBERT's LAIT)",
        {"TDEN": "mining_tden", "ImageBERT": "mining_image_bert"},
        ("system", "pre-trained on"),
        (0, 2),
        tuple(
            Column(("recall", name), name)
            for name in ("text retrieval R@1", "text retrieval R@10", "image retrieval R@1", "image retrieval R@10")
        ),
    ),
    "end_to_end": Study(
        "VL-BERT from pixels, its network trained or frozen",
        {"": "end_to_end"},
        ("network",),
        (0,),
        (
            Column(("referring accuracy",), "referring"),
            Column(("classes from pixels, nats",), "classes from pixels, nats", best="min"),
        ),
    ),
    "masking": Study(
        "Masked words or a query for every word",
        {"": "masking"},
        ("pre-training",),
        (0,),
        (
            Column(("CIDEr on val, by seed",), "CIDEr on val, by seed"),
            Column(("steps until val stopped rising",), "steps until the best score", best=None),
        ),
    ),
    "rates": Study(
        "Learning rates of the demo's arms",
        {"": "rates_100"},
        ("rate",),
        (1,),
        tuple(
            Column((arm, "best on val"), arm)
            for arm in ("caption, from scratch", "caption, pre-trained", "vqa, from scratch", "vqa, pre-trained")
        ),
    ),
    "photographs": Study(
        "The recipes for photographs",
        {"": "photographs"},
        ("system",),
        (1,),
        (
            Column(("systems", "pre-training", "steps"), "pre-training steps", best=None),
            Column(("systems", "pre-training", "CPU minutes"), "pre-training, CPU minutes", best=None),
            Column(("systems", "caption", "CPU minutes"), "caption, CPU minutes", best=None),
            Column(("systems", "caption", "CIDEr"), "CIDEr"),
            Column(("systems", "caption", "BLEU-4"), "BLEU-4"),
            Column(("systems", "retrieval", "CPU minutes"), "retrieval, CPU minutes", best=None),
            Column(("systems", "retrieval", "text retrieval R@10"), "caption R@10"),
            Column(("systems", "retrieval", "image retrieval R@10"), "image R@10"),
        ),
        TITLES,
    ),
    "looping": Study(
        "Captions that repeat themselves",
        {"": "looping"},
        ("training", "search"),
        (1, 2),
        (
            Column(("arms", "CIDEr"), "CIDEr"),
            Column(("arms", "BLEU-4"), "BLEU-4"),
            Column(("arms", "words a caption"), "words per caption", best=None),
            Column(("arms", "captions with three words twice"), "captions that repeat a trigram, %", best=None),
            Column(("arms", "repeated bigrams"), "repeated bigrams, %", best=None),
            Column(("arms", "different words"), "distinct words", best=None),
        ),
    ),
    "faster_rcnn": Study(
        "Faster R-CNN as the detector",
        {"resnet18_fpn": "faster_rcnn"},
        ("detector",),
        (0,),
        (
            *_named("mAP", "mAP50"),
            Column(("captions", "CIDEr"), "caption, CIDEr"),
            Column(("captions", "BLEU-4"), "BLEU-4"),
        ),
    ),
}

# file of results, path of a figure in it, and the text that describes the figure
SPEED: tuple[tuple[str, Path, str], ...] = (
    ("vlp", ("BERT over ours (goal 2.6)",), "Unified VLP, pre-training step: speed relative to BERT of transformers"),
    ("vlp", ("BERT with its memory kept over ours",), "Unified VLP, memory kept: speed relative to BERT (goal 2.6)"),
    (
        "vlp",
        ("of the step, matmuls alone (goal 0.8)",),
        "Unified VLP: time of a step's matrix products alone, as a share of the step",
    ),
    ("encoders", ("vl-bert", "BERT over ours (goal 2.5)"), "VL-BERT: speed relative to BERT"),
    ("encoders", ("vl-bert", "BERT with its memory kept over ours"), "VL-BERT, memory kept (goal 2.5)"),
    ("encoders", ("vl-bert with text", "BERT over ours (goal 2.6)"), "VL-BERT, half of the batch without images"),
    (
        "encoders",
        ("vl-bert with text", "BERT with its memory kept over ours"),
        "VL-BERT, half of the batch without images, memory kept (goal 2.6)",
    ),
    ("encoders", ("image-bert", "BERT over ours (goal 2.5)"), "ImageBERT: speed relative to BERT"),
    ("encoders", ("image-bert", "BERT with its memory kept over ours"), "ImageBERT, memory kept (goal 2.5)"),
    (
        "tden",
        ("peer over ours, two steps (goal 2.5)",),
        "TDEN, both passes: speed relative to the authors' code in layers of transformers",
    ),
    ("tden", ("peer with its memory kept over ours, two steps",), "TDEN, memory kept (goal 2.5)"),
    (
        "decoding",
        ("hidden states, fp32, over ours, bf16 (goal 8)",),
        "Beam search, 5 beams: speed relative to a cache of hidden states",
    ),
    ("caption", ("milliseconds, median (goal 60)", "picture to caption"), "From an image file to its caption: ms"),
    (
        "startup",
        ("a caption over import torch, median (goal 1.6)",),
        "`diptych caption` of one photograph, start included: CPU time divided by that of `import torch`",
    ),
    (
        "serve",
        ("32 clients over the command line (goal 0.85)",),
        "`diptych serve`, 32 clients: images per second relative to `diptych caption FOLDER`",
    ),
    (
        "serve",
        ("clients", "128", "p95 ms"),
        "`diptych serve`, 128 clients: p95 latency of answered requests; the others get 503 (goal 10000): ms",
    ),
    (
        "serve_hostile",
        ("share of their images a second that good clients keep (goal 0.80)",),
        "`diptych serve`, 43 clients: rate with 21 hostile clients, divided by the rate without (goal 0.80)",
    ),
    (
        "serve_memory",
        ("rise after the first tenth",),
        "`diptych serve`: share by which memory grows from request 2,000 to 20,000 (goal 0.05)",
    ),
    (
        "faults",
        ("slowest good request after any, ms",),
        "10,000 bad requests: the slowest good request after one of them (goal 1000): ms",
    ),
    ("gallery", ("pgvector", "ms of a query, p95"), "A query over 100,000 vectors, p95, PostgreSQL with pgvector: ms"),
    ("gallery", ("faiss", "ms of a query, p95"), "A query over 100,000 vectors, p95, a file with a faiss index: ms"),
    ("gallery", ("products", "ms of a query, p95"), "A query over 100,000 vectors, p95, exact: ms"),
    (
        "export",
        ("unified-vlp, caption, storybook-detector", "onnx", "ms a picture"),
        "From an image file to its caption, exported to ONNX, one core: ms",
    ),
    (
        "export",
        ("unified-vlp, caption, storybook-detector", "eager, fp32", "ms a picture"),
        "From an image file to its caption, the same model in fp32 without export: ms",
    ),
    ("scst_step", ("128 wide", "milliseconds_a_step"), "SCST, one step of a small model with 320 sampled captions: ms"),
    (
        "fingerprints",
        ("of an image", "640 x 480", "fingerprint_ms"),
        "Computing the fingerprint of a 640 x 480 image, former hash: ms",
    ),
    ("cider", ("ratio", "reward"), "CIDEr-D as a reward: speed relative to pycocoevalcap"),
    ("loader", ("samples_per_second", "diptych, 2 threads"), "Loader, 2,048 values per region: samples per second"),
    (
        "feeding",
        ("samples_per_second", "training, the loader in a thread"),
        "Pre-training of the demo with the loader in a thread: samples per second",
    ),
    ("extraction", ("pictures_per_second", "end to end, 2 processes"), "Extraction, small detector: images per second"),
    ("features", ("index", "processor_seconds"), "Opening a COCO file of 600,000 captions: CPU seconds (goal 3)"),
    (
        "features",
        ("index", "most_memory_mb"),
        "Opening a COCO file of 600,000 captions: MB, torch included (goal 1,000)",
    ),
    (
        "official_detectors",
        ("bottom-up attention (caffe)", "whole", "pictures_per_second"),
        "Bottom-up attention at full size, one core: images per second",
    ),
    (
        "official_detectors",
        ("bottom-up attention (caffe)", "whole, bfloat16", "pictures_per_second"),
        "Bottom-up attention at full size, bfloat16: images per second",
    ),
    (
        "official_detectors",
        ("Unified VLP's", "whole", "pictures_per_second"),
        "Unified VLP's detector at full size, one core: images per second",
    ),
    (
        "official_detectors",
        ("Unified VLP's", "whole, bfloat16", "pictures_per_second"),
        "Unified VLP's detector at full size, bfloat16: images per second",
    ),
    ("mine_speed", ("pages", "share_of_floor"), "Mining pages: speed relative to only reading and parsing them"),
    (
        "mine_speed",
        ("pages_of_56_kilobytes", "share_of_floor"),
        "Mining pages of 56 kB: speed relative to only reading and parsing them (goal 0.35)",
    ),
    (
        "mine_speed",
        ("decode", "share_of_floor"),
        "Measuring mined images: speed relative to only decoding them (goal 0.4)",
    ),
    (
        "mine_speed",
        ("fetch", "share_of_floor"),
        "Fetching: speed relative to the HTTP client in a plain loop (goal 0.5)",
    ),
    ("mine_speed", ("memory", "all_mebibytes"), "Mining with two local processes: MiB (goal 600)"),
    ("mine_speed", ("memory", "all_beside_tenth"), "Mining: memory for all shards, relative to a tenth (goal 1.1)"),
    ("mine_speed", ("keep", "peak_mebibytes"), "Selecting the best of 10 million mined pairs: MiB (goal 4,096)"),
    ("mine_speed", ("keep", "cpu_seconds"), "Selecting the best of 10 million mined pairs: CPU seconds"),
    ("detector", ("training_seconds",), "Training of the small detector: seconds"),
    ("detector", ("mAP50",), "The small detector: mAP50"),
    ("storybook", ("scenes_per_second",), "Drawing scenes with all texts: scenes per second"),
    ("retrieval", ("pairs a second", "bf16"), "Retrieval by a small ImageBERT: pairs per second"),
    ("two_towers", ("queries a second", "a product with all, one at a time"), "Two-tower search: queries per second"),
    ("demo", ("seconds", "all stages"), "The demo, all stages: seconds"),
    (
        "demo_turns",
        ("now over before (goal 0.76, at most 0.80)",),
        "The demo without its models for all labels: CPU time divided by that of commit e16f41f",
    ),
    (
        "demo_turns",
        ("below the earlier interval (goal 0)",),
        "The demo: number of its 24 scores below their interval at commit e16f41f",
    ),
    ("demo", ("memory, MiB", "most"), "The demo: memory of all processes, MiB"),
    (
        "gpu",
        ("a pre-training step, bf16", "Unified VLP", "samples a second"),
        "Unified VLP on one H100, a pre-training step of 256 images: samples per second",
    ),
)


def page_of(file: str) -> str:
    """Return the path, below docs/, of the page that shows a result file."""
    study = next((name for name, study in STUDIES.items() if file in study.files.values()), file)
    return f"results/{study}.md"
