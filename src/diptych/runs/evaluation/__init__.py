"""Evaluation of a trained model on a store: scores, retrieval, server files, and new captions for a training set."""
