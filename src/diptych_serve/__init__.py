"""Apply models as programs of their own: the HTTP service with its page, and export."""
