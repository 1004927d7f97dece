"""The papers' claims, each as a difference between small models that are trained here (docs/claims.md)."""
