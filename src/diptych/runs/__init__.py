"""The engine: prepare what a recipe needs, train, save a model folder; import checkpoints; extract regions."""
