"""Serve models over HTTP. One worker thread runs the models, and answers several requests in a batch."""
