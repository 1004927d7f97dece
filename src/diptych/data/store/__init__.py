"""From records to batches: the store on disk, tokenisers, checks of data, the loader."""
