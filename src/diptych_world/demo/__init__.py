"""The demo on the drawn world, and its report."""
