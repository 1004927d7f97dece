"""Storybook: a drawn world with truth and words, endless, without a download."""
