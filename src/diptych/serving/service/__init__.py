"""Models behind HTTP: one worker owns them, and requests share its passes."""
