"""HTML reports, tables and charts."""
