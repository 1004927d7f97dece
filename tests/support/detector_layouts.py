"""Layouts of detectors' files."""

from pathlib import Path

import torch
from safetensors.torch import save_file

from tests.support.detector_files import butd_file, detectron_blobs, write_airsplay, write_detectron


def detectron(folder: Path) -> Path:
    return write_detectron(folder / "model.pkl", detectron_blobs())


def airsplay(folder: Path) -> Path:
    return write_airsplay(folder / "from_caffe.pkl", butd_file("hf", attributes=0))


def milvlg(folder: Path) -> Path:
    torch.save({"model": butd_file("caffe"), "iteration": 7}, folder / "bua-caffe.pth")
    return folder / "bua-caffe.pth"


def hugging_face(folder: Path) -> Path:
    torch.save(butd_file("hf"), folder / "pytorch_model.bin")
    return folder / "pytorch_model.bin"


def safe(folder: Path) -> Path:
    save_file(butd_file("hf"), folder / "model.safetensors")
    return folder / "model.safetensors"


LAYOUTS = {
    detectron: "Detectron ResNeXt-14-2x2d-FPN at 96 to 160 pixels",
    airsplay: "bottom-up attention (hf) ResNet-14-C4 at 800 to 1333 pixels",
    milvlg: "bottom-up attention (caffe) ResNet-14-C4 at 600 to 1000 pixels",
    hugging_face: "bottom-up attention (hf) ResNet-14-C4 at 800 to 1333 pixels",
    safe: "bottom-up attention (hf) ResNet-14-C4 at 800 to 1333 pixels",
}
