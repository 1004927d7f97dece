"""A folder per system; beside them what they are made of.

`SYSTEMS` is the one table of systems: what trains, imports, serves and compares them reads it.
"""

from diptych.models.checkpoint import start_from_bert
from diptych.models.heads import HEADS, HeadSizes, make_heads
from diptych.models.image_bert.model import ImageBert, ImageBertConfig, ImageBertResolvedConfig
from diptych.models.system import Importer, ModelConfig, ResolvedConfig, System, SystemModel
from diptych.models.tden.checkpoint import import_tden, start_tden
from diptych.models.tden.model import Tden, TdenConfig, TdenResolvedConfig
from diptych.models.unified_vlp.checkpoint import import_unified_vlp
from diptych.models.unified_vlp.model import UnifiedVLP, UnifiedVLPConfig, UnifiedVLPResolvedConfig
from diptych.models.vl_bert.checkpoint import import_vl_bert, start_network, start_vl_bert
from diptych.models.vl_bert.model import VLBert, VLBertConfig, VLBertResolvedConfig
from diptych.models.xgpt.model import Xgpt, XgptConfig, XgptResolvedConfig
from diptych.vision.selection import EXACTLY_100, Selection

BOTTOM_UP = "bottom-up attention ResNet-101 on Visual Genome (Anderson et al. 2018)"
CAFFES = "bottom-up attention (caffe)"

# docs/fidelity.md has the sources of the region selections.
SYSTEMS: dict[str, System] = {
    "unified-vlp": System(
        title="Unified VLP",
        paper="1909.11059",
        config=UnifiedVLPConfig,
        resolved=UnifiedVLPResolvedConfig,
        model=UnifiedVLP,
        selection=EXACTLY_100,
        start=start_from_bert,
        importer=Importer(
            read=import_unified_vlp,
            extractor="Detectron ResNeXt-101 FPN on Visual Genome (Unified VLP's authors)",
            selection="exactly 100 by score",
            lowercase=False,
            detector="Detectron ResNeXt",
        ),
    ),
    "vl-bert": System(
        title="VL-BERT",
        paper="1908.08530",
        config=VLBertConfig,
        resolved=VLBertResolvedConfig,
        model=VLBert,
        selection=Selection(most=100, least=10, score=0.5),
        start=start_vl_bert,
        start_network=start_network,
        importer=Importer(
            read=import_vl_bert,
            extractor=BOTTOM_UP,
            selection="10 to 100 by score over 0.5",
            lowercase=True,
            detector=CAFFES,
        ),
    ),
    "image-bert": System(
        title="ImageBERT",
        paper="2001.07966",
        config=ImageBertConfig,
        resolved=ImageBertResolvedConfig,
        model=ImageBert,
        selection=EXACTLY_100,
        start=start_from_bert,
    ),
    "tden": System(
        title="TDEN",
        paper="2101.11562",
        config=TdenConfig,
        resolved=TdenResolvedConfig,
        model=Tden,
        selection=Selection(most=100, score=0.2),
        start=start_tden,
        importer=Importer(
            read=import_tden,
            extractor=BOTTOM_UP,
            selection="the best 50 by score",
            lowercase=True,
            detector=CAFFES,
        ),
    ),
    "xgpt": System(
        title="XGPT",
        paper="2003.01473",
        config=XgptConfig,
        resolved=XgptResolvedConfig,
        model=Xgpt,
        selection=EXACTLY_100,
    ),
}

__all__ = [
    "HEADS",
    "SYSTEMS",
    "HeadSizes",
    "ImageBert",
    "ImageBertConfig",
    "ImageBertResolvedConfig",
    "Importer",
    "ModelConfig",
    "ResolvedConfig",
    "System",
    "SystemModel",
    "Tden",
    "TdenConfig",
    "TdenResolvedConfig",
    "UnifiedVLP",
    "UnifiedVLPConfig",
    "UnifiedVLPResolvedConfig",
    "VLBert",
    "VLBertConfig",
    "VLBertResolvedConfig",
    "Xgpt",
    "XgptConfig",
    "XgptResolvedConfig",
    "make_heads",
]
