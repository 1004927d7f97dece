"""ImageBERT (arXiv 2001.07966): one encoder over words and regions."""
