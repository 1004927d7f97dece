"""Networks that find and classify boxes. The class `PooledDetector` adds features from a backbone."""
