"""Training by a recipe: prepare the data, train and save a model folder.

This package also imports checkpoints, evaluates models and writes reports.
"""
