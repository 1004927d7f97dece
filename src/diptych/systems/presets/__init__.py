"""The recipes, a file a system: sizes and numbers of each paper, of the code that was released, and small ones."""
