"""The demo on the drawn world, the comparison over several seeds, and their report."""
