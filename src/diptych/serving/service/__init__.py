"""Models over HTTP: one worker thread owns the models, and requests share its batches."""
