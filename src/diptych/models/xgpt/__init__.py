"""XGPT (arXiv 2003.01473): an encoder-decoder of one set of layers; its layers."""
