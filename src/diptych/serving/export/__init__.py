"""Models as programs that run without Diptych: `torch.export` files or ONNX, and a runner beside them."""
