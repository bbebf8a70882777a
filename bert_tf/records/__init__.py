"""TFRecords: what a record holds, how shards are written, how they are read."""
