"""Backbones of torchvision, timm, open_clip, transformers and ONNX files.

Their input is a square image. Their output is a feature map.

resnet18                                  torchvision
timm/vit_base_patch14_dinov2.lvd142m      timm
open_clip/ViT-B-32/laion2b_s34b_b79k      open_clip: architecture/weights
hf/google/siglip-base-patch16-224         transformers: a name on the Hugging Face hub, optionally with @COMMIT
"""
