"""TFRecords: what a record holds, how shards are made, how they are read.

What everything here shares
    schema, serialization    what a record holds, and its bytes
    tfrecord_files, shards   files of records, complete or absent
    manifest                 what stands beside them

Making pre-training records, in the order of the work
    record_planning, finished, record_sets    what is asked for, and what is there
    work_folder, tokenized_chunks, tokenized_corpus    text to ids, kept on disk
    generation, pretraining    ids to record files, in one process or several
    beam, beam_pipeline, beam_steps    the same on a cluster
    statistics, reports    what was read, dropped and written

Packing finished records, several sequences to a row
    packed_planning    what is asked for
    packing, packed_rows    which sequences share a row, and that row
    packed_shards, packed_records    record files to files of rows, in several processes

Training from records
    pretraining_input    found, and checked against the model
    pretraining_shape, mixing, lengths    what files of one run must have in common
    record_counts, pipeline    files to batches
    pretraining_targets, next_tokens    what is to be predicted
    masking_options, dynamic_masking, masking_units, noise    masks, as they are read
    packed_batches    rows taken apart, and put together again

Looking at records (`tfrecords.inspect_records`)
    inspection    files as they are found, the rules that records keep, examples
"""
