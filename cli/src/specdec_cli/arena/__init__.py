"""`specdec arena`: measurements that strangers can check: raw rows, hashes, a stamp of losslessness, a page of many."""
