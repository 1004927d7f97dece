"""Storybook: a synthetic data set of any size. Pictures are drawn by program, with texts and ground truth."""
