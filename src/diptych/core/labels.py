"""The task of items with one label each, under this name in `Record.more`."""

CLASSIFY = "classify"
