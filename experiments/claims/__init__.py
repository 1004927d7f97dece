"""The papers' claims. Each is tested as a difference between small models that are trained here (docs/claims.md)."""
