"""Everything between records and batches: the store on disk, tokenisers, and the loader."""
