"""Training by a recipe: prepare the data, train and save a model folder.

Also import of checkpoints, evaluation and reports.
"""
