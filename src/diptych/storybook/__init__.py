"""Storybook: an endless drawn world with ground truth and words; nothing is downloaded."""
