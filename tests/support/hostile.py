"""A text that breaks out of whatever forgets to escape it."""

HOSTILE = "<script>alert('x')</script>\"&'</svg></title>{{ 7 * 7 }}{% raw %}\u202e"
