"""VL-BERT (arXiv 1908.08530): one encoder over words and regions; its network over pixels; its checkpoints."""
