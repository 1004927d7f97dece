"""Open models and apply them: prediction, search, drawings, model cards, the Hugging Face hub."""
