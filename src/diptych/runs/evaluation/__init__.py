"""What is done with a trained model over a store: scores, retrieval, new captions for a training set."""
