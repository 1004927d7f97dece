"""Export models as programs that run without Diptych: `torch.export` or ONNX files, with a script that runs them."""
