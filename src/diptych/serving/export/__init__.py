"""Export models as programs that run without Diptych: `torch.export` files or ONNX, with a runner script."""
