"""Evaluation of a trained model on a store: scores, retrieval, and new captions for a training set."""
