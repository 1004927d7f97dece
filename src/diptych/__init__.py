"""Diptych: vision-language pre-training, five systems in one frame."""
